package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/shardtool/shardtool/cmd/shardtool/internal/inspect"
	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/open"
	"github.com/shardtool/shardtool/reader"
)

func newInspect() *cobra.Command {
	var f inspectFlags
	cmd := &cobra.Command{
		Use:   "inspect DATASET|MIX.yaml",
		Short: "Describe what a data set contains, or what a mix will read",
		Long: `Print the totals, fields, sizes, shards and provenance of a data set. Reads the manifest, and the indexes of a few shards.

Of a mix it prints a dry run: the shares of its sources in samples, tokens and bytes, the epochs of each after --steps,
which weights change or which sources end at which step, and what nodes read. With --checkpoint-in it begins there;
with --change-mix too, it shows a change of the mix before it is made. Only manifests are read. --json has all of it.`,
		Example: "  shardtool inspect out/\n  shardtool inspect out/ --shard train-000003.tar.zst --blocks\n  shardtool inspect out/ --against copy/\n" +
			"  shardtool inspect mix.yaml --shuffle --global-batch 4096 --steps 40000",
		Args: usageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error { return runInspect(cmd, args[0], &f) },
	}
	cmd.Flags().StringVar(&f.shard, "shard", "", "print only this shard")
	cmd.Flags().BoolVar(&f.blocks, "blocks", false, "print a line per block; with --json, the samples of each block")
	cmd.Flags().StringVar(&f.against, "against", "", "compare with this data set; exit with 1 if their samples differ")
	cmd.Flags().StringVar(&f.checkpoint, "checkpoint", "",
		"describe the place of the checkpoint in this file; exit with 7 if it does not fit")
	cmd.Flags().BoolVar(&f.json, "json", false, "print as JSON")
	f.layers.addLayers(cmd)
	titled(cmd, otherFlags)
	f.mixed.add(cmd)
	return cmd
}

// shardJSON is a member of shard_list.
type shardJSON struct {
	Name         string   `json:"name"`
	Samples      uint64   `json:"samples"`
	Blocks       uint64   `json:"blocks"`
	Bytes        uint64   `json:"bytes"`
	BlockSamples []uint32 `json:"block_samples,omitempty"` // with `--blocks`
	Layout       string   `json:"layout,omitempty"`        // `stacked` or absent
	Numbered     bool     `json:"numbered_keys,omitempty"`

	rows []format.Row // with --blocks
}

// inspectJSON is what inspect prints of a data set.
type inspectJSON struct {
	FormatVersion string `json:"format_version"` // that this program writes
	Generation    uint64 `json:"generation"`
	Tables        string `json:"tables"`
	Parent        string `json:"parent,omitempty"` // tables of the generation before
	// For `DATASET#VIEW` those of the view.
	Samples      uint64 `json:"samples"`
	Shards       uint64 `json:"shards"`
	Blocks       uint64 `json:"blocks"`
	Bytes        uint64 `json:"bytes"`
	DecodedBytes uint64 `json:"decoded_bytes"`

	PayloadBytes uint64 `json:"payload_bytes"`
	Digest       string `json:"digest"`
	// Samples removed, and those that have lost their bytes; other figures include them.
	Removed uint64 `json:"removed"`
	Purged  uint64 `json:"purged"`

	Fields     []format.FieldTotal `json:"fields"`
	Attributes []string            `json:"attributes"`
	AttrTotals []attrTotalJSON     `json:"attribute_totals"` // of integers
	Meta       map[string]string   `json:"meta"`             // provenance: tool, source, options
	Views      []viewJSON          `json:"views"`
	View       *viewJSON           `json:"view,omitempty"` // of `DATASET#VIEW`
	ShardList  []shardJSON         `json:"shard_list"`
	Layers     []openLayerJSON     `json:"layers,omitempty"` // of `--layer`
}

// openLayerJSON describes a layer that a data set was opened with. Samples are those of the data
// set, from the first on, that the layer covers.
type openLayerJSON struct {
	Name       string `json:"name"`
	Generation uint64 `json:"generation"`
	Tables     string `json:"tables"`
	Samples    uint64 `json:"samples"`
	Bytes      uint64 `json:"bytes"`
}

func runInspect(cmd *cobra.Command, arg string, f *inspectFlags) error {
	if open.IsMix(arg) {
		return inspectMix(cmd, arg, f)
	}
	if err := f.mixed.refuse(cmd); err != nil {
		return err
	}
	if f.checkpoint != "" {
		return inspectCheckpoint(cmd, arg, f)
	}
	ctx := cmd.Context()
	ds, err := f.layers.open(ctx, arg)
	if err != nil {
		return err
	}
	defer ds.Close()
	if f.against != "" {
		return compare(cmd, ds, f)
	}
	var view *inspect.Part
	if viewOf(ds) != nil {
		if view, err = inspect.View(ctx, ds); err != nil {
			return err
		}
	}
	shards, err := listShards(ctx, ds, f, view)
	if err != nil {
		return err
	}
	if f.json {
		out, err := describe(ctx, ds, shards, view)
		if err != nil {
			return err
		}
		return printJSON(cmd, out)
	}
	w := bufio.NewWriter(cmd.OutOrStdout())
	if f.shard == "" {
		err = printDataset(ctx, w, ds, view)
	}
	if err == nil {
		printShards(w, shards, f)
	}
	return cmp.Or(err, w.Flush())
}

