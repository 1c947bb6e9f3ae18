package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/shardtool/shardtool/cmd/shardtool/internal/simulate"
	"github.com/shardtool/shardtool/internal/order/epochplan"
	"github.com/shardtool/shardtool/internal/order/mix"
	"github.com/shardtool/shardtool/internal/order/uniformity"
	"github.com/shardtool/shardtool/internal/order/units"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/order"
)

func newSimulate() *cobra.Command {
	var f simulateFlags
	cmd := &cobra.Command{
		Use:   "simulate DATASET|MIX.yaml",
		Short: "Walk through an epoch without data: steps, mixing, what nodes read and the store must deliver",
		Long: `Walk through one epoch of the order that the flags describe, without reading samples, and report what a job would
meet: the steps of each rank, how well samples are mixed (by label, or by place in storage), the blocks that every
node reads for a list of world sizes, and whether each sample is delivered exactly once. Only the manifest is read,
and with --label the indexes. With a rate it reports what each node and the store must deliver and how long an epoch
takes.

The mixing figure is the variance inflation (VIF) of the label counts of a batch: 1 is a uniform permutation; 16 mixes
as if a batch had a sixteenth of its samples. Adjacency is how often two consecutive samples have the same label. For
each world size the report has the local VIF, of the part of a batch that one rank gets; how many labels
a rank sees in the epoch, fewest and mean; and how often two consecutive samples of a rank are from the same block.

Of a mix it walks through --steps, by default one epoch, and reports by source: samples, epochs,
whether each epoch has each sample once, and how well the source's part of batches is mixed.

With --pack or --bucket it reports how full sequences are or how much of micro-batches is padding, the tokens of a step,
what becomes of long samples (of a mix all of this by source), and how unevenly a step is divided: by how much the costliest rank exceeds the mean.
The other ranks wait for it.

With --cost it reports how far the costliest rank of a step is above the mean of its ranks: with costs, without them, and
the bound that no division of a step comes below. What ranks and nodes read is then what they read with costs. The
local VIF, and with --pack or --bucket the tokens of a rank, are still those of consecutive parts of a batch.`,
		Example: "  shardtool simulate mix.yaml --shuffle --pack 8192 --long split --global-batch 64 --steps 1000\n" +
			"  shardtool simulate out/ --shuffle --global-batch 1024 --worlds 1,8,64\n  shardtool simulate out/ --shuffle --label class\n" +
			"  shardtool simulate s3://bucket/train --shuffle --worlds 64,256 --samples-per-second 50000\n" +
			"  shardtool simulate mix.yaml --shuffle --global-batch 4096 --steps 1000 --worlds 64\n" +
			"  shardtool simulate text/ --shuffle --pack 8192 --long split --global-batch 64 --worlds 8,64\n" +
			"  shardtool simulate vlm/ --shuffle --global-batch 64 --worlds 8 --cost 'tokens + 0.35 * patches'",
		Args: usageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error { return runSimulate(cmd, args[0], &f) },
	}
	f.order.add(cmd)
	f.order.addCheckpointIn(cmd)
	f.order.mix.add(cmd)
	f.order.addUnits(cmd)
	f.order.layers.add(cmd)
	cmd.Flags().Float64Var(&f.square, "square-cost", squareCost,
		"with --pack or --bucket: b in L + b·L², the cost of a sample of length L: the cost of attention")
	cmd.Flags().StringVar(&f.given, "worlds", "1,2,4,8", "world sizes to list")
	cmd.Flags().StringVar(&f.label, "label", "",
		"attribute to measure mixing by (default: place in storage, in 100 parts)")
	cmd.Flags().Uint64Var(&f.steps, "steps", 0, "for a mix: number of steps (0: one epoch of the mix)")
	titled(cmd, "Simulating")
	f.job.add(cmd)
	cmd.Flags().BoolVar(&f.json, "json", false, "print as JSON")
	return cmd
}

// simulateJSON is what simulate prints of a data set.
type simulateJSON struct {
	*simulate.Report
	Label      string            `json:"label"` // the attribute; empty for places in storage
	Parameters orderJSON         `json:"parameters"`
	Balances   []*reader.Balance `json:"balances,omitempty"`
}

