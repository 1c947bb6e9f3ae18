package main

import (
	"fmt"
	"io"

	"github.com/shardtool/shardtool/cmd/shardtool/internal/simulate"
	"github.com/shardtool/shardtool/internal/order/epochplan"
	"github.com/shardtool/shardtool/internal/order/uniformity"
	"github.com/shardtool/shardtool/internal/order/units"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/order"
)

// print writes the report for people. size is the stored bytes of the data set.
func (f *simulateFlags) print(w io.Writer, r *simulate.Report, p order.Params, size uint64) {
	f.printMixing(w, r, p)
	printTable(w, right, ranksHead+"LOCAL VIF\tLABELS A RANK\tSAME BLOCK\t", r.Worlds,
		func(t io.Writer, o *simulate.World) {
			fmt.Fprintf(t, "%s%.2f\t%d–%.1f\t%.2f%%\t\n", ranksText(&o.Reading), o.LocalVIF, o.LabelsLeast,
				o.LabelsMean,
				100*o.SameBlock)
		})
	readings := make([]simulate.Reading, len(r.Worlds))
	for i := range r.Worlds {
		readings[i] = r.Worlds[i].Reading
	}
	f.job.print(w, readings)
	for i := range r.Worlds {
		n := &r.Worlds[i].Needs
		if uint64(n.Nodes) > uint64(p.Lanes) {
			fmt.Fprintf(w,
				"%d nodes share %d lanes: with a cache in each node they still read %.1f times what the data set holds, %s more than once; "+
					"more --shuffle-memory gives more lanes, up to %d, and --lanes any number\n", n.Nodes, p.Lanes,
				n.Amplification,
				bytesText(uint64(max(n.Amplification-1, 0)*float64(size))), order.DefaultLanes)
		}
	}
	fmt.Fprintln(w,
		"read and requests: an epoch without a cache; cache: the size that lets a node read each block once, with --affinity run in every epoch;\n"+
			"first batch, after a resume: what a rank must read before it can begin; one S3 prefix serves about 5,500 requests/s")
}

func (f *simulateFlags) printMixing(w io.Writer, r *simulate.Report, p order.Params) {
	fmt.Fprintf(w, "%s\n", paramsText(p))
	proof := "each sample is delivered exactly once (all were checked)"
	if r.Weighted {
		proof = "each sample is delivered as often as the view draws it (all were checked)"
	}
	if !r.ExactlyOnce {
		proof = fmt.Sprintf("%d samples are not delivered, %d are repeated", r.Missing, r.Repeated)
	}
	fmt.Fprintf(w, "epoch %d: %s samples in %s batches; %s\n", r.Epoch, countText(r.Samples), countText(r.Batches),
		proof)
	printPadding(w, r.Padding)
	by := "place in storage"
	if f.label != "" {
		by = f.label
	}
	fmt.Fprintf(w, "mixing by %s, %d labels: variance inflation %.2f after the first ten batches (1 is a uniform permutation), which have", by, r.Labels, r.VIF)
	for _, v := range r.First {
		fmt.Fprintf(w, " %.2f", v)
	}
	if r.Pooled > 0 {
		fmt.Fprintf(w, "\n%d batches together, as steps see that accumulate gradients: variance inflation %.2f",
			uniformity.Accumulated, r.Pooled)
	}
	fmt.Fprintf(w, "\nneighbours with the same label: %.2f%% (a uniform permutation has %.2f%%)\n", 100*r.Adjacency,
		100*r.Expected)
	printMixAdvice(w, r.Verdict)
	fmt.Fprintln(w)
}

// printMixAdvice prints a warning if the order mixes little.
func printMixAdvice(w io.Writer, v uniformity.Verdict) {
	if v.Little() {
		fmt.Fprintln(w, mixAdvice(v))
	}
}