func describeLayers(ds *reader.Dataset) (list []openLayerJSON) {
	for name, l := range ds.Layers() {
		i := l.Info()
		list = append(list, openLayerJSON{Name: name, Generation: i.Generation, Tables: i.Tables,
			Samples: l.NumSamples(), Bytes: i.Bytes})
	}
	return list
}

func describe(ctx context.Context, ds *reader.Dataset, shards []shardJSON,
	view *inspect.Part) (out inspectJSON, err error) {
	in := ds.Info()
	out = inspectJSON{
		FormatVersion: in.Format, Generation: in.Generation, Tables: in.Tables, Parent: in.Parent,
		Samples: ds.NumSamples(), Shards: uint64(ds.NumShards()), Blocks: in.Blocks, Bytes: in.Bytes,
		DecodedBytes: in.DecodedBytes,
		PayloadBytes: payloadBytes(ds), Digest: format.DigestString(ds.Digest()), Removed: uint64(len(in.Removed)),
		Purged: uint64(len(in.Purged)),
		Fields: ds.Fields(), Attributes: []string{}, Meta: in.Meta, View: viewOf(ds), ShardList: shards,
		Layers: describeLayers(ds),
	}
	for _, a := range in.Attributes {
		out.Attributes = append(out.Attributes, a.Name)
	}
	if view != nil {
		out.Samples, out.Shards, out.Blocks, out.Bytes, out.DecodedBytes = view.Samples, view.Shards, view.Blocks,
			view.Stored, view.Decoded
	}
	if out.AttrTotals, err = attrTotals(ctx, ds, view); err == nil {
		if out.Views, err = listViews(ctx, ds); errors.Is(err, objstore.ErrNoList) {
			err = nil
		}
	}
	return out, err
}

// payloadBytes is the length of all fields.
func payloadBytes(ds *reader.Dataset) (n uint64) {
	for _, f := range ds.Fields() {
		n += f.Bytes
	}
	return n
}

// listShards lists all shards, or the one of --shard.
func listShards(ctx context.Context, ds *reader.Dataset, f *inspectFlags, view *inspect.Part) ([]shardJSON, error) {
	list := []shardJSON{}
	for i := range ds.NumShards() {
		s, err := ds.Shard(ctx, i)
		if err != nil {
			return nil, err
		}
		if f.shard != "" && s.Name != f.shard {
			continue
		}
		out := shardJSON{Name: s.Name, Samples: s.Samples, Blocks: s.Blocks, Bytes: s.Size, Numbered: s.Numbered != nil}
		if s.Layout != nil {
			out.Layout = "stacked"
		}
		if view != nil {
			out.Samples = view.ByShard[i]
			if out.Samples == 0 && f.shard == "" {
				continue
			}
		}
		if f.blocks {
			if out.rows, err = ds.Rows(ctx, i); err != nil {
				return nil, err
			}
			for _, r := range out.rows {
				if r.Samples > 0 {
					out.BlockSamples = append(out.BlockSamples, r.Samples)
				}
			}
		}
		list = append(list, out)
	}
	if f.shard != "" && len(list) == 0 {
		return nil, &exitError{exitNotFound, fmt.Errorf("no shard %q in %v: `shardtool inspect` lists them", f.shard,
			ds.Store())}
	}
	return list, nil
}