// simulateUnitsJSON is what simulate --pack and --bucket print of a data set.
type simulateUnitsJSON struct {
	*simulate.UnitReport
	Parameters orderJSON         `json:"parameters"`
	Units      units.Params      `json:"unit_parameters"`
	Balances   []*reader.Balance `json:"balances,omitempty"`
}

// simulateMixJSON is what simulate prints of a mix.
type simulateMixJSON struct {
	*simulate.MixReport
	Label    string            `json:"label"`
	Balances []*reader.Balance `json:"balances,omitempty"`
}

// simulateMixUnitsJSON is what simulate --pack and --bucket print of a mix.
type simulateMixUnitsJSON struct {
	*simulate.MixUnitReport
	Balances []*reader.Balance `json:"balances,omitempty"`
}

func runSimulate(cmd *cobra.Command, arg string, f *simulateFlags) error {
	ctx := cmd.Context()
	if err := f.fill(); err != nil {
		return err
	}
	run, err := f.order.openRun(ctx, cmd.ErrOrStderr(), arg)
	if err != nil {
		return err
	}
	defer run.Close()
	switch of := run.Run.Plan().(type) {
	case *mix.Plan:
		return f.walkMix(cmd, run, of.Mix().Epoch)
	case *epochplan.Order:
		return f.walkUnits(cmd, run, of)
	}
	plan, ds := run.Plans[0], run.Sources[0]
	labels, err := readLabels(ctx, ds, f.label)
	if err != nil {
		return err
	}
	of := simulate.Source{Blocks: ds.Info().Blocks, Bytes: ds.Info().Bytes, Labels: labels}
	opt := f.options()
	opt.Ranks = run.ranks()
	r, err := simulate.Epoch(ctx, plan, of, opt)
	if err != nil {
		return err
	}
	if r.Verdict, err = f.verdict(ctx, run, r.Verdict); err != nil {
		return err
	}
	r.Weighted = weighted(ds)
	costs, err := f.balances(ctx, run)
	if err != nil {
		return err
	}
	return present(cmd, f.json, simulateJSON{r, f.label, newOrderJSON(plan.Params()), costs}, func(w io.Writer) {
		f.print(w, r, plan.Params(), ds.Info().Bytes)
		costs.print(w)
	})
}

// options are the options of a walk.
func (f *simulateFlags) options() simulate.Options {
	return simulate.Options{Epoch: f.order.opt.Epoch, GlobalBatch: f.order.opt.GlobalBatch, Worlds: f.worlds,
		Job: f.job.Job, Square: f.square}
}

// verdict returns the worse of the verdict on what was walked, and the verdicts of jobs with this
// order: a job measures the part of a batch that a rank gets, from the middle of an epoch on.
func (f *simulateFlags) verdict(ctx context.Context, run *openedRun, walked uniformity.Verdict) (uniformity.Verdict, error) {
	worst := walked
	if walked.VIF > 0 {
		worst = run.Run.Judge(walked.VIF, walked.Source, run.Plans...)
	}
	for _, size := range f.worlds {
		v, err := run.Run.Mixing(ctx, order.Split{GlobalBatch: f.order.opt.GlobalBatch, World: size})
		if ctx.Err() != nil {
			return worst, err
		}
		if err == nil && v.VIF > worst.VIF {
			worst = v
		}
	}
	return worst, nil
}

// weighted reports whether a data set is read through a view that draws samples several times.
func weighted(ds *reader.Dataset) bool {
	v := ds.Selection().View()
	return v != nil && !v.Subset()
}

// walkUnits reports an epoch of units.
func (f *simulateFlags) walkUnits(cmd *cobra.Command, run *openedRun, u *epochplan.Order) error {
	labels, err := readLabels(cmd.Context(), run.Sources[0], f.label)
	if err != nil {
		return err
	}
	r, err := simulate.Units(cmd.Context(), u, labels.In(u.Order(), f.order.opt.Epoch), f.options())
	if err != nil {
		return err
	}
	v, err := f.verdict(cmd.Context(), run, run.Run.Judge(r.VIF, "", u.Order()))
	if err != nil {
		return err
	}
	costs, err := f.balances(cmd.Context(), run)
	if err != nil {
		return err
	}
	p := u.Units.Params()
	return present(cmd, f.json, simulateUnitsJSON{r, newOrderJSON(u.Order().Params()), p, costs}, func(w io.Writer) {
		printUnits(w, r, u, p, v)
		costs.print(w)
	})
}

