package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"time"

	"github.com/spf13/cobra"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/internal/format/tarblock"
	"github.com/shardtool/shardtool/internal/order/ledger"
	"github.com/shardtool/shardtool/internal/order/uniformity"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/order"
)

// checkpointMember is the name of the member that carries a checkpoint in a tar stream. Loaders
// pass over names that begin and end with two underscores.
const checkpointMember = "__shardtool__/checkpoint.json"

// saveWithin is how long a signal waits for the batch in hand to be taken by whoever reads stdout.
const saveWithin = 8 * time.Second

// catStream writes the batches of a run in its order. It returns an *exitError if samples were left
// out.
func catStream(cmd *cobra.Command, w *bufio.Writer, run *openedRun, f *catFlags) error {
	ctx := cmd.Context()
	quiet := context.WithoutCancel(ctx) // a signal lets the batch in hand end
	in, err := f.order.stream(ctx, run)
	if err != nil {
		return err
	}
	defer in.Stream.Close()
	s := in.Stream
	stop, err := f.stats.watch(ctx, cmd.ErrOrStderr(), s, f.order.opt.Rank)
	if err != nil {
		return err
	}
	defer stop()
	info := s.Info()
	for _, advice := range []string{
		seedAdvice(f.order.changed, f.order.opt.Rank, f.order.in != "", "--shuffle", "--shuffle=false"),
		costAdvice(&f.order.opt, &info, "--cost-group %d"),
		fetchAdvice(&f.order.opt, s, "give the ranks of a host one folder with --cache; `shardtool stage` fills it before a job"),
	} {
		if advice != "" {
			fmt.Fprintln(cmd.ErrOrStderr(), "shardtool: "+advice)
		}
	}
	s.WarnMixing(ctx, func(v uniformity.Verdict) { fmt.Fprintln(cmd.ErrOrStderr(), "shardtool: "+mixAdvice(v)) })
	if f.order.in != "" && f.order.ended(in.epoch) {
		fmt.Fprintf(cmd.ErrOrStderr(), "shardtool: %s stands in epoch %d: no epoch is left, see --epochs\n", f.order.in,
			in.epoch)
	}
	limitMemory(s.Info().Memory, 0)
	out := &batchWriter{linePrinter: newLinePrinter(w, run, f.order.limit), w: w, json: f.json, saved: -1}
	defer context.AfterFunc(ctx, func() {
		time.AfterFunc(saveWithin, func() {
			fmt.Fprintln(cmd.ErrOrStderr(),
				"shardtool: nobody reads the output; stopped after the last batch that was read")
			exit(exitStopped)
		})
	})()
	out.bar = f.bar(cmd, f.order.left(in.samples, in.epoch, in.position))
	err = out.run(ctx, quiet, s, f)
	if out.inside && f.out != "" {
		has := "was not written"
		if out.done > 0 {
			has = "has the end of the batch before"
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "shardtool: --limit %d ends inside a batch: %s %s\n", f.order.limit,
			shown(f.out), has)
	}
	out.bar.end()
	if errors.Is(err, ledger.ErrFull) {
		err = fmt.Errorf("%w (--max-skipped allows more)", err)
	}
	if err == nil && !f.json && !out.cut {
		_, err = w.Write(metadata.EndOfArchive(true))
	}
	if err == nil {
		err = w.Flush()
	}
	if n := s.Stats().Skipped; err == nil && n > 0 {
		for _, b := range s.Skipped() {
			fmt.Fprintf(cmd.ErrOrStderr(), "skipped: %s block %d, samples %d to %d: %s\n", path.Join(b.Source, b.Shard),
				b.Block, b.First, b.First+b.Samples-1, b.Reason)
		}
		err = &exitError{exitSkipped, fmt.Errorf("%s in %s were left out", plural(n, "sample"),
			plural(len(s.Skipped()), "damaged block"))}
	}
	return err
}

// batchWriter writes samples to a stream.
type batchWriter struct {
	linePrinter
	w    *bufio.Writer
	json bool
	cut  bool // stopped in the middle: no end of archive
	// inside reports that the limit ended inside a batch, which no checkpoint can say.
	inside bool
	buf    []byte
	bar    *progress
	done   int64 // samples written
	saved  int   // blocks in the ledger beside the checkpoint file; -1: unknown
}

func (o *batchWriter) run(ctx, quiet context.Context, s *reader.Stream, f *catFlags) error {
	for {
		if stopped(ctx) {
			o.cut = true
			return context.Cause(ctx)
		}
		b, err := s.Next(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			o.cut = true
			return err
		}
		if b.Units > 0 && !f.json {
			return usagef("%s has sequences or micro-batches, and a tar has samples: give --json", f.order.in)
		}
		whole, err := o.batch(quiet, b)
		if err != nil || !whole {
			o.inside = err == nil
			return err
		}
		o.done += int64(entries(b))
		o.bar.set(o.done, "")
		if err := o.save(s, b, f); err != nil || o.full {
			return err
		}
	}
}

