package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/shardtool/shardtool/format/sections"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/explain"
	"github.com/shardtool/shardtool/reader/order"
)

func newOrder() *cobra.Command {
	var f orderFlags
	var mixed mixFlags
	cmd := &cobra.Command{
		Use:   "order DATASET|MIX.yaml",
		Short: "Print the order of the samples, without reading them",
		Long: `Print the samples of one rank in the order in which they are delivered, one JSON object per line. Only the manifest is read, and
with --keys the shards' indexes. Removed samples have no line: their positions are missing.

A file that ends in .yaml, .yml or .json is a mix: several data sets as one stream. Its lines have the source; their epoch is that
of the source, and their position counts over all epochs of the mix.

With --pack, samples are packed into sequences, and with --bucket they form micro-batches of samples of similar length. Their
lengths are an integer attribute of the index. Each line is then a sequence or a micro-batch, and lists its samples, each with
the offset and the length of the piece that it contributes. The epoch is planned first, at several million samples a
second for each core, and the plan is stored for the next time. In a mix each source has its own units, and weights and epochs count units.

Exit codes:
` + exitCodes,
		Example: "  shardtool order out/ --shuffle --seed 7 --world-size 8 --rank 3 --limit 20\n" +
			"  shardtool order mix.yaml --shuffle --seed 7 --global-batch 4096 --world-size 8 --rank 3 --step 40000\n" +
			"  shardtool order text/ --shuffle --pack 8192 --by tokens --long split --limit 5 --keys\n" +
			"  shardtool order speech/ --shuffle --bucket 60000 --by frames --long drop",
		Args: usageArgs(cobra.RangeArgs(1, 2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			keys, err := f.view.orderKeys(&args)
			if err != nil {
				return err
			}
			if err := f.fill(); err != nil {
				return err
			}
			w := bufio.NewWriterSize(cmd.OutOrStdout(), 64<<10)
			if isMix(args[0]) {
				err := f.orderMix(cmd.Context(), w, cmd.ErrOrStderr(), args[0], &mixed, keys)
				return cmp.Or(err, w.Flush())
			}
			if err := mixed.refuse(cmd); err != nil {
				return err
			}
			ds, err := f.open(cmd.Context(), args[0], reader.Options{})
			if err != nil {
				return err
			}
			defer ds.Close()
			if f.inUnits() {
				err = printUnits(cmd, w, ds, &f, keys, mixed.step)
			} else if f.changed("step") {
				step, serr := f.stepOfDataset(cmd.Context(), ds, mixed.step, f.oneRank(keys))
				err = printStepLines(w, step, f.limit, serr)
			} else {
				err = printOrder(cmd.Context(), w, ds, &f, keys)
			}
			if ferr := w.Flush(); err == nil {
				err = ferr
			}
			return err
		},
	}
	f.add(cmd)
	f.addCheckpointIn(cmd)
	f.addUnits(cmd)
	cmd.Flags().Lookup("keys").NoOptDefVal = bareKeys
	cmd.Flags().Lookup("keys").Usage = "also print keys; with a `FILE`, take the samples whose keys are in it, one in each line"
	cmd.Flags().Uint64Var(&mixed.step, "step", 0, "print this step alone, counted from 0 in batches of the same size")
	mixed.add(cmd)
	return cmd
}

// oneRank are the options of a step that is printed as order prints it. The limit counts lines,
// which removed samples have none of.
func (f *orderFlags) oneRank(keys bool) explain.Options {
	o := f.explainOptions(keys)
	o.OneRank, o.Limit = true, 0
	return o
}

// printStepLines prints the samples of a step, a JSON object a line. A step after the end, or one
// that is left out, has none.
func printStepLines(w io.Writer, step *explain.Step, limit int64, err error) error {
	switch {
	case errors.Is(err, explain.ErrEnd):
		return nil
	case err != nil:
		return err
	case step.LeftOut:
		return nil
	}
	enc := json.NewEncoder(w)
	for i := range step.Samples {
		s := &step.Samples[i]
		if s.Removed {
			continue
		}
		line := orderLine{Source: s.Source, Epoch: s.Epoch, Position: s.Position, Shard: s.Shard, Block: s.Block, Number: s.Number, Key: s.Key, KeyBytes: s.KeyBytes, Padding: s.Padding}
		if err := enc.Encode(line); err != nil {
			return err
		}
		if limit > 0 {
			if limit--; limit == 0 {
				return nil
			}
		}
	}
	return nil
}

func printOrder(ctx context.Context, w io.Writer, ds *reader.Dataset, f *orderFlags, keys bool) error {
	plan, cur, err := f.plan(ctx, ds)
	if err != nil {
		return err
	}
	split := order.Split{GlobalBatch: f.opt.GlobalBatch, Rank: f.opt.Rank, World: f.opt.World}
	if err := plan.CheckSplit(split); err != nil {
		return usage(err)
	}
	if n := ds.NumSamples(); f.opt.Epochs == 0 && n > 0 && uint64(len(ds.Info().Removed)) == n {
		return usagef("--epochs 0: all samples were removed, and an order without an end would look for one for ever")
	}
	enc := json.NewEncoder(w)
	var refs []order.Ref
	var place placer
	indexes := keyReader{ds: ds, at: -1}
	left := f.limit
	for {
		var b order.Batch
		if refs, b, err = cur.NextBatch(refs[:0], split); errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		for i := range refs {
			r := &refs[i]
			if !r.Padding && ds.Removed(r.Number) {
				continue
			}
			shard, block, err := place.find(ctx, ds, r.Number)
			if err != nil {
				return err
			}
			epoch, position := placeInOrder(b.Epoch, b.Position+uint64(b.First+i), plan.Samples(), r.Padding)
			line := orderLine{Epoch: epoch, Position: position, Shard: shard, Block: block, Number: r.Number, Padding: r.Padding}
			if keys && !r.Padding {
				if line.Key, err = indexes.key(ctx, place.shard, r.Number); err != nil {
					return err
				}
				line.KeyBytes = keyBytes(line.Key)
			}
			if err := enc.Encode(line); err != nil {
				return err
			}
			if left > 0 {
				if left--; left == 0 {
					return nil
				}
			}
		}
	}
}

// plan makes the order that the flags ask for, and a cursor at its beginning.
func (f *orderFlags) plan(ctx context.Context, ds *reader.Dataset) (*order.Plan, *order.Cursor, error) {
	table, err := ds.OrderTable(ctx)
	if err != nil {
		return nil, nil, err
	}
	o := &f.opt
	epoch, position := o.Epoch, uint64(0)
	var params order.Params
	if cp := o.Checkpoint; cp != nil {
		params, epoch, position = cp.Params, cp.Epoch, cp.Position
	} else if params, err = order.Choose(table, o.Choice()); err != nil {
		return nil, nil, usage(err)
	}
	plan, err := order.New([]order.Source{{Table: table, Digest: ds.Info().OrderDigest}}, params)
	if err != nil {
		return nil, nil, usage(err)
	}
	if o.Checkpoint != nil {
		if err := o.Checkpoint.Fits(plan); err != nil {
			return nil, nil, f.explain(err)
		}
	}
	cur, err := plan.Seek(epoch, position)
	if err != nil {
		return nil, nil, usage(err)
	}
	if o.Epochs > 0 {
		cur.Until(o.End())
	}
	return plan, cur, nil
}

// keyReader reads keys from the indexes of shards.
type keyReader struct {
	ds    *reader.Dataset
	at    int
	index *sections.ShardIndex
	first uint64
}

func (k *keyReader) key(ctx context.Context, shard int, number uint64) (string, error) {
	if k.at != shard {
		ix, err := k.ds.Index(ctx, shard)
		if err != nil {
			return "", err
		}
		first, err := k.ds.FirstSample(ctx, shard)
		if err != nil {
			return "", err
		}
		k.at, k.index, k.first = shard, ix, first
	}
	return k.index.Keys.At(int(number - k.first)), nil
}
