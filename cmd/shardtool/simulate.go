package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/order"
	"github.com/shardtool/shardtool/reader/order/mixing"
)

type simulateFlags struct {
	order  orderFlags
	worlds string
	label  string
	json   bool
	needs  needFlags
}

func newSimulate() *cobra.Command {
	var f simulateFlags
	cmd := &cobra.Command{
		Use:   "simulate DATASET",
		Short: "Walk through an epoch without data: steps, mixing, what nodes read and the store must give",
		Long: `Enumerate one epoch of the order that the flags ask for and say what a job would meet: the steps of each rank, how
well samples are mixed (against their label, or their place in storage), the blocks that every node reads for a list
of world sizes, and whether each sample comes exactly once. Only the manifest is read, and with --label the indexes.
With a rate it says what each node and the store must give for it, how long an epoch takes, and with prices its cost.

The mixing figure is the variance inflation (VIF) of the label counts of a batch: 1 is a uniform permutation, 16 mixes as
if a batch had a sixteenth of its samples. Adjacency is how often two samples in a row have the same label. For each
world size: the local VIF, that of the part of a batch that a rank gets; how many labels a rank sees in the epoch, the
one that sees fewest and the mean; and how often two samples in a row of a rank are from the same block.

Exit codes:
` + exitCodes,
		Example: "  shardtool simulate out/ --shuffle --global-batch 1024 --worlds 1,8,64\n  shardtool simulate out/ --shuffle --label class\n" +
			"  shardtool simulate s3://bucket/train --shuffle --worlds 64,256 --samples-per-second 50000 --price 30",
		Args: usageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.order.fill(); err != nil {
				return err
			}
			if err := f.needs.fill(); err != nil {
				return err
			}
			return runSimulate(cmd, args[0], &f)
		},
	}
	f.order.add(cmd)
	f.order.addCheckpointIn(cmd)
	cmd.Flags().StringVar(&f.worlds, "worlds", "1,2,4,8", "world sizes to list")
	cmd.Flags().StringVar(&f.label, "label", "", "a label attribute to measure the mixing of (default: place in storage, in 100 parts)")
	cmd.Flags().BoolVar(&f.json, "json", false, "print as JSON")
	f.needs.add(cmd)
	return cmd
}

// simulation is what an epoch's enumeration counts.
type simulation struct {
	Epoch      uint64      `json:"epoch"`
	Samples    uint64      `json:"samples"`
	Batches    uint64      `json:"batches"`
	ExactlyOne bool        `json:"exactly_once"`
	Repeated   uint64      `json:"repeated"`
	Missing    uint64      `json:"missing"`
	Padding    uint64      `json:"padding"`
	Label      string      `json:"label"`
	Labels     int         `json:"labels"`
	VIF        float64     `json:"vif"`
	VIFHead    []float64   `json:"vif_first_batches"`
	Adjacent   float64     `json:"adjacency"`
	Expected   float64     `json:"adjacency_expected"`
	Parameters any         `json:"parameters"`
	Worlds     []worldJSON `json:"worlds"`
	// Window is V·W; MixesLittle that it is below 1.5 times the global batch.
	Window      uint64 `json:"window"`
	MixesLittle bool   `json:"mixes_little"`

	batch int    // samples of a global batch
	bytes uint64 // stored, of the data set
	seen  []uint64
}

// worldJSON is what one world size means.
type worldJSON struct {
	World int    `json:"world_size"`
	Steps uint64 `json:"steps"`
	// Least and Most are samples of a rank; Blocks are those that the rank with most of them reads.
	Least         uint64  `json:"samples_least"`
	Most          uint64  `json:"samples_most"`
	Blocks        uint64  `json:"blocks_per_rank"`
	Amplification float64 `json:"read_amplification"`
	Needs         needs   `json:"needs"`
	// What ranks see, see mixing.World.
	LocalVIF    float64 `json:"local_vif"`
	LabelsLeast int     `json:"labels_per_rank_least"`
	LabelsMean  float64 `json:"labels_per_rank_mean"`
	SameBlock   float64 `json:"same_block"`
	Measured    int     `json:"ranks_measured"`

	samples []uint64
	blocks  [][]uint64 // a bit a block, for each rank
}

