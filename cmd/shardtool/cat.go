package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/reader"
)

type catFlags struct {
	limit  int64
	json   bool
	memory int64
	work   int
}

func newCat() *cobra.Command {
	var f catFlags
	cmd := &cobra.Command{
		Use:   "cat DATASET",
		Short: "Stream all samples as one tar",
		Long: `Stream samples to stdout as a plain tar, in storage order; every byte is checked before it is written. After
an error the archive has no end: what was written until then is right, and tar says that the rest is missing.

Exit codes:
` + exitCodes,
		Example: "  shardtool cat out/ | tar -x -C photos/\n  shardtool cat out/ --json --limit 10",
		Args:    usageArgs(cobra.ExactArgs(1)),
		RunE:    func(cmd *cobra.Command, args []string) error { return runCat(cmd, args[0], &f) },
	}
	cmd.Flags().Int64Var(&f.limit, "limit", 0, "stop after this many samples (0: all)")
	cmd.Flags().BoolVar(&f.json, "json", false, "a JSON object a sample in place of the tar; payloads are read and checked")
	cmd.Flags().IntVar(&f.work, "workers", 0, "decode with this many threads (0: the CPUs this process may use)")
	sizeVar(cmd, &f.memory, "memory", 256<<20, "bytes of blocks in flight")
	return cmd
}

func runCat(cmd *cobra.Command, arg string, f *catFlags) error {
	if f.limit < 0 {
		return usagef("--limit %d: use a number of samples, or 0 for all", f.limit)
	}
	limitMemory(f.memory)
	ctx := cmd.Context()
	ds, err := openDataset(ctx, arg, reader.Options{Memory: f.memory, Workers: f.work})
	if err != nil {
		return err
	}
	defer ds.Close()
	w := bufio.NewWriterSize(cmd.OutOrStdout(), 256<<10)
	if f.json {
		err = catJSON(ctx, w, ds, f.limit)
	} else {
		err = catTar(ctx, w, ds, f.limit)
	}
	// What is whole goes out even when something behind it failed.
	if ferr := w.Flush(); err == nil {
		err = ferr
	}
	return err
}

// orderLine is a sample in an order, as `cat --json` prints it.
type orderLine struct {
	Epoch    uint64 `json:"epoch"`
	Position uint64 `json:"position"`
	Shard    string `json:"shard"`
	Block    int    `json:"block"`
	Number   uint64 `json:"number"`
	Key      string `json:"key"`
}

func catJSON(ctx context.Context, w io.Writer, ds *reader.Dataset, limit int64) error {
	enc := json.NewEncoder(w)
	shard, last := -1, ""
	for s, err := range ds.Samples(ctx, reader.Range{}) {
		if err != nil {
			return err
		}
		at, err := ds.Locate(ctx, s.Number)
		if err != nil {
			return err
		}
		if at.Shard != shard {
			info, err := ds.Shard(ctx, at.Shard)
			if err != nil {
				return err
			}
			shard, last = at.Shard, info.Name
		}
		if err := enc.Encode(orderLine{Position: s.Number, Shard: last, Block: at.Block, Number: s.Number, Key: string(s.Key)}); err != nil {
			return err
		}
		if limit > 0 && int64(s.Number)+1 >= limit {
			return nil
		}
	}
	return nil
}

// catTar writes decoded blocks as they are: together they are the archive.
func catTar(ctx context.Context, w io.Writer, ds *reader.Dataset, limit int64) error {
	for f, err := range ds.Frames(ctx, reader.Range{}, reader.FrameOptions{}) {
		if err != nil {
			return err
		}
		if limit > 0 && f.FirstSample+uint64(f.Samples) > uint64(limit) {
			return catPart(w, f.Decoded, uint64(limit)-f.FirstSample)
		}
		if _, err := w.Write(f.Decoded); err != nil {
			return err
		}
	}
	_, err := w.Write(format.EndOfArchive(true))
	return err
}

// catPart ends the archive with a block's first samples. They begin in its first frame: only the last one of a block can
// reach beyond.
func catPart(w io.Writer, block []byte, samples uint64) error {
	walk := format.Walker{Buf: block, Partial: true}
	var m format.Member
	var last []byte
	for end := int64(0); ; end = m.End() {
		ok, err := walk.Next(&m)
		if err != nil {
			return err
		}
		key, _ := format.SplitName(m.Name)
		if ok && (last == nil || !bytes.Equal(key, last)) {
			if samples == 0 {
				if _, err := w.Write(block[:end]); err != nil {
					return err
				}
				_, err := w.Write(format.EndOfArchive(true))
				return err
			}
			samples--
			last = append(last[:0], key...)
		}
		if !ok {
			return fmt.Errorf("%w: the block has fewer samples than its index says", format.ErrCorrupt)
		}
	}
}