// print prints the balance of costs, if there are costs.
func (all balances) print(w io.Writer) {
	if len(all) == 0 {
		return
	}
	fmt.Fprintf(w, "\ncost %s\n", all[0].Cost)
	printTable(w, right, "RANKS\tIN GROUPS OF\tSTEPS\tCOSTLIEST RANK\tWITHOUT COSTS\tBOUND\t", all,
		func(t io.Writer, b **reader.Balance) {
			fmt.Fprintf(t, "%d\t%d\t%s\t%s\t\n", (*b).World, (*b).Group, countText((*b).Steps), divisionText(&(*b).Division))
		})
	if all[0].MicroBatches != nil {
		printTable(w, right, "RANKS\tMICRO-BATCHES OF EACH\tCOSTLIEST OF ALL\tWITHOUT COSTS\tBOUND\t", all,
			func(t io.Writer, b **reader.Balance) {
				m := (*b).MicroBatches
				fmt.Fprintf(t, "%d\t%d\t%s\t\n", (*b).World, m.Count, divisionText(&m.Division))
			})
	}
	fmt.Fprintln(w,
		"times the mean of a step: mean of the steps, and the largest; no division of a step comes below the bound")
}

func divisionText(d *reader.Division) string {
	return spreadText(d.With) + "\t" + spreadText(d.Without) + "\t" + spreadText(d.Bound)
}

func spreadText(s reader.Spread) string { return fmt.Sprintf("%.3f (%.3f)", s.Mean, s.Most) }

// ranksHead is the head of ranksText.
const ranksHead = "RANKS\tSTEPS\tSAMPLES A RANK\tBLOCKS A RANK\tREAD AMPLIFICATION\t"

// ranksText is what the ranks of a world size get, as cells of a table.
func ranksText(o *simulate.Reading) string {
	samples := countText(o.Most)
	if o.Least != o.Most {
		samples = countText(o.Least) + "–" + samples
	}
	return fmt.Sprintf("%d\t%s\t%s\t%s\t%.2f\t", o.Size, countText(o.Steps), samples, countText(o.Blocks),
		o.Amplification)
}

// print prints what nodes and the store must deliver.
func (f *jobFlags) print(w io.Writer, worlds []simulate.Reading) {
	head := "\nRANKS\tNODES\tREAD A NODE\tREQUESTS\tCACHE A NODE\tFIRST BATCH\tAFTER A RESUME\t"
	if f.SamplesPerSecond > 0 {
		head += "A NODE\tTHE STORE\tREQUESTS/S\tAN EPOCH\t"
	}
	printTable(w, right, head, worlds, func(t io.Writer, o *simulate.Reading) {
		n := &o.Needs
		fmt.Fprintf(t, "%d\t%d\t%s\t%s\t%s\t%s\t%s\t", o.Size, n.Nodes, bytesText(n.ReadBytes), countText(n.Requests),
			bytesText(n.CacheBytes), bytesText(n.First), bytesText(n.Resume))
		if f.SamplesPerSecond > 0 {
			fmt.Fprintf(t, "%.3g MB/s\t%.3g MB/s\t%.3g\t%s\t", n.NodeRate/1e6, n.StoreRate/1e6, n.RequestRate,
				hoursText(n.Hours))
		}
		fmt.Fprintln(t)
	})
}

// printMix prints steps of a mix.
func (f *simulateFlags) printMix(w io.Writer, r *simulate.MixReport) {
	proof := "no epoch of a source has a sample twice, or lacks one (all were checked)"
	if r.Weighted {
		proof = "no epoch of a source has a sample more often than its view draws it, or lacks one (all were checked)"
	}
	if !r.ExactlyOnce {
		proof = "some epochs of sources have samples twice, or lack some: see below"
	}
	fmt.Fprintf(w, "positions %s to %s: %s samples in %s batches; %s\n", countText(r.Position), countText(r.End),
		countText(r.Samples), countText(r.Batches), proof)
	printPadding(w, r.Padding)
	printTable(w, right, "\nSAMPLES\tSHARE\tEPOCHS\tREPEATED\tMISSING\tLABELS\tVIF\tNEIGHBOURS\tREAD\t  SOURCE\t",
		r.Sources, func(t io.Writer, s *simulate.SourceReport) {
			fmt.Fprintf(t, "%s\t%s\t%.2f\t%d\t%d\t%d\t%.2f\t%.2f%%\t%s\t  %s\t\n", countText(s.Samples),
				percent(s.Share),
				s.Epochs, s.Repeated, s.Missing, s.Labels, s.VIF,
				100*s.Adjacency, bytesText(s.ReadBytes), s.Name)
		})
	printTable(w, right, "\n"+ranksHead, r.Worlds,
		func(t io.Writer, o *simulate.Reading) { fmt.Fprintln(t, ranksText(o)) })
	f.job.print(w, r.Worlds)
	printMixAdvice(w, r.Verdict)
	fmt.Fprintln(w,
		"VIF: variance inflation of the label counts in the source's part of batches, 1 is a uniform permutation; read: all ranks of the first world size;\n"+
			"read and requests: these steps without a cache, blocks again in every epoch of their source; cache: the size that lets a node read each block once")
}