func printDataset(ctx context.Context, w io.Writer, ds *reader.Dataset, view *inspect.Part) error {
	in := ds.Info()
	ratio := float64(in.DecodedBytes) / float64(max(in.Bytes, 1))
	fmt.Fprintf(w, "%v, generation %d (%s)\n", ds.Store(), in.Generation, in.Tables)
	if view != nil {
		if err := printViews(ctx, w, ds); err != nil {
			return err
		}
		fmt.Fprintf(w, "%s of it in %s, %s, %s stored; of the whole data set, in which the fields below are counted:\n",
			plural(view.Samples, "sample"),
			plural(view.Shards, "shard"), plural(view.Blocks, "block"), bytesText(view.Stored))
	}
	fmt.Fprintf(w, "%s in %s, %s\n", plural(ds.NumSamples(), "sample"), plural(ds.NumShards(), "shard"),
		plural(in.Blocks, "block"))
	fmt.Fprintf(w, "%s of fields, %s stored (tar to shards %.2f : 1)\n", bytesText(payloadBytes(ds)),
		bytesText(in.Bytes), ratio)
	if n := len(in.Removed); n > 0 {
		fmt.Fprintf(w,
			"%s removed, holes in every order; the bytes of %s are purged (the other figures include removed samples)\n",
			plural(n, "sample"), countText(uint64(len(in.Purged))))
	}
	fmt.Fprintf(w, "%s\n", format.DigestString(ds.Digest()))
	for name, l := range ds.Layers() {
		i := l.Info()
		fmt.Fprintf(w, "layer %s, generation %d (%s): over %s, %s stored\n", shown(name), i.Generation, i.Tables,
			plural(l.NumSamples(), "sample"), bytesText(i.Bytes))
	}
	fmt.Fprintln(w)
	sizes, read, err := inspect.Sizes(ctx, ds, 32)
	if err != nil {
		return err
	}
	printTable(w, 0, fmt.Sprintf("FIELD\tSAMPLES\tBYTES\tMIN\tMEAN\tMAX\tSIZES (of %s)", plural(read, "shard")),
		ds.Fields(), func(t io.Writer, f *format.FieldTotal) {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", cmp.Or(shown(f.Name), `""`), countText(f.Samples),
				bytesText(f.Bytes), bytesText(f.Min),
				bytesText(f.Bytes/max(f.Samples, 1)), bytesText(f.Max), sparkline(sizes[f.Name], sizeEdge))
		})
	if err := printAttributes(ctx, w, ds, view); err != nil {
		return err
	}
	if view == nil {
		if err := printViews(ctx, w, ds); err != nil {
			return err
		}
	}
	fmt.Fprintln(w)
	for _, k := range slices.Sorted(maps.Keys(in.Meta)) {
		fmt.Fprintf(w, "%s: %s\n", shown(k), shown(in.Meta[k]))
	}
	fmt.Fprintln(w)
	return nil
}

func printShards(w io.Writer, shards []shardJSON, f *inspectFlags) {
	listed := shards
	if f.shard == "" {
		listed = shards[:min(len(shards), 20)]
	}
	printTable(w, right, "SAMPLES\tBLOCKS\tBYTES\t  SHARD\t", listed, func(t io.Writer, s *shardJSON) {
		fmt.Fprintf(t, "%s\t%s\t%s\t  %s\t\n", countText(s.Samples), countText(s.Blocks), bytesText(s.Bytes),
			shown(s.Name))
		if n := len(shards) - len(listed); n > 0 && s == &listed[len(listed)-1] {
			fmt.Fprintf(t, "\t\t\t  … and %d more (--json lists all)\t\n", n)
		}
	})
	for _, s := range shards {
		if f.blocks {
			printRows(w, s.Name, s.rows)
		}
	}
}

func printRows(w io.Writer, name string, rows []format.Row) {
	block, off := -1, uint64(0)
	printTable(w, right, "\n"+shown(name)+"\nBLOCK\tOFFSET\tSTORED\tDECODED\tSAMPLES\tCODEC\tCRC-32C\t", rows,
		func(t io.Writer, r *format.Row) {
			if r.Samples > 0 {
				block++
			}
			fmt.Fprintf(t, "%d\t%d\t%d\t%d\t%d\t%v\t%08x\t\n", block, off, r.Stored, r.Decoded, r.Samples, r.Codec,
				r.CRC)
			off += uint64(r.Stored)
		})
}

// againstJSON is what inspect --against prints.
type againstJSON struct {
	// The same samples in the same blocks; in the same order.
	Same        bool `json:"same"`
	SameContent bool `json:"same_content"`

	Digest          string `json:"digest"`
	AgainstDigest   string `json:"against_digest"`
	Samples         uint64 `json:"samples"`
	AgainstSamples  uint64 `json:"against_samples"`
	FirstDifference string `json:"first_difference"`
}

// compare prints whether two data sets have the same samples in the same blocks, and the first
// difference.
func compare(cmd *cobra.Command, ds *reader.Dataset, f *inspectFlags) error {
	ctx := cmd.Context()
	if err := open.Whole(f.against); err != nil {
		return err
	}
	other, err := openDataset(ctx, f.against)
	if err != nil {
		return err
	}
	defer other.Close()
	first, err := inspect.Difference(ctx, ds, other)
	if err != nil {
		return err
	}
	same := first == ""
	content := same
	if !same {
		if content, err = inspect.SameContent(ctx, ds, other); err != nil {
			return err
		}
	}
	digest, against := format.DigestString(ds.Digest()), format.DigestString(other.Digest())
	err = present(cmd, f.json, byName{againstJSON{same, content, digest, against, ds.NumSamples(), other.NumSamples(),
		first}}, func(w io.Writer) {
		switch {
		case same:
			fmt.Fprintf(w, "same samples, same blocks: %s\n", digest)
		case content:
			fmt.Fprintf(w, "same samples, stored in another layout or in other blocks, so a checkpoint of one does not fit the other: %s, %s\n", digest, against)
		}
	})
	if err == nil && !content {
		return &exitError{exitFailed, fmt.Errorf("the data sets differ: %d and %d samples; %s", ds.NumSamples(),
			other.NumSamples(), first)}
	}
	return err
}
