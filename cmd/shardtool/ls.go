package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/internal/input/globs"
	"github.com/shardtool/shardtool/reader"
)

func newLs() *cobra.Command {
	var long, asJSON bool
	cmd := &cobra.Command{
		Use:   "ls DATASET [GLOB…]",
		Short: "List keys in storage order",
		Long: `List the keys of a data set or a view in storage order, one per line. With GLOBs such as 'dog/*', list only keys that match
at least one of them. Removed samples are not listed.
Only the indexes of the shards are read, no samples. If keys may contain line breaks or tabs, parse --json instead.
Control characters are escaped on a terminal; files and pipes get keys unchanged.`,
		Example: "  shardtool ls out/ | head\n  shardtool ls out/ --long\n  shardtool ls out/ 'dog/*'",
		Args:    usageArgs(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runLs(cmd, args[0], args[1:], long, asJSON)
		},
	}
	cmd.Flags().BoolVar(&long, "long", false, "also print number, shard, block, fields with their sizes, attributes")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON object per line, with all that --long prints")
	return cmd
}

type lsLine struct {
	Number     uint64            `json:"number"`
	Shard      string            `json:"shard"`
	Block      int               `json:"block"`
	Key        string            `json:"key"`
	KeyBytes   []byte            `json:"key_base64,omitempty"`
	Fields     map[string]uint64 `json:"fields"`               // bytes of each
	Attributes map[string]any    `json:"attributes,omitempty"` // a string or a number
}

func runLs(cmd *cobra.Command, arg string, patterns []string, long, asJSON bool) error {
	if err := checkPatterns("", patterns); err != nil {
		return err
	}
	ds, err := openDataset(cmd.Context(), arg)
	if err != nil {
		return err
	}
	defer ds.Close()
	w := bufio.NewWriterSize(cmd.OutOrStdout(), 64<<10)
	show := func(key string) string { return key } // exact, for programs
	if isTerminal(cmd.OutOrStdout()) {
		show = shown[string] // a line break in a key must not look like another key
	}
	listed := 0
	takes := func(number uint64, key string) bool { // a removed sample has no key
		if key == "" || !ds.Selection().Has(number) || !(globs.Choice{Include: patterns}).Takes(key) {
			return false
		}
		listed++
		return true
	}
	err = listShardKeys(cmd.Context(), w, ds, takes, long, asJSON, show)
	if err == nil && listed == 0 && len(patterns) > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "no key matches %s: globs are of whole keys, as in %s\n", strings.Join(patterns, " "),
			strings.TrimRight(patterns[0], "*")+"*")
	}
	return cmp.Or(err, w.Flush()) // what was read is printed even if a later shard fails
}

func listShardKeys(ctx context.Context, w *bufio.Writer, ds *reader.Dataset, takes func(number uint64, key string) bool,
	long, asJSON bool, show func(string) string) error {
	number, shard := uint64(0), 0
	for ix, err := range ds.Indexes(ctx) {
		if err != nil {
			return err
		}
		if long || asJSON {
			s, err := ds.Shard(ctx, shard)
			if err != nil {
				return err
			}
			if err := listLong(w, s.Name, ix, number, takes, asJSON, show); err != nil {
				return err
			}
		} else {
			for i, k := range ix.Keys.All() {
				if !takes(number+uint64(i), k) {
					continue
				}
				if _, err := fmt.Fprintln(w, show(k)); err != nil {
					return err
				}
			}
		}
		number, shard = number+uint64(ix.Keys.Len()), shard+1
	}
	return nil
}

// listLong prints the samples of one shard, of which the first has the number first.
func listLong(w *bufio.Writer, shard string, ix *metadata.ShardIndex, first uint64,
	takes func(number uint64, key string) bool, asJSON bool, show func(string) string) error {
	enc := json.NewEncoder(w)
	at := ix.Cursors([]int{0})[0]
	var sizes []format.FieldSize
	block, left, row := -1, 0, 0
	for i, key := range ix.Keys.All() {
		for left == 0 {
			if left = int(ix.Rows[row].Samples); left > 0 {
				block++
			}
			row++
		}
		left--
		sizes = at.Fields(sizes[:0])
		if !takes(first+uint64(i), key) {
			continue
		}
		line := lsLine{Number: first + uint64(i), Shard: shard, Block: block, Key: key, KeyBytes: keyBytes(key),
			Fields: map[string]uint64{}, Attributes: map[string]any{}}
		var fields strings.Builder
		for _, f := range sizes {
			line.Fields[f.Name] = uint64(f.Size)
			fmt.Fprintf(&fields, " %s=%d", f.Name, f.Size)
		}
		for a := range ix.Attrs {
			v, ok := ix.Attrs[a].At(i)
			if !ok {
				continue
			}
			line.Attributes[v.Name] = metadata.Value(v)
			fmt.Fprintf(&fields, " %s:%v", v.Name, metadata.Value(v))
		}
		var err error
		if asJSON {
			err = enc.Encode(line)
		} else {
			_, err = fmt.Fprintf(w, "%d\t%s\t%d\t%s\t%s\n", line.Number, show(shard), block, show(key),
				show(strings.TrimPrefix(fields.String(), " ")))
		}
		if err != nil {
			return err
		}
	}
	return nil
}
