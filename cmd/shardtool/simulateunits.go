package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/shardtool/shardtool/cmd/shardtool/internal/simulate"
	"github.com/shardtool/shardtool/internal/mixing"
	"github.com/shardtool/shardtool/internal/unitplan"
	"github.com/shardtool/shardtool/internal/units"
	"github.com/shardtool/shardtool/reader"
)

// simulateUnits reports an epoch of units.
func simulateUnits(cmd *cobra.Command, ds *reader.Dataset, u *unitplan.Order, f *simulateFlags, worlds []int) error {
	labels, err := readLabels(cmd.Context(), ds, f.label)
	if err != nil {
		return err
	}
	report, err := simulate.Units(cmd.Context(), u, simulate.UnitOptions{
		Epoch: f.order.opt.Epoch, GlobalBatch: f.order.opt.GlobalBatch, Worlds: worlds, Square: f.square, Labels: labels.In(u.Order(), f.order.opt.Epoch),
	})
	if err != nil {
		return err
	}
	p := u.Units.Params()
	if f.json {
		return printJSON(cmd, struct {
			*simulate.UnitReport
			Parameters any          `json:"parameters"`
			Units      units.Params `json:"unit_parameters"`
		}{report, paramsJSON(u.Order().Params()), p})
	}
	return printUnitReport(cmd.OutOrStdout(), report, u, p)
}

func printUnitReport(w io.Writer, r *simulate.UnitReport, u *unitplan.Order, p units.Params) error {
	what := "sequence"
	if p.Kind == units.Bucket {
		what = "micro-batch"
	}
	fmt.Fprintf(w, "%s\n%s of %d by %s, windows of %d samples\n", paramsText(u.Order().Params()), p.Kind, p.Size, shown(p.By), p.Window)
	fmt.Fprintf(w, "epoch %d: %s samples, longest %s, in %s units (%s), %s batches\n", r.Epoch, countText(r.Samples), countText(uint64(r.Longest)), countText(r.Units), what, countText(r.Batches))
	fmt.Fprintf(w, "fill %.2f%%, padding %.2f%%\n", 100*r.Fill, 100*r.Padding)
	fmt.Fprintf(w, "long samples: %s split, %s truncated by %s tokens, %s dropped with %s tokens\n",
		countText(r.Split), countText(r.Truncated), countText(r.Cut), countText(r.Dropped), countText(r.Left))
	fmt.Fprintf(w, "tokens of a step: %s to %s, mean %s\n\n", countText(r.Step.Least), countText(r.Step.Most), countText(uint64(r.Step.Mean)))
	fmt.Fprintf(w, "mixing of the samples in a batch: variance inflation %.2f (1 is a uniform permutation)\n", r.VIF)
	if u.Order().Params().Shuffle {
		printMixAdvice(w, mixing.Judge(r.VIF, "", u.Order()))
	}
	return printUnitWorlds(w, r.Worlds)
}

func printUnitWorlds(w io.Writer, worlds []simulate.UnitWorld) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "RANKS\tTOKENS OF A RANK\tMEAN\tCOSTLIEST RANK\t")
	for _, x := range worlds {
		fmt.Fprintf(t, "%d\t%s to %s\t%s\t+%.1f%%\t\n", x.Size, countText(x.Rank.Least), countText(x.Rank.Most), countText(uint64(x.Rank.Mean)), 100*x.Spread)
	}
	return t.Flush()
}
