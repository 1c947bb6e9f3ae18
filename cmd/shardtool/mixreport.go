package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/shardtool/shardtool/cmd/shardtool/internal/simulate"
	"github.com/shardtool/shardtool/internal/mixing"
	"github.com/shardtool/shardtool/reader"
)

// maxWalk is the largest number of samples that a dry run walks one by one to count what nodes
// read.
const maxWalk = 1 << 20

// dryRun is what inspect prints about a mix.
type dryRun struct {
	run *openedRun
	*simulate.Forecast
	// Reading has the figures of a walk through the first steps.
	Reading *simulate.MixReport `json:"reading,omitempty"`
	// Units has the figures of that walk if positions hold units; Reading is then nil.
	Units *simulate.MixUnitReport `json:"units,omitempty"`
}

// inspectMix prints what steps of a mix will read, without reading samples.
func inspectMix(cmd *cobra.Command, arg string, f *inspectFlags) error {
	for _, flag := range []string{"shard", "blocks", "against", "checkpoint"} {
		if cmd.Flags().Changed(flag) {
			return usagef("--%s is for data sets: name one of the mix's; --checkpoint-in continues a mix", flag)
		}
	}
	worlds, err := f.mixed.fill()
	if err != nil {
		return err
	}
	ctx, order := cmd.Context(), &f.mixed.order
	run, err := order.openRun(ctx, cmd.ErrOrStderr(), arg, &f.mixed.mix, 0)
	if err != nil {
		return err
	}
	defer run.Close()
	sizes, err := run.sizes(ctx)
	if err != nil {
		return err
	}
	r := dryRun{run: run}
	if r.Forecast, err = simulate.NewForecast(run.mix(), run.Steps, run.Run.Begin().Position, f.mixed.steps, sizes, run.LeftOut); err != nil {
		return usage(err)
	}
	walked := min(r.Steps, max(1, maxWalk/uint64(order.opt.GlobalBatch)))
	if run.Units.Kind != "" {
		return r.inUnits(cmd, walked, f, worlds)
	}
	if r.Reading, err = run.walk(ctx, "", simulate.MixOptions{
		Steps: walked, End: r.End, Options: simulate.Options{GlobalBatch: order.opt.GlobalBatch, Worlds: worlds, Job: f.mixed.job.Job},
	}); err != nil {
		return err
	}
	if f.json {
		return printJSON(cmd, r)
	}
	w := cmd.OutOrStdout()
	if err := r.print(w); err != nil {
		return err
	}
	printMixAdvice(w, r.Reading.Verdict)
	if walked < r.Steps {
		fmt.Fprintf(w, "\nwhat nodes read in the first %s:\n", plural(r.Reading.Batches, "step"))
	}
	return f.mixed.job.print(w, r.Reading.Worlds)
}

// inUnits prints the run where positions hold units.
func (r *dryRun) inUnits(cmd *cobra.Command, walked uint64, f *inspectFlags, worlds []int) (err error) {
	if r.Units, err = r.run.walkUnits(cmd.Context(), walked, r.End, simulate.UnitOptions{GlobalBatch: f.mixed.order.opt.GlobalBatch, Worlds: worlds, Square: squareCost}); err != nil {
		return err
	}
	if f.json {
		return printJSON(cmd, r)
	}
	w := cmd.OutOrStdout()
	if err := r.print(w); err != nil {
		return err
	}
	fmt.Fprintf(w, "\nin the first %s:\n", plural(int64(r.Units.Batches), "step"))
	return printMixUnits(w, r.Units)
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
		if x := o.mix().Mix().Sources[i]; x.Line != nil && x.Unit.By == cmp.Or(o.count, reader.DefaultCount) {
			sizes[i].Tokens = x.Line.Units().Summary().Tokens // what is left of long samples
		}
	}
	return sizes, nil
}

// walk walks through steps of the mix. label is the attribute to measure mixing by.
func (o *openedRun) walk(ctx context.Context, label string, opt simulate.MixOptions) (*simulate.MixReport, error) {
	sources := make([]simulate.MixSource, len(o.Sources))
	for i, ds := range o.Sources {
		if ds == nil {
			continue
		}
		labels := mixing.Parts(ds.NumSamples())
		if label != "" {
			var err error
			if labels, err = readLabels(ctx, ds, label); err != nil {
				return nil, fmt.Errorf("source %s: %w", o.Names[i], err)
			}
		}
		sources[i] = simulate.MixSource{Blocks: ds.Info().Blocks, Bytes: ds.Info().Bytes, Labels: labels}
	}
	opt.LeftOut = o.LeftOut
	return simulate.Mix(ctx, o.mix(), o.Run.Begin().Position, o.Plans, sources, opt)
}

