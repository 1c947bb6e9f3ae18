package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/order"
)

func newOrder() *cobra.Command {
	var f orderFlags
	cmd := &cobra.Command{
		Use:   "order DATASET|MIX.yaml",
		Short: "Print the order of the samples, without reading them",
		Long: `Print the samples of one rank in the order in which they are delivered, one JSON object per line. Only the manifest is read, and
with --keys the shards' indexes. Removed samples have no line: their positions are missing.

A file that ends in .yaml, .yml or .json is a mix: several data sets as one stream. Its lines have the source and the epoch
of the source; their position counts over all epochs of the mix.

With --pack, samples are packed into sequences, and with --bucket they form micro-batches of samples of similar length. Their
lengths are an integer attribute of the index. Each line is then a sequence or a micro-batch, and lists its samples, each with
the offset and the length of the piece that it contributes. The epoch is planned first, at several million samples a
second for each core, and the plan is stored for the next time. In a mix each source has its own units, and weights and epochs count units.`,
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
			err = f.printOrder(cmd.Context(), w, cmd.ErrOrStderr(), args[0], keys)
			return cmp.Or(err, w.Flush())
		},
	}
	f.add(cmd)
	f.addCheckpointIn(cmd)
	f.layers.add(cmd)
	f.addUnits(cmd)
	cmd.Flags().Lookup("keys").NoOptDefVal = bareKeys
	cmd.Flags().Lookup("keys").Usage = "also print keys; with a `FILE`, take the samples whose keys are in it, one in each line"
	cmd.Flags().Uint64Var(&f.step, "step", 0, "print this step alone, counted from 0 in batches of the same size")
	titled(cmd, "Order")
	f.mix.add(cmd)
	return cmd
}

// printOrder prints the order of a data set or a mix, or one step of it.
func (f *orderFlags) printOrder(ctx context.Context, w, stderr io.Writer, arg string, keys bool) error {
	if f.changed("step") {
		f.anyEpoch()
	}
	run, err := f.openRun(ctx, stderr, arg)
	if err != nil {
		return err
	}
	defer run.Close()
	at, err := f.stepPlace(ctx, run)
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err != nil {
		return err
	}
	cursor, err := run.Run.Seek(ctx, at, order.Split{GlobalBatch: f.opt.GlobalBatch, Rank: f.opt.Rank,
		World: f.opt.World})
	if err != nil {
		return f.explain(err)
	}
	p := orderPrinter{newLinePrinter(w, run, f.limit), keys}
	var refs []order.Ref
	for {
		var b order.Batch
		if refs, b, err = cursor.Next(refs[:0]); errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if f.changed("step") && b.Position != at.Position {
			return nil // the step is left out
		}
		for i := 0; i < len(refs) && !p.full; {
			if i, err = p.entry(ctx, refs, &b, i); err != nil {
				return err
			}
		}
		if p.full || f.changed("step") {
			return nil
		}
	}
}

// orderPrinter prints the entries of batches.
type orderPrinter struct {
	linePrinter
	keys bool
}

// entry prints the entry that begins with reference i, and returns the number of the reference
// after the entry. It does not print a removed sample.
func (p *orderPrinter) entry(ctx context.Context, refs []order.Ref, b *order.Batch, i int) (next int, err error) {
	r := &refs[i]
	at := reader.Place{Epoch: b.Epoch, Position: b.Position}
	if b.Cuts == nil {
		if p.gone(r) {
			return i + 1, nil
		}
		it, err := p.item(ctx, r)
		if err != nil {
			return i, err
		}
		at.Position += uint64(b.Entry(i))
		return i + 1, p.sample(ctx, at, r, it)
	}
	l, unit := p.begin(), b.Cuts[i].Unit
	for ; i < len(refs) && b.Cuts[i].Unit == unit; i++ {
		if p.gone(&refs[i]) {
			continue
		}
		it, err := p.item(ctx, &refs[i])
		if err != nil {
			return i, err
		}
		l.add(it, &b.Cuts[i])
	}
	at.Position += uint64(b.Entry(int(unit)))
	return i, p.end(ctx, at, r)
}

// gone reports whether a sample was removed.
func (p *orderPrinter) gone(r *order.Ref) bool {
	return p.run.Sources[r.Source].Removed(r.Number)
}

// item returns where a sample is, and if they are printed its key.
func (p *orderPrinter) item(ctx context.Context, r *order.Ref) (it itemLine, err error) {
	if it, err = p.linePrinter.item(ctx, r, ""); err != nil || !p.keys {
		return it, err
	}
	it.Key, err = p.places[r.Source].key(ctx, p.run.Sources[r.Source], r.Number)
	it.KeyBytes = keyBytes(it.Key)
	return it, err
}