func runSimulate(cmd *cobra.Command, arg string, f *simulateFlags) error {
	ctx := cmd.Context()
	worlds, err := parseWorlds(f.worlds)
	if err != nil {
		return err
	}
	if !f.order.changed("world-size") && !f.order.fromEnv { // it decides the lanes of storage order
		f.order.opt.World = slices.Max(worlds)
	}
	ds, err := f.order.open(ctx, arg, reader.Options{})
	if err != nil {
		return err
	}
	defer ds.Close()
	plan, _, err := f.order.plan(ctx, ds)
	if err != nil {
		return err
	}
	labels, err := readLabels(ctx, ds, f.label)
	if err != nil {
		return err
	}
	sim, err := enumerate(ctx, plan, f.order.opt.Epoch, f.order.opt.GlobalBatch, ds.NumBlocks(), labels, worlds)
	if err != nil {
		return err
	}
	sim.Label, sim.Parameters = f.label, paramsJSON(plan.Params())
	sim.Window, sim.MixesLittle = plan.Params().Window(), plan.Params().MixesLittle(sim.batch)
	sim.plan(ds, plan.Params(), &f.needs)
	if f.json {
		return printJSON(cmd, sim)
	}
	if err := sim.print(cmd.OutOrStdout(), plan); err != nil {
		return err
	}
	return sim.printPlan(cmd.OutOrStdout(), plan.Params(), &f.needs)
}

func parseWorlds(text string) (worlds []int, err error) {
	for part := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(part))
		if err != nil || n < 1 || n > 1<<16 {
			return nil, usagef("--worlds %q: write world sizes such as 1,8,64", text)
		}
		worlds = append(worlds, n)
	}
	return worlds, nil
}

// readLabels reads a label attribute from all indexes, or divides storage into 100 parts.
func readLabels(ctx context.Context, ds *reader.Dataset, name string) (*mixing.Labels, error) {
	if name == "" {
		return mixing.Parts(ds.NumSamples()), nil
	}
	numbers := map[string]uint16{}
	of := make([]uint16, 0, ds.NumSamples())
	for i := range ds.NumShards() {
		ix, err := ds.Index(ctx, i)
		if err != nil {
			return nil, err
		}
		col := -1
		for c := range ix.Attrs {
			if ix.Attrs[c].Name == name {
				col = c
			}
		}
		if col < 0 {
			return nil, &exitError{exitNotFound, fmt.Errorf("shard %d has no attribute %q: `shardtool inspect` lists them", i, name)}
		}
		for s := range len(ix.Keys) {
			v, _ := ix.Attrs[col].At(s)
			text := fmt.Sprint(attrText(v))
			id, ok := numbers[text]
			if !ok {
				if len(numbers) == 1<<16-1 {
					return nil, usagef("--label %s: more than %d values; use one with fewer", name, 1<<16-1)
				}
				id = uint16(len(numbers))
				numbers[text] = id
			}
			of = append(of, id)
		}
	}
	return mixing.NewLabels(of), nil
}

// enumerate goes once through an epoch.
func enumerate(ctx context.Context, plan *order.Plan, epoch uint64, batch int, blocks uint64, labels *mixing.Labels, worlds []int) (*simulation, error) {
	n := plan.Samples()
	sim := &simulation{Epoch: epoch, Samples: n, Labels: labels.Len(), batch: batch, seen: make([]uint64, (n+63)/64)}
	for _, w := range worlds {
		out := worldJSON{World: w, samples: make([]uint64, w), blocks: make([][]uint64, w)}
		for r := range out.blocks {
			out.blocks[r] = make([]uint64, (blocks+63)/64)
		}
		sim.Worlds = append(sim.Worlds, out)
	}
	cur, err := plan.Seek(epoch, 0)
	if err != nil {
		return nil, err
	}
	cur.Until(epoch + 1)
	meter := mixing.NewMeter(labels, worlds...)
	var refs []order.Ref
	for {
		var b order.Batch
		refs, b, err = cur.NextBatch(refs[:0], order.Split{GlobalBatch: batch, World: 1})
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return nil, err
		}
		own := refs
		if left := n - b.Position; uint64(len(own)) > left { // the rest belongs to the next epoch, or is padding
			own = own[:left]
		}
		sim.add(own, refs, b.Global)
		for i := range sim.Worlds {
			if sim.Batches == 1 {
				sim.Worlds[i].firstBatch()
			}
			if b.Position <= n/2 && n/2 < b.Position+uint64(len(own)) {
				sim.Worlds[i].resumeBatch(refs, b.Global)
			}
		}
		meter.Batch(refs, len(own))
	}
	for _, w := range sim.seen {
		sim.Missing += uint64(64 - bits.OnesCount64(w))
	}
	sim.Missing -= uint64(len(sim.seen))*64 - n
	sim.ExactlyOne = sim.Missing == 0 && sim.Repeated == 0
	sim.mixed(meter.Figures())
	for i := range sim.Worlds {
		sim.Worlds[i].finish(sim.Batches, blocks)
	}
	return sim, nil
}