// print prints what the sources give, and when that changes.
func (r *dryRun) print(w io.Writer) error {
	unit := r.run.Holds
	fmt.Fprintf(w, "steps %d to %d in batches of %s: positions %s to %s; an epoch of the mix has %s\n\n", r.Step, r.Step+r.Steps-1, countText(uint64(r.GlobalBatch)),
		countText(r.Position), countText(r.End), plural(r.EpochSamples, unit))
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "%sS\tSHARE\t%s\tSHARE\tBYTES\tSHARE\tEPOCHS\tIN ALL\t  SOURCE\t\n", strings.ToUpper(unit), strings.ToUpper(cmp.Or(r.run.count, reader.DefaultCount)))
	for _, s := range r.Sources {
		tokens, share := "?", "?"
		if s.Tokens != nil {
			tokens = countText(*s.Tokens)
		}
		if s.TokenShare != nil {
			share = percent(*s.TokenShare)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%.2f\t%.2f\t  %s\t\n", countText(s.Samples), percent(s.Share), tokens, share, bytesText(s.Bytes),
			percent(s.ByteShare), s.Epochs-s.EpochsBefore, s.Epochs, s.Name)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	r.printEvents(w)
	return nil
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

// simulateMix walks through steps of a mix.
func simulateMix(cmd *cobra.Command, run *openedRun, f *simulateFlags, worlds []int) error {
	steps := f.steps
	if steps == 0 { // an epoch of the mix
		steps = (run.mix().Mix().Epoch-1)/uint64(f.order.opt.GlobalBatch) + 1
	}
	if run.Units.Kind != "" {
		return simulateMixUnits(cmd, run, steps, f, worlds)
	}
	r, err := run.walk(cmd.Context(), f.label, simulate.MixOptions{
		Steps: steps, Options: simulate.Options{GlobalBatch: f.order.opt.GlobalBatch, Worlds: worlds, Job: f.job.Job},
	})
	if err != nil {
		return err
	}
	if f.json {
		return printJSON(cmd, struct {
			*simulate.MixReport
			Label string `json:"label"`
		}{r, f.label})
	}
	return f.printMix(cmd.OutOrStdout(), r)
}

func (f *simulateFlags) printMix(w io.Writer, r *simulate.MixReport) error {
	proof := "no epoch of a source has a sample twice, or lacks one (all were checked)"
	if !r.ExactlyOnce {
		proof = "some epochs of sources have samples twice, or lack some: see below"
	}
	fmt.Fprintf(w, "positions %s to %s: %s samples in %s batches; %s\n", countText(r.Position), countText(r.End), countText(r.Samples), countText(r.Batches), proof)
	if r.Padding > 0 {
		fmt.Fprintf(w, "%d samples of padding\n", r.Padding)
	}
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "\nSAMPLES\tSHARE\tEPOCHS\tREPEATED\tMISSING\tLABELS\tVIF\tNEIGHBOURS\tREAD\t  SOURCE\t")
	for _, s := range r.Sources {
		fmt.Fprintf(t, "%s\t%s\t%.2f\t%d\t%d\t%d\t%.2f\t%.2f%%\t%s\t  %s\t\n", countText(s.Samples), percent(s.Share), s.Epochs, s.Repeated, s.Missing, s.Labels, s.VIF,
			100*s.Adjacency, bytesText(s.ReadBytes), s.Name)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	t = tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "RANKS\tSTEPS\tSAMPLES A RANK\tBLOCKS A RANK\tREAD AMPLIFICATION\t")
	for _, o := range r.Worlds {
		samples := countText(o.Most)
		if o.Least != o.Most {
			samples = countText(o.Least) + "–" + samples
		}
		fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%.2f\t\n", o.Size, countText(o.Steps), samples, countText(o.Blocks), o.Amplification)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if err := f.job.print(w, r.Worlds); err != nil {
		return err
	}
	printMixAdvice(w, r.Verdict)
	_, err := fmt.Fprintln(w, "VIF: variance inflation of the label counts in the source's part of batches, 1 is a uniform permutation; read: all ranks of the first world size;\n"+
		"read and requests: these steps without a cache, blocks again in every epoch of their source; cache: the size that lets a node read each block once")
	return err
}