func printPadding(w io.Writer, samples uint64) {
	if samples > 0 {
		fmt.Fprintf(w, "%d samples of padding\n", samples)
	}
}

// printUnits prints an epoch of units.
func printUnits(w io.Writer, r *simulate.UnitReport, u *epochplan.Order, p units.Params, v uniformity.Verdict) {
	what := "sequence"
	if p.Kind == units.Bucket {
		what = "micro-batch"
	}
	fmt.Fprintf(w, "%s\n%s of %d by %s, windows of %d samples\n", paramsText(u.Order().Params()), p.Kind, p.Size,
		shown(p.By), p.Window)
	fmt.Fprintf(w, "epoch %d: %s samples, longest %s, in %s units (%s), %s batches\n", r.Epoch, countText(r.Samples),
		countText(uint64(r.Longest)), countText(r.Units), what, countText(r.Batches))
	printFill(w, &r.UnitSteps)
	fmt.Fprintf(w, "long samples: %s split, %s truncated by %s tokens, %s dropped with %s tokens\n",
		countText(r.Split), countText(r.Truncated), countText(r.Cut), countText(r.Dropped), countText(r.Left))
	printStepTokens(w, &r.UnitSteps)
	fmt.Fprintf(w, "mixing of the samples in a batch: variance inflation %.2f (1 is a uniform permutation)\n", r.VIF)
	if u.Order().Params().Shuffle {
		printMixAdvice(w, v)
	}
	printUnitWorlds(w, "", r.Worlds)
}

// printMixUnits prints what steps of a mix of units have by source and by number of ranks.
func printMixUnits(w io.Writer, r *simulate.MixUnitReport) {
	printFill(w, &r.UnitSteps)
	printStepTokens(w, &r.UnitSteps)
	printTable(w, right, "UNITS\tSHARE\tTOKENS\tSHARE\tFILL\tEPOCHS\tVIF\tSPLIT\tTRUNCATED\tTOKENS CUT\tDROPPED\t  SOURCE\t", r.Sources, func(t io.Writer, s *simulate.UnitSourceReport) {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%.2f\t%.2f\t%s\t%s\t%s\t%s\t  %s\t\n", countText(s.Units), percent(s.Share),
			countText(s.Delivered), percent(s.TokenShare),
			percent(s.Fill), s.Epochs, s.VIF, countText(s.Split), countText(s.Truncated), countText(s.Cut),
			countText(s.Dropped), s.Name)
	})
	printUnitWorlds(w, "\n", r.Worlds)
	printMixAdvice(w, r.Verdict)
	fmt.Fprintln(w,
		"VIF: variance inflation of the source's samples in batches, by place in storage, 1 is a uniform permutation;\n"+
			"split, truncated and dropped: samples in an epoch of the source")
}

func printFill(w io.Writer, r *simulate.UnitSteps) {
	fmt.Fprintf(w, "fill %.2f%%, padding %.2f%%\n", 100*r.Fill, 100*r.Padding)
}

func printStepTokens(w io.Writer, r *simulate.UnitSteps) {
	fmt.Fprintf(w, "tokens of a step: %s to %s, mean %s\n\n", countText(r.Step.Least), countText(r.Step.Most),
		countText(uint64(r.Step.Mean)))
}

func printUnitWorlds(w io.Writer, before string, worlds []simulate.UnitWorld) {
	printTable(w, right, before+"RANKS\tTOKENS OF A RANK\tMEAN\tCOSTLIEST RANK\t", worlds,
		func(t io.Writer, x *simulate.UnitWorld) {
			fmt.Fprintf(t, "%d\t%s to %s\t%s\t+%.1f%%\t\n", x.Size, countText(x.Rank.Least), countText(x.Rank.Most),
				countText(uint64(x.Rank.Mean)), 100*x.Spread)
		})
}

func hoursText(h float64) string {
	switch {
	case h < 1.0/60:
		return fmt.Sprintf("%.1f s", h*3600)
	case h < 1:
		return fmt.Sprintf("%.1f min", h*60)
	}
	return fmt.Sprintf("%.1f h", h)
}
