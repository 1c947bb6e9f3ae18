package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sort"
	"strings"

	"github.com/spf13/cobra"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/order"
	"github.com/shardtool/shardtool/reader/order/mixing"
)

func newDoctor() *cobra.Command {
	var f packFlags
	var limit int64
	cmd := &cobra.Command{
		Use:   "doctor SRC…|DATASET",
		Short: "Say what would go wrong, and what to do",
		Long: `Look through sources of any kind before they are packed, or through a data set, for what trips training jobs later:
names that divide into key and field in an unexpected place, duplicate keys, samples torn apart, samples that lack a
field, empty fields, rows that cannot be read, JSON, JPEG and PNG that do not decode, shards too small to stream well.
Flags that choose keys, columns and files mean what they mean to pack. All is read; --limit looks at the first samples.
Of a data set it also says how well the default order mixes it, for batches of 256 on 8 ranks; simulate measures others.
Exits 1 when something was found, 3 when it is corrupt.

Exit codes:
` + exitCodes,
		Example: `  shardtool doctor photos/
  shardtool doctor 'data/*.parquet' --key id --limit 10000
  shardtool doctor 'wds/train-{000000..000099}.tar'
  shardtool doctor out/ --json`,
		Args: usageArgs(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 0 {
				return usagef("--limit %d: give a number of samples, or 0 for all", limit)
			}
			c := newCheckup(limit)
			if err := c.look(cmd, &f, args); err != nil {
				return err
			}
			return c.print(cmd, f.json)
		},
	}
	f.addSources(cmd)
	fl := cmd.Flags()
	fl.Int64Var(&limit, "limit", 0, "look at this many samples (0: all)")
	fl.BoolVar(&f.json, "json", false, "print findings as JSON")
	fl.BoolVar(&f.quiet, "quiet", false, "no progress")
	return cmd
}

// look decides between sources and a data set.
func (c *checkup) look(cmd *cobra.Command, f *packFlags, args []string) error {
	ctx := cmd.Context()
	if len(args) == 1 {
		is, err := hasManifest(ctx, args[0])
		if err != nil {
			return err
		}
		if is {
			return c.dataset(ctx, args[0])
		}
	}
	f.opt.Memory = 256 << 20
	if err := f.sourceOptions(cmd); err != nil {
		return err
	}
	found, err := findSources(cmd, f, args)
	if err == nil {
		err = found.checkTarget(ctx, "")
	}
	if err != nil {
		return err
	}
	c.named = found.kind == &filesKind || found.kind == &tarKind
	stderr := cmd.ErrOrStderr()
	quiet := f.quiet
	f.quiet = true // what was found comes as the result
	src, size, err := found.open(ctx, f, stderr)
	if err != nil {
		return err
	}
	defer src.Close()
	bar := newProgress(stderr, "looking", size, quiet)
	defer bar.end()
	return c.source(ctx, src, args, bar)
}

// hasManifest says whether an argument leads to a manifest, be it one that cannot be read. What does not lead to a store is none.
func hasManifest(ctx context.Context, arg string) (bool, error) {
	if strings.ContainsAny(arg, "*{[") {
		return false, nil
	}
	if info, err := os.Stat(arg); err == nil && !info.IsDir() {
		return false, nil
	}
	store, _, err := dataset(ctx, arg)
	if err != nil {
		return false, err
	}
	_, err = store.Stat(ctx, format.ManifestName)
	return err == nil, nil
}

func (c *checkup) dataset(ctx context.Context, arg string) error {
	ds, err := openDataset(ctx, arg, reader.Options{})
	if err != nil {
		return err
	}
	defer ds.Close()
	if n := ds.NumShards(); n > 1 && ds.Bytes()/uint64(n) < 16<<20 {
		c.found("tiny-shards", "each object costs a request and a listing entry: pack again with a larger --shard-size",
			fmt.Sprintf("%d shards of %s on average", n, bytesText(ds.Bytes()/uint64(n))))
	}
	for s, err := range ds.Samples(ctx, reader.Range{}) {
		if err == nil && c.done() {
			break
		}
		if err != nil {
			c.found("corrupt", "see `shardtool verify --deep`", err.Error())
			break
		}
		var names []string
		for i := range s.Fields {
			names = append(names, string(s.Fields[i].Name))
			c.field(string(s.Key), string(s.Fields[i].Name), s.Fields[i].Data)
		}
		c.sample(string(s.Key), names)
	}
	c.shapesDiffer()
	if c.kinds["corrupt"] != nil {
		return nil
	}
	return c.mix(ctx, ds)
}

