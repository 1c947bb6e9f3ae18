package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/shardtool/shardtool/cmd/shardtool/internal/inspect"
	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/order/epochplan"
	"github.com/shardtool/shardtool/internal/order/units"
	"github.com/shardtool/shardtool/reader/order"
)

// checkpointJSON is what inspect --checkpoint prints.
type checkpointJSON struct {
	Epoch       uint64  `json:"epoch"`
	Position    uint64  `json:"position"`        // samples, or units, of the epoch that were delivered over all ranks
	Samples     uint64  `json:"samples"`         // of the epoch
	Units       *uint64 `json:"units,omitempty"` // of the epoch
	GlobalBatch int     `json:"global_batch"`
	Skipped     uint64  `json:"skipped"`
	// The data set of the checkpoint, and the newest generation with the same samples.
	Tables        string `json:"tables"`
	Digest        string `json:"digest"`
	ResumedTables string `json:"resumed_tables"`

	Parameters     orderJSON      `json:"parameters"`
	UnitParameters *units.Params  `json:"unit_parameters,omitempty"`
	Lanes          []inspect.Lane `json:"lanes,omitzero"`
}

// inspectCheckpoint prints the place of a checkpoint in a data set.
func inspectCheckpoint(cmd *cobra.Command, arg string, f *inspectFlags) error {
	ctx := cmd.Context()
	flags := orderFlags{in: f.checkpoint, ins: []string{f.checkpoint}, changed: func(string) bool { return false }}
	flags.opt.Tuning.Plans = plansFolder("", "")
	run, err := flags.openRun(ctx, cmd.ErrOrStderr(), arg)
	if err != nil {
		return err
	}
	defer run.Close()
	ds, plan, cp := run.Sources[0], run.Plans[0], flags.opt.Checkpoint.Dataset
	result := checkpointJSON{
		Epoch: cp.Epoch, Position: cp.Position, Samples: plan.Samples(), GlobalBatch: cp.GlobalBatch, Tables: cp.Tables,
		ResumedTables: ds.Info().Tables, Digest: format.DigestString(ds.Digest()), Skipped: cp.Skipped,
		Parameters: newOrderJSON(cp.Params),
	}
	fits := fmt.Sprintf("it fits %v, %s; %s%s", ds.Store(), ds.Info().Tables, paramsText(cp.Params),
		skippedText(cp.Skipped))
	if u, ok := run.Run.Plan().(*epochplan.Order); ok {
		return inspectUnits(cmd, u, f, cp, result, fits)
	}
	lanes, err := inspect.Lanes(ctx, ds, plan, cp.Epoch, cp.Position)
	if err != nil {
		return err
	}
	result.Lanes = lanes
	return present(cmd, f.json, byName{result}, func(w io.Writer) {
		if cp.Epoch > 0 && cp.Position == 0 { // no lane has begun: their rows would be empty
			fmt.Fprintf(w, "%s: %s done, %s each; epoch %d has not begun; batches of %d; %s\n", shown(f.checkpoint),
				plural(cp.Epoch, "epoch"),
				plural(plan.Samples(), "sample"), cp.Epoch, cp.GlobalBatch, fits)
			return
		}
		fmt.Fprintf(w, "%s: epoch %d, position %s of %s (%.1f%%), batches of %d\n%s\n", shown(f.checkpoint), cp.Epoch,
			countText(cp.Position),
			countText(plan.Samples()), 100*float64(cp.Position)/float64(max(plan.Samples(), 1)), cp.GlobalBatch, fits)
		printTable(w, right, "\nLANE\tDONE\tOF\tNEXT NUMBER\tINDEX\tBLOCK\tOFFSET\t  SHARD\t", lanes,
			func(t io.Writer, l *inspect.Lane) {
				if l.Done == l.Length {
					fmt.Fprintf(t, "%d\t%d\t%d\t\t\t\t\t  (done)\t\n", l.Lane, l.Done, l.Length)
					return
				}
				fmt.Fprintf(t, "%d\t%d\t%d\t%d\t%d\t%d\t%d\t  %s\t\n", l.Lane, l.Done, l.Length, l.Number, l.Index,
					l.Block,
					l.Offset, shown(l.Shard))
			})
	})
}

// inspectUnits prints the place of a checkpoint of units. result and fits are what it has in common
// with other checkpoints.
func inspectUnits(cmd *cobra.Command, u *epochplan.Order, f *inspectFlags, cp *order.Checkpoint, result checkpointJSON,
	fits string) error {
	count := uint64(0)
	if cp.Epoch < order.MaxEpochs {
		plan, err := u.Plan(cmd.Context(), cp.Epoch)
		if err != nil {
			return err
		}
		if count = plan.Units(); cp.Position >= max(count, 1) {
			return &exitError{exitCheckpoint, fmt.Errorf("%s: position %d, but epoch %d has %d units", f.checkpoint,
				cp.Position, cp.Epoch, count)}
		}
	}
	m := cp.Units
	result.Units, result.UnitParameters = &count, new(units.ParamsOf(m))
	return present(cmd, f.json, byName{result}, func(w io.Writer) {
		fmt.Fprintf(w,
			"%s: epoch %d, position %s of %s, batches of %d\n%s\n%s of %d by %s, long samples: %s, windows of %d samples\n",
			shown(f.checkpoint), cp.Epoch, countText(cp.Position), plural(count, "unit"), cp.GlobalBatch, fits, m.Kind,
			m.Size, shown(m.By), m.Long, m.Window)
	})
}