// mixed takes the figures of mixing.
func (s *simulation) mixed(f mixing.Figures) {
	s.VIF, s.Adjacent, s.Expected = f.VIF, f.Adjacent, f.Expected
	s.VIFHead = append([]float64{}, f.First...) // an empty list rather than null in JSON
	for i, of := range f.Worlds {
		w := &s.Worlds[i]
		w.LocalVIF, w.LabelsLeast, w.LabelsMean, w.SameBlock, w.Measured = of.VIF, of.LabelsLeast, of.LabelsMean, of.SameBlock, of.Ranks
	}
}

// add counts one global batch: own are the samples of the epoch, refs those and what fills it.
func (s *simulation) add(own, refs []order.Ref, global int) {
	s.Batches++
	for i := range refs {
		r := &refs[i]
		if r.Padding {
			s.Padding++
		}
		if i < len(own) && !r.Padding {
			if s.seen[r.Number/64]>>(r.Number%64)&1 != 0 {
				s.Repeated++
			}
			s.seen[r.Number/64] |= 1 << (r.Number % 64)
		}
		for w := range s.Worlds {
			world := &s.Worlds[w]
			// Rank r takes entries floor(rG/R) <= i < floor((r+1)G/R).
			rank := ((i+1)*world.World - 1) / global
			world.samples[rank]++
			if !r.Padding {
				world.blocks[rank][r.Block/64] |= 1 << (r.Block % 64)
			}
		}
	}
}

func (w *worldJSON) finish(steps, blocks uint64) {
	w.Steps, w.Least = steps, ^uint64(0)
	read := uint64(0)
	for r, n := range w.samples {
		w.Least, w.Most = min(w.Least, n), max(w.Most, n)
		of := uint64(0)
		for _, word := range w.blocks[r] {
			of += uint64(bits.OnesCount64(word))
		}
		read += of
		w.Blocks = max(w.Blocks, of)
	}
	w.Amplification = float64(read) / float64(max(blocks, 1))
}

func (s *simulation) print(w io.Writer, plan *order.Plan) error {
	fmt.Fprintf(w, "%s\n", paramsText(plan.Params()))
	proof := "each sample comes exactly once (every one was looked at)"
	if !s.ExactlyOne {
		proof = fmt.Sprintf("%d samples do not come, %d come again", s.Missing, s.Repeated)
	}
	fmt.Fprintf(w, "epoch %d: %s samples in %s batches; %s\n", s.Epoch, countText(s.Samples), countText(s.Batches), proof)
	if s.Padding > 0 {
		fmt.Fprintf(w, "%d samples of padding\n", s.Padding)
	}
	what := "place in storage"
	if s.Label != "" {
		what = s.Label
	}
	fmt.Fprintf(w, "mixing by %s, %d labels: variance inflation %.2f after the first ten batches (1 is a uniform permutation), which have", what, s.Labels, s.VIF)
	for _, v := range s.VIFHead {
		fmt.Fprintf(w, " %.2f", v)
	}
	fmt.Fprintf(w, "\nneighbours with the same label: %.2f%% (a uniform permutation has %.2f%%)\n", 100*s.Adjacent, 100*s.Expected)
	if advice := mixAdvice(plan.Params(), s.batch); advice != "" {
		fmt.Fprintln(w, advice)
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "RANKS\tSTEPS\tSAMPLES A RANK\tBLOCKS A RANK\tREAD AMPLIFICATION\tLOCAL VIF\tLABELS A RANK\tSAME BLOCK\t")
	for _, o := range s.Worlds {
		samples := countText(o.Most)
		if o.Least != o.Most {
			samples = countText(o.Least) + "–" + samples
		}
		fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%.2f\t%.2f\t%d–%.1f\t%.2f%%\t\n", o.World, countText(o.Steps), samples, countText(o.Blocks), o.Amplification,
			o.LocalVIF, o.LabelsLeast, o.LabelsMean, 100*o.SameBlock)
	}
	return t.Flush()
}