// mixJSON is how the default order mixes a data set, by place in storage; see package mixing.
type mixJSON struct {
	Parameters  any     `json:"parameters"`
	GlobalBatch int     `json:"global_batch"`
	World       int     `json:"world_size"`
	Samples     uint64  `json:"samples_measured"`
	VIF         float64 `json:"vif"`
	LocalVIF    float64 `json:"local_vif"`
	Labels      int     `json:"labels"`
	LabelsLeast int     `json:"labels_per_rank_least"`
	LabelsMean  float64 `json:"labels_per_rank_mean"`
	SameBlock   float64 `json:"same_block"`

	params order.Params
}

// mix measures the order that a job gets which asks for nothing but shuffling: up to 16 Mi samples
// of it.
func (c *checkup) mix(ctx context.Context, ds *reader.Dataset) error {
	o := reader.StreamOptions{Order: reader.Order{Shuffle: true, Epochs: 1, GlobalBatch: 256, World: 8}}
	f := orderFlags{opt: o}
	plan, _, err := f.plan(ctx, ds)
	var refused *exitError
	if errors.As(err, &refused) && refused.code == exitUsage { // blocks too large for the memory
		c.found("no-order", "give a larger --shuffle-memory to the commands that shuffle, or pack again with a smaller --block-size", err.Error())
		return nil
	}
	if err != nil {
		return err
	}
	labels, p := mixing.Parts(plan.Samples()), plan.Params()
	m, err := mixing.Measure(plan, labels, o.GlobalBatch, []int{o.World}, mixing.Span{Most: 16 << 20, Stop: ctx.Err})
	if err != nil {
		return err
	}
	w := m.Worlds[0]
	c.mixed = &mixJSON{
		Parameters: paramsJSON(p), GlobalBatch: o.GlobalBatch, World: o.World, Samples: m.Samples, VIF: m.VIF, LocalVIF: w.VIF,
		Labels: labels.Len(), LabelsLeast: w.LabelsLeast, LabelsMean: w.LabelsMean, SameBlock: w.SameBlock, params: p,
	}
	if p.MixesLittle(o.GlobalBatch) && m.VIF > 1.3 { // a data set that the window holds whole mixes all the same
		c.found("mixes-little", "give more --shuffle-memory, or pack again with a smaller --block-size or with --pack-shuffle",
			fmt.Sprintf("with the default memory samples are drawn from %d blocks or runs at a time, fewer than 1.5 times a batch of %d", p.Window(), o.GlobalBatch))
	}
	return nil
}

// String is what doctor prints.
func (m *mixJSON) String() string {
	return fmt.Sprintf("mixing with --shuffle by place in storage, V=%d E=%d W=%d, batches of %d: variance inflation %.2f (1 is a uniform permutation); "+
		"on %d ranks %.2f within a rank, which sees %d or more of %d parts of the data set; %.2f%% of neighbours are from the same block",
		m.params.Lanes, m.params.RunBlocks, m.params.Delay, m.GlobalBatch, m.VIF, m.World, m.LocalVIF, m.LabelsLeast, m.Labels, 100*m.SameBlock)
}

func (c *checkup) print(cmd *cobra.Command, asJSON bool) error {
	list := []*finding{}
	for _, f := range c.kinds {
		list = append(list, f)
	}
	sort.Slice(list, func(i, j int) bool { return list[i].Kind < list[j].Kind })
	w := cmd.OutOrStdout()
	if asJSON {
		result := map[string]any{"samples": c.samples, "findings": list}
		if c.mixed != nil {
			result["mixing"] = c.mixed
		}
		if err := printJSON(cmd, result); err != nil {
			return err
		}
	} else {
		for _, f := range list {
			fmt.Fprintf(w, "%s: %d. %s\n", f.Kind, f.Count, f.Advice)
			for _, e := range f.Examples {
				fmt.Fprintf(w, "    %s\n", shown(e))
			}
		}
		if c.mixed != nil {
			fmt.Fprintln(w, c.mixed)
		}
		verdict := "nothing found"
		if len(list) > 0 {
			verdict = plural(len(list), "kind") + " of trouble"
		}
		if _, err := fmt.Fprintf(w, "looked at %s: %s\n", plural(c.samples, "sample"), verdict); err != nil {
			return err
		}
	}
	if c.kinds["corrupt"] != nil {
		return &exitError{code: exitCorrupt}
	}
	if len(list) > 0 {
		return &exitError{code: exitFailed}
	}
	return nil
}
