package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/explain"
	"github.com/shardtool/shardtool/reader/mixfile"
	"github.com/shardtool/shardtool/reader/order"
	"github.com/shardtool/shardtool/reader/order/mix"
	"github.com/shardtool/shardtool/reader/unitplan"
)

// stepOfUnits explains the step of units that the flags ask for.
func (f *orderFlags) stepOfUnits(cmd *cobra.Command, ds *reader.Dataset, step uint64, opt explain.Options) (*explain.Step, error) {
	ctx := cmd.Context()
	u, err := f.unitOrder(ctx, ds, cmd.ErrOrStderr(), cmd.OutOrStdout())
	if err != nil {
		return nil, err
	}
	defer u.Close()
	opt.GlobalBatch = f.opt.GlobalBatch
	at, err := f.unitPlace(cmd, u, step)
	if err != nil {
		return nil, err
	}
	return explain.DatasetUnits(ctx, ds, u, at, opt)
}

// unitPlace is where the flags ask for the first batch, or with --step for the only one.
func (f *orderFlags) unitPlace(cmd *cobra.Command, u *unitplan.Order, step uint64) (explain.UnitPlace, error) {
	if f.changed("step") {
		return explain.UnitStep(cmd.Context(), u, f.opt.GlobalBatch, step)
	}
	epoch, position := f.opt.Epoch, uint64(0)
	if cp := f.opt.Checkpoint; cp != nil {
		epoch, position = cp.Epoch, cp.Position
	}
	return explain.UnitPlaceOf(cmd.Context(), u, f.opt.GlobalBatch, epoch, position)
}

// runUnits gives the sources of a checkpoint their units: those that the run had.
func (f *orderFlags) runUnits(file *mixfile.File, data []mixfile.Data, from *mix.Checkpoint) error {
	if !from.InUnits() {
		return nil
	}
	asked, err := file.Mix(data, order.Choice{Seed: from.Seed, Shuffle: from.Shuffle, Tail: from.Tail}, from)
	if err != nil {
		return usage(err)
	}
	from.Attach(asked)
	return nil
}

// holds is what positions of a step hold.
func holds(s *explain.Step) string {
	if s.Units != nil {
		return "unit"
	}
	return "sample"
}

// keyText is the key of a sample, or why it has none.
func keyText(x *explain.Sample) string {
	switch {
	case x.Padding:
		return "(padding)"
	case x.Removed:
		return "(removed)"
	}
	return shown(x.Key)
}

// printPieces prints the samples of units, and their pieces.
func printPieces(w io.Writer, s *explain.Step) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "\nPOSITION\tRANK\tROW\tSOURCE\tEPOCH\tSHARD\tBLOCK\tNUMBER\tOFFSET\tLENGTH\tKEY")
	for i := range s.Samples {
		x := &s.Samples[i]
		fmt.Fprintf(t, "%d\t%d\t%d\t%s\t%d\t%s\t%d\t%d\t%d\t%d\t%s\n", x.Position, x.Rank, *x.Row, x.Source, x.Epoch, shown(x.Shard), x.Block, x.Number, *x.Offset, *x.Length, keyText(x))
	}
	return t.Flush()
}
