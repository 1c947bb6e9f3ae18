package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/internal/format/tarblock"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/order"
)

type catFlags struct {
	cache cacheFlags
	order orderFlags
	stats statsFlags
	tune  tuneFlags
	outputFlags
	out         string
	checkpoints bool
	onError     string
	maxSkipped  limitFlag
}

// bar counts samples.
func (f *catFlags) bar(cmd *cobra.Command, samples int64) *progress {
	return newBar(cmd.ErrOrStderr(), cmd.OutOrStdout(), "cat", samplesOf(samples), f.quiet)
}

func newCat() *cobra.Command {
	var f catFlags
	cmd := &cobra.Command{
		Use:   "cat DATASET|MIX.yaml",
		Short: "Stream samples as one tar",
		Long: `Stream samples to stdout as a plain tar, in the order that the flags define. Every byte is checked before it is
written. After an error the archive has no end mark: the samples before it are correct, and tar reports that the
rest is missing.

With --checkpoint-out FILE, FILE is replaced after each batch has been written. The same command with
--checkpoint-in FILE continues after that batch, also with another --rank, --world-size or --global-batch. After a
kill the batch in flight may be delivered twice. A consumer that must get each sample once reads the stream with
--checkpoints: a member ` + checkpointMember + ` (or a line {"checkpoint":…} with --json) follows every
batch, and the consumer drops the samples after the last checkpoint that it has read. On SIGTERM, SIGINT and SIGUSR1
cat finishes the current batch, saves the checkpoint, and exits with 5.

A file that ends in .yaml, .yml or .json is a mix: several data sets as one stream. Names in the tar then begin with the
source and a slash, because sources may have the same keys; lines of --json have the source, its epoch, and the position
in the mix.

With --pack or --bucket, and --json, each line is a packed sequence or a micro-batch and lists its samples, as for
order. Payloads are read and checked. Units cannot be written as a tar.

With --on-error skip, FILE.skipped lists the blocks that this rank skipped. Each rank finds only the damage in its own
samples, and --max-skipped counts only these, because the processes of several ranks do not communicate. To resume with
the skipped blocks of all ranks, give --checkpoint-in once for each rank's file; all must be of the same step.`,
		Example: `  shardtool cat out/ | tar -x -C photos/
  shardtool cat out/ --shuffle --seed 7 --epochs 0 --world-size 8 --rank 3 --checkpoint-out ckpt.json | train
  shardtool cat out/ --json --limit 10`,
		Args: usageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error { return runCat(cmd, args[0], &f) },
	}
	f.order.add(cmd)
	f.order.addCheckpointIn(cmd)
	f.order.addUnits(cmd)
	f.order.layers.add(cmd)
	f.order.mix.add(cmd)
	f.cache.add(cmd)
	f.stats.add(cmd)
	cmd.Flags().StringVar(&f.out, "checkpoint-out", "", "replace this file by a checkpoint after each batch")
	cmd.Flags().BoolVar(&f.checkpoints, "checkpoints", false, "put the checkpoint into the stream after each batch")
	titled(cmd, "Checkpoints")
	cmd.Flags().StringVar(&f.onError, "on-error", "fail",
		"a damaged block, confirmed by a second read: fail, or skip its samples")
	cmd.Flags().Var(&f.maxSkipped, "max-skipped",
		"most samples that this rank may skip, including the ones listed beside --checkpoint-in: a number or a share (default 0.1%)")
	titled(cmd, "Faults")
	f.order.addReading(cmd, "decode with this many threads (0: the CPUs this process may use)",
		"bytes of blocks held and in flight (with an order: sized by it)")
	f.tune.add(cmd)
	f.outputFlags.add(cmd, "a JSON object a sample in place of the tar; payloads are read and checked")
	return cmd
}