// walkMix reports steps of a mix, by default of one epoch.
func (f *simulateFlags) walkMix(cmd *cobra.Command, run *openedRun, epoch uint64) error {
	opt := f.options()
	opt.Steps = cmp.Or(f.steps, (epoch-1)/uint64(opt.GlobalBatch)+1)
	r, u, err := run.walk(cmd.Context(), f.label, opt)
	if err != nil {
		return err
	}
	costs, err := f.balances(cmd.Context(), run)
	if err != nil {
		return err
	}
	if u != nil {
		if u.Verdict, err = f.verdict(cmd.Context(), run, u.Verdict); err != nil {
			return err
		}
		return present(cmd, f.json, simulateMixUnitsJSON{u, costs}, func(w io.Writer) {
			fmt.Fprintf(w, "positions %s to %s: %s in %s batches\n", countText(u.Position), countText(u.End),
				plural(u.Units, "unit"), countText(u.Batches))
			printMixUnits(w, u)
			costs.print(w)
		})
	}
	if r.Verdict, err = f.verdict(cmd.Context(), run, r.Verdict); err != nil {
		return err
	}
	r.Weighted = slices.ContainsFunc(run.Sources, func(ds *reader.Dataset) bool { return ds != nil && weighted(ds) })
	return present(cmd, f.json, simulateMixJSON{r, f.label, costs}, func(w io.Writer) {
		f.printMix(w, r)
		costs.print(w)
	})
}

// ranks returns what decides which rank gets an entry, or nil where ranks get consecutive entries.
func (o *openedRun) ranks() func(refs []order.Ref, b *order.Batch, world int) ([]int32, error) {
	if o.Cost == "" {
		return nil
	}
	return o.Run.Ranks
}

// mostBalanced is about how many samples the balance of costs is measured over.
const mostBalanced = 1 << 20

// balances are how the costs of steps are divided among ranks, for each number of ranks.
type balances []*reader.Balance

// balances measures the balance of the costs that the flags or the mix ask for.
func (f *simulateFlags) balances(ctx context.Context, run *openedRun) (all balances, err error) {
	for _, size := range f.worlds {
		b, err := run.Run.Balance(ctx, f.order.opt.GlobalBatch, size, mostBalanced)
		if err != nil {
			return all, f.order.explain(err)
		}
		if b != nil {
			all = append(all, b)
		}
	}
	return all, nil
}

// walk walks through steps of the mix, and returns a report on samples, or on units where positions
// hold these; the other is nil. label is the attribute to measure mixing by, for samples.
func (o *openedRun) walk(ctx context.Context, label string,
	opt simulate.Options) (r *simulate.MixReport, u *simulate.MixUnitReport, err error) {
	position := o.Run.Begin().Position
	opt.LeftOut = o.LeftOut
	if o.Units.Kind != "" {
		if label != "" {
			return nil, nil, usagef("--label is for samples, not for --pack and --bucket")
		}
		u, err = simulate.MixUnits(ctx, o.mix(), position, opt)
		return nil, u, err
	}
	sources := make([]simulate.Source, len(o.Sources))
	for i, ds := range o.Sources {
		if ds == nil {
			continue
		}
		labels, err := readLabels(ctx, ds, label)
		if err != nil {
			return nil, nil, fmt.Errorf("source %s: %w", o.Names[i], err)
		}
		sources[i] = simulate.Source{Blocks: ds.Info().Blocks, Bytes: ds.Info().Bytes, Labels: labels}
	}
	opt.Ranks = o.ranks()
	r, err = simulate.Mix(ctx, o.mix(), position, o.Plans, sources, opt)
	return r, nil, err
}
