package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/shardtool/shardtool/cmd/shardtool/internal/simulate"
	"github.com/shardtool/shardtool/internal/mixing"
	"github.com/shardtool/shardtool/reader/order"
)

// print writes the report for people. size is the stored bytes of the data set.
func (f *simulateFlags) print(w io.Writer, r *simulate.Report, p order.Params, size uint64) error {
	f.printMixing(w, r, p)
	if err := printWorlds(w, r.Worlds); err != nil {
		return err
	}
	readings := make([]simulate.Reading, len(r.Worlds))
	for i := range r.Worlds {
		readings[i] = r.Worlds[i].Reading
	}
	if err := f.job.print(w, readings); err != nil {
		return err
	}
	for i := range r.Worlds {
		n := &r.Worlds[i].Needs
		if uint64(n.Nodes) > uint64(p.Lanes) {
			fmt.Fprintf(w, "%d nodes share %d lanes: with a cache in each node they still read %.1f times what the data set holds, %s more than once; "+
				"more --shuffle-memory gives more lanes, up to %d, and --lanes any number\n", n.Nodes, p.Lanes, n.Amplification,
				bytesText(uint64(max(n.Amplification-1, 0)*float64(size))), order.DefaultLanes)
		}
	}
	_, err := fmt.Fprintln(w, "read and requests: an epoch without a cache; cache: the size that lets a node read each block once, with --affinity run in every epoch;\n"+
		"first batch, after a resume: what a rank must read before it can begin; one S3 prefix serves about 5,500 requests/s")
	return err
}

func (f *simulateFlags) printMixing(w io.Writer, r *simulate.Report, p order.Params) {
	fmt.Fprintf(w, "%s\n", paramsText(p))
	proof := "each sample is delivered exactly once (all were checked)"
	if !r.ExactlyOnce {
		proof = fmt.Sprintf("%d samples are not delivered, %d are repeated", r.Missing, r.Repeated)
	}
	fmt.Fprintf(w, "epoch %d: %s samples in %s batches; %s\n", r.Epoch, countText(r.Samples), countText(r.Batches), proof)
	if r.Padding > 0 {
		fmt.Fprintf(w, "%d samples of padding\n", r.Padding)
	}
	by := "place in storage"
	if f.label != "" {
		by = f.label
	}
	fmt.Fprintf(w, "mixing by %s, %d labels: variance inflation %.2f after the first ten batches (1 is a uniform permutation), which have", by, r.Labels, r.VIF)
	for _, v := range r.First {
		fmt.Fprintf(w, " %.2f", v)
	}
	fmt.Fprintf(w, "\nneighbours with the same label: %.2f%% (a uniform permutation has %.2f%%)\n", 100*r.Adjacency, 100*r.Expected)
	printMixAdvice(w, r.Verdict)
	fmt.Fprintln(w)
}

// printMixAdvice prints a warning if the order mixes little.
func printMixAdvice(w io.Writer, v mixing.Verdict) {
	if v.Little() {
		fmt.Fprintln(w, mixAdvice(v))
	}
}

// printWorlds prints what ranks get.
func printWorlds(w io.Writer, worlds []simulate.World) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "RANKS\tSTEPS\tSAMPLES A RANK\tBLOCKS A RANK\tREAD AMPLIFICATION\tLOCAL VIF\tLABELS A RANK\tSAME BLOCK\t")
	for _, o := range worlds {
		samples := countText(o.Most)
		if o.Least != o.Most {
			samples = countText(o.Least) + "–" + samples
		}
		fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%.2f\t%.2f\t%d–%.1f\t%.2f%%\t\n", o.Size, countText(o.Steps), samples, countText(o.Blocks), o.Amplification,
			o.LocalVIF, o.LabelsLeast, o.LabelsMean, 100*o.SameBlock)
	}
	return t.Flush()
}

// print prints what nodes and the store must deliver.
func (f *jobFlags) print(w io.Writer, worlds []simulate.Reading) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "\nRANKS\tNODES\tREAD A NODE\tREQUESTS\tCACHE A NODE\tFIRST BATCH\tAFTER A RESUME\t")
	if f.SamplesPerSecond > 0 {
		fmt.Fprint(t, "A NODE\tTHE STORE\tREQUESTS/S\tAN EPOCH\t")
	}
	priced := f.NodePrice > 0 || f.RequestPrice > 0
	if priced {
		fmt.Fprint(t, "COST\t")
	}
	fmt.Fprintln(t)
	for i := range worlds {
		n := &worlds[i].Needs
		fmt.Fprintf(t, "%d\t%d\t%s\t%s\t%s\t%s\t%s\t", worlds[i].Size, n.Nodes, bytesText(n.ReadBytes), countText(n.Requests),
			bytesText(n.CacheBytes), bytesText(n.First), bytesText(n.Resume))
		if f.SamplesPerSecond > 0 {
			fmt.Fprintf(t, "%.3g MB/s\t%.3g MB/s\t%.3g\t%s\t", n.NodeRate/1e6, n.StoreRate/1e6, n.RequestRate, hoursText(n.Hours))
		}
		if priced {
			fmt.Fprintf(t, "%.2f\t", n.Cost)
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
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