func runCat(cmd *cobra.Command, arg string, f *catFlags) error {
	if !f.json {
		if err := refuseTar(cmd,
			"add `| tar -t` to list the samples or `> FILE` to keep them, or give --json"); err != nil {
			return err
		}
	}
	ctx, c, err := f.cache.open(cmd.Context())
	if err != nil {
		return err
	}
	if c != nil {
		defer c.Close()
		cmd.SetContext(ctx)
	}
	f.order.cache = f.cache.dir
	if err := cmp.Or(f.order.fill(), f.tune.fill(&f.order.opt), f.order.fillReading()); err != nil {
		return err
	}
	switch f.onError {
	case "fail":
	case "skip":
		// at most 0 is: fail
		f.order.opt.Faults.SkipCorrupt = f.maxSkipped.share > 0 || f.maxSkipped.n > 0 ||
			!cmd.Flags().Changed("max-skipped")
		f.order.opt.Faults.MaxSkippedShare = f.maxSkipped.share
		f.order.opt.Faults.MaxSkipped = uint64(f.maxSkipped.n)
	default:
		return usagef("--on-error %q: use fail or skip", f.onError)
	}
	if err := f.stats.fill(&f.order.opt, cmd.ErrOrStderr()); err != nil {
		return err
	}
	if f.order.opt.Units.Kind != "" && !f.json {
		return usagef("--pack and --bucket: a tar has samples, not sequences or micro-batches: give --json")
	}
	run, err := f.order.openRun(ctx, cmd.ErrOrStderr(), arg)
	if err != nil {
		return err
	}
	defer run.Close()
	w := bufio.NewWriterSize(cmd.OutOrStdout(), 256<<10)
	if plan, alone := run.Run.Plan().(*order.Plan); alone && !plan.Viewed() && f.stored() {
		limitMemory(f.order.budget, 0)
		bar := f.bar(cmd, f.order.left(plan.Samples(), 0, 0))
		if f.json {
			err = catJSON(ctx, w, run, f.order.limit, bar)
		} else {
			err = catTar(ctx, w, run.Sources[0], f.order.limit, bar)
		}
		bar.end()
	} else {
		err = catStream(cmd, w, run, f)
	}
	return cmp.Or(err, w.Flush()) // complete samples are written even if a later one failed
}

// stored reports whether the flags ask for all samples in storage order, without checkpoints.
func (f *catFlags) stored() bool {
	return !f.order.orderSaid && !f.order.layers.given() && !f.checkpoints && f.out == "" && f.onError != "skip" &&
		!f.stats.said()
}

func catJSON(ctx context.Context, w io.Writer, run *openedRun, limit int64, bar *progress) error {
	p := newLinePrinter(w, run, limit)
	for s, err := range run.Sources[0].Samples(ctx, reader.Range{}) {
		if err != nil {
			return err
		}
		it, err := p.item(ctx, &order.Ref{Number: s.Number}, string(s.Key))
		if err != nil {
			return err
		}
		if err := p.print(orderLine{Position: s.Number, Stored: it.Stored}); err != nil || p.full {
			return err
		}
		if s.Number%1024 == 0 {
			bar.set(int64(s.Number), "")
		}
	}
	return nil
}

// catTar writes decoded blocks as they are: together they are the archive.
func catTar(ctx context.Context, w io.Writer, ds *reader.Dataset, limit int64, bar *progress) error {
	left := uint64(limit)
	for f, err := range ds.Frames(ctx, reader.Range{}) {
		if err != nil {
			return err
		}
		has := uint64(f.Samples - f.Removed)
		if limit > 0 && has > left {
			info, err := ds.Shard(ctx, f.Shard)
			if err != nil {
				return err
			}
			return catPart(w, tarblock.Walker{Buf: f.Decoded, Partial: true, Foreign: info.Foreign}, left)
		}
		left -= has
		if _, err := w.Write(f.Decoded); err != nil {
			return err
		}
		bar.set(int64(f.FirstSample)+int64(f.Samples), "")
	}
	_, err := w.Write(metadata.EndOfArchive(true))
	return err
}

// catPart ends the archive with a block's first samples. They begin in its first frame: only the
// last one of a block can reach beyond.
func catPart(w io.Writer, walk tarblock.Walker, samples uint64) error {
	block := walk.Buf
	var m tarblock.Member
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
				_, err := w.Write(metadata.EndOfArchive(true))
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
