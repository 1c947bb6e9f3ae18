package main

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/shardtool/shardtool/cmd/shardtool/internal/simulate"
)

// walkUnits walks through steps of a mix of units.
func (o *openedRun) walkUnits(ctx context.Context, steps, end uint64, opt simulate.UnitOptions) (*simulate.MixUnitReport, error) {
	return simulate.MixUnits(ctx, o.mix(), o.Run.Begin().Position, simulate.MixUnitOptions{UnitOptions: opt, Steps: steps, End: end, LeftOut: o.LeftOut})
}

// simulateMixUnits reports steps of a mix of units.
func simulateMixUnits(cmd *cobra.Command, o *openedRun, steps uint64, f *simulateFlags, worlds []int) error {
	if f.label != "" {
		return usagef("--label is for samples, not for --pack and --bucket")
	}
	r, err := o.walkUnits(cmd.Context(), steps, 0, simulate.UnitOptions{GlobalBatch: f.order.opt.GlobalBatch, Worlds: worlds, Square: f.square})
	if err != nil {
		return err
	}
	if f.json {
		return printJSON(cmd, r)
	}
	w := cmd.OutOrStdout()
	fmt.Fprintf(w, "positions %s to %s: %s in %s batches\n", countText(r.Position), countText(r.End), plural(int64(r.Units), "unit"), countText(r.Batches))
	return printMixUnits(w, r)
}

// printMixUnits prints what steps have by source and by number of ranks.
func printMixUnits(w io.Writer, r *simulate.MixUnitReport) error {
	fmt.Fprintf(w, "fill %.2f%%, padding %.2f%%\n", 100*r.Fill, 100*r.Padding)
	fmt.Fprintf(w, "tokens of a step: %s to %s, mean %s\n\n", countText(r.Step.Least), countText(r.Step.Most), countText(uint64(r.Step.Mean)))
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "UNITS\tSHARE\tTOKENS\tSHARE\tFILL\tEPOCHS\tVIF\tSPLIT\tTRUNCATED\tTOKENS CUT\tDROPPED\t  SOURCE\t")
	for _, s := range r.Sources {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%.2f\t%.2f\t%s\t%s\t%s\t%s\t  %s\t\n", countText(s.Units), percent(s.Share), countText(s.Delivered), percent(s.TokenShare),
			percent(s.Fill), s.Epochs, s.VIF, countText(s.Split), countText(s.Truncated), countText(s.Cut), countText(s.Dropped), s.Name)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	if err := printUnitWorlds(w, r.Worlds); err != nil {
		return err
	}
	printMixAdvice(w, r.Verdict)
	_, err := fmt.Fprintln(w, "VIF: variance inflation of the source's samples in batches, by place in storage, 1 is a uniform permutation;\n"+
		"split, truncated and dropped: samples in an epoch of the source")
	return err
}
