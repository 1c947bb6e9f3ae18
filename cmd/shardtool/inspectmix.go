package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/shardtool/shardtool/cmd/shardtool/internal/simulate"
	"github.com/shardtool/shardtool/internal/order/mix"
	"github.com/shardtool/shardtool/reader"
)

// maxWalk is the largest number of samples that a dry run walks one by one to count what nodes
// read.
const maxWalk = 1 << 20

// dryRun is what inspect prints about a mix.
type dryRun struct {
	run *openedRun
	*simulate.Forecast
	// Reading is what was enumerated of the first steps.
	Reading *simulate.MixReport `json:"reading,omitempty"`
	// With `--pack` or `--bucket`, in place of Reading.
	Units *simulate.MixUnitReport `json:"units,omitempty"`
}

// inspectMix prints what steps of a mix will read, without reading samples.
func inspectMix(cmd *cobra.Command, arg string, f *inspectFlags) error {
	for _, flag := range []string{"shard", "blocks", "against", "checkpoint"} {
		if cmd.Flags().Changed(flag) {
			return usagef("--%s is for data sets: name one of the mix's; --checkpoint-in continues a mix", flag)
		}
	}
	if err := f.mixed.fill(); err != nil {
		return err
	}
	ctx, order := cmd.Context(), &f.mixed.order
	run, err := order.openRun(ctx, cmd.ErrOrStderr(), arg)
	if err != nil {
		return err
	}
	defer run.Close()
	sizes, err := run.sizes(ctx)
	if err != nil {
		return err
	}
	r := dryRun{run: run}
	if r.Forecast, err = simulate.NewForecast(run.mix(), run.Steps, run.Run.Begin().Position, f.mixed.steps, sizes,
		run.LeftOut); err != nil {
		return usage(err)
	}
	walked := min(r.Steps, max(1, maxWalk/uint64(order.opt.GlobalBatch)))
	opt := simulate.Options{Steps: walked, End: r.End, GlobalBatch: order.opt.GlobalBatch, Worlds: f.mixed.worlds,
		Job: f.mixed.job.Job, Square: squareCost}
	if r.Reading, r.Units, err = run.walk(ctx, "", opt); err != nil {
		return err
	}
	return present(cmd, f.json, r, func(w io.Writer) {
		r.print(w)
		if u := r.Units; u != nil {
			fmt.Fprintf(w, "\nin the first %s:\n", plural(u.Batches, "step"))
			printMixUnits(w, u)
			return
		}
		printMixAdvice(w, r.Reading.Verdict)
		if walked < r.Steps {
			fmt.Fprintf(w, "\nwhat nodes read in the first %s:\n", plural(r.Reading.Batches, "step"))
		}
		f.mixed.job.print(w, r.Reading.Worlds)
	})
}

// sizes returns the bytes and tokens of the sources. Tokens is 0 where samples have no known
// length.
func (o *openedRun) sizes(ctx context.Context) ([]simulate.Size, error) {
	sizes := make([]simulate.Size, len(o.Sources))
	for i, ds := range o.Sources {
		if ds == nil {
			continue
		}
		tokens, err := ds.Tokens(ctx, o.count)
		if _, uncounted := errors.AsType[*reader.CountError](err); err != nil && !uncounted {
			return nil, fmt.Errorf("source %s: %w", o.Names[i], err)
		}
		sizes[i] = simulate.Size{Bytes: ds.Info().Bytes, Tokens: tokens}
		if x := o.mix().Mix().Sources[i]; mix.LineOf(&x) != nil && x.Unit.By == cmp.Or(o.count, reader.DefaultCount) {
			sizes[i].Tokens = mix.LineOf(&x).Units().Summary().Tokens // what is left of long samples
		}
	}
	return sizes, nil
}

// print prints what the sources give, and when that changes.
func (r *dryRun) print(w io.Writer) {
	unit := r.run.Holds
	fmt.Fprintf(w, "steps %d to %d in batches of %s: positions %s to %s; an epoch of the mix has %s\n\n", r.Step,
		r.Step+r.Steps-1, countText(uint64(r.GlobalBatch)),
		countText(r.Position), countText(r.End), plural(r.EpochSamples, unit))
	head := fmt.Sprintf("%sS\tSHARE\t%s\tSHARE\tBYTES\tSHARE\tEPOCHS\tIN ALL\t  SOURCE\t", strings.ToUpper(unit),
		strings.ToUpper(cmp.Or(r.run.count, reader.DefaultCount)))
	printTable(w, right, head, r.Sources, func(t io.Writer, s *simulate.SourceForecast) {
		tokens, share := "?", "?"
		if s.Tokens != nil {
			tokens = countText(*s.Tokens)
		}
		if s.TokenShare != nil {
			share = percent(*s.TokenShare)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%.2f\t%.2f\t  %s\t\n", countText(s.Samples), percent(s.Share), tokens,
			share, bytesText(s.Bytes),
			percent(s.ByteShare), s.Epochs-s.EpochsBefore, s.Epochs, s.Name)
	})
	r.printEvents(w)
}

func (r *dryRun) printEvents(w io.Writer) {
	const most = 20
	if len(r.Events) > 0 {
		fmt.Fprintln(w)
	}
	for i, e := range r.Events {
		if i == most {
			fmt.Fprintf(w, "… and %d more changes (--json lists all)\n", len(r.Events)-most)
			break
		}
		var parts []string
		for s, share := range e.Weights {
			if share > 0 {
				parts = append(parts, r.run.Names[s]+" "+percent(share))
			}
		}
		text := "the stream ends: no source is left"
		switch e.Kind {
		case simulate.SegmentBegins:
			text = "a segment begins"
		case simulate.SourceEnds:
			text = e.Source + " ends, it has given its max_epochs"
		}
		if parts != nil {
			text += "; from here on " + strings.Join(parts, ", ") + " of the " + r.run.Holds + "s"
		}
		fmt.Fprintf(w, "step %s, position %s: %s\n", countText(e.Step), countText(e.Position), text)
	}
}