// save writes a checkpoint of the end of a batch, to the stream or to a file.
func (o *batchWriter) save(s *reader.Stream, b *reader.Batch, f *catFlags) error {
	if !f.checkpoints && f.out == "" {
		return nil
	}
	cp, err := b.Checkpoint()
	if err != nil {
		return err
	}
	text, err := cp.Append(nil)
	if err != nil {
		return err
	}
	if f.checkpoints {
		if err := o.checkpoint(text); err != nil {
			return err
		}
	}
	if f.out == "" {
		return nil
	}
	if err := o.w.Flush(); err != nil { // the file must not count samples that were not written
		return err
	}
	// Write the ledger first. One that is ahead of its checkpoint only names blocks that the next run
	// finds again.
	if skipped := s.Skipped(); len(skipped) != o.saved {
		if err := writeLedger(f.out, skipped); err != nil {
			return err
		}
		o.saved = len(skipped)
	}
	return replaceFile(f.out, text)
}

// batch writes the samples or units of a batch. whole is false when the limit cut it.
func (o *batchWriter) batch(ctx context.Context, b *reader.Batch) (whole bool, err error) {
	next := 0 // the first sample of the next unit
	for i := range entries(b) {
		switch {
		case o.full:
			return false, nil
		case b.Units > 0:
			next, err = o.writeUnit(ctx, b, uint32(i), next)
		case o.json:
			err = o.line(ctx, b, i)
		default:
			o.count()
			err = o.members(&b.Samples[i])
		}
		if err != nil {
			return false, err
		}
	}
	return true, nil
}

// entries is the number of units of a batch, or of its samples where it has no units.
func entries(b *reader.Batch) int {
	if b.Units > 0 {
		return b.Units
	}
	return len(b.Samples)
}

// members writes a sample to a tar.
func (o *batchWriter) members(s *reader.Sample) error {
	key := string(s.Key)
	if source := s.Source(); source != "" {
		key = source + "/" + key // sources may have the same keys
	}
	for _, f := range s.Fields {
		o.buf = tarblock.AppendHeader(o.buf[:0], format.JoinName(key, string(f.Name)), int64(len(f.Data)))
		if err := o.member(o.buf, f.Data); err != nil {
			return err
		}
	}
	return nil
}

var zeros [512]byte

func (o *batchWriter) member(header, payload []byte) error {
	if _, err := o.w.Write(header); err != nil {
		return err
	}
	if _, err := o.w.Write(payload); err != nil {
		return err
	}
	_, err := o.w.Write(zeros[:-len(payload)&511])
	return err
}

func (o *batchWriter) line(ctx context.Context, b *reader.Batch, i int) error {
	r := refOf(&b.Samples[i])
	it, err := o.item(ctx, &r, string(b.Samples[i].Key))
	if err != nil {
		return err
	}
	return o.sample(ctx, reader.Place{Epoch: b.Epoch, Position: b.Position + uint64(b.Entry(b.Place(i)))}, &r, it)
}

func refOf(s *reader.Sample) order.Ref {
	return order.Ref{Source: uint16(s.SourceNumber()), Epoch: s.Epoch, Number: s.Number, Padding: s.Padding}
}

// checkpoint puts a checkpoint into the stream.
func (o *batchWriter) checkpoint(text []byte) error {
	if o.json {
		_, err := fmt.Fprintf(o.w, "{\"checkpoint\":%s}\n", text)
		return err
	}
	return o.member(tarblock.AppendHeader(nil, checkpointMember, int64(len(text))), text)
}

// writeUnit writes the line of a unit whose first sample is i, and returns the first sample of the
// next unit.
func (o *batchWriter) writeUnit(ctx context.Context, b *reader.Batch, unit uint32, i int) (next int, err error) {
	l := o.begin()
	of, epoch := b.UnitSource(unit)
	is := order.Ref{Source: uint16(of), Epoch: uint32(epoch)}
	for ; i < len(b.Samples) && b.Cut(i).Unit == unit; i++ {
		r, cut := refOf(&b.Samples[i]), b.Cut(i)
		it, err := o.item(ctx, &r, string(b.Samples[i].Key))
		if err != nil {
			return i, err
		}
		is.Padding = r.Padding
		l.add(it, &cut)
	}
	return i, o.end(ctx, reader.Place{Epoch: b.Epoch, Position: b.Position + uint64(b.Entry(int(unit)))}, &is)
}
