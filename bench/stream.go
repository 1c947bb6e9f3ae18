package main

import (
	"cmp"
	"fmt"
	"runtime"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/shardtool/shardtool/bench/table"
	"github.com/shardtool/shardtool/reader"
)

// streams reads some epochs, or o.Epochs, on several ranks of one process, each with its own share
// of the workers. What they read goes to b.twice.
func (b *bench) streams(dir string, ranks, workers int, o reader.StreamOptions) func() error {
	return func() error {
		ds, err := b.open(dir, reader.Options{Workers: workers})
		if err != nil {
			return err
		}
		defer ds.Close()
		o := o
		o.World, o.Epochs, o.Tuning.Workers = ranks, cmp.Or(o.Epochs, epochs), workers
		return b.drain(o, o.Epochs*ds.NumSamples(), o.Epochs*ds.Info().Blocks,
			func(o reader.StreamOptions) (*reader.Stream, error) { return ds.Stream(b.ctx, o) })
	}
}

// drain reads the streams of all ranks to their end, side by side. Together they must deliver
// the given number of samples; b.twice compares the blocks that they read with the given number.
func (b *bench) drain(o reader.StreamOptions, samples, blocks uint64,
	open func(reader.StreamOptions) (*reader.Stream, error)) error {
	var g errgroup.Group
	var seen, read atomic.Uint64
	for rank := range o.World {
		g.Go(func() error {
			o := o
			o.Rank = rank
			s, err := open(o)
			if err != nil {
				return err
			}
			defer s.Close()
			for batch, err := range s.Batches(b.ctx) {
				if err != nil {
					return err
				}
				seen.Add(uint64(len(batch.Samples)))
			}
			read.Add(s.Stats().Blocks)
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	b.twice = float64(read.Load())/float64(blocks) - 1
	if n := seen.Load(); n != samples {
		return fmt.Errorf("%d samples of %d came", n, samples)
	}
	return nil
}

// epochs is the number of epochs streamed for a figure. A stream takes its memory from the system
// in the first one, as in any long run. These rows do not measure that cost; the group start does.
const epochs = 4

// repeat runs the floor as often as a stream has epochs.
func repeat(f func() error) func() error {
	return func() error {
		for range epochs {
			if err := f(); err != nil {
				return err
			}
		}
		return nil
	}
}

// shuffled is the order that the figures are for: a memory that a training host has, and the
// default lanes.
var shuffled = reader.StreamOptions{Shuffle: true, Seed: 1, GlobalBatch: 256, Tail: "short",
	Order: reader.OrderOptions{ShuffleMemory: 128 << 20}}

// stream measures shuffled streaming against decoding alone.
func (b *bench) stream() error {
	text, err := b.dataset("large text", false)
	if err != nil {
		return err
	}
	ds, err := b.open(text, reader.Options{})
	if err != nil {
		return err
	}
	defer ds.Close()
	all, decoded, err := b.frames(ds, text)
	if err != nil {
		return err
	}
	least, err := b.preadDecode(text, ds, nil, 2, 64<<20)
	if err != nil {
		return err
	}
	rates := func(n int64, our, base table.Sample) string {
		return fmt.Sprintf("%s against %s", mbs(n, our.Median()), mbs(n, base.Median()))
	}
	r, our, base, err := b.ratio(b.streams(text, 2, 1, shuffled), repeat(decodeAll(all, 2)))
	if err != nil {
		return err
	}
	b.AtLeast("stream", "text 3 KB, shuffled, verified, 2 ranks in a process / DecodeAll, 2 goroutines", r, "x", 0.93,
		fmt.Sprintf("%s; %.1f %% of blocks are read twice an epoch, where a lane ends in them",
			rates(epochs*decoded, our, base), 100*b.twice))
	if r, our, base, err = b.ratio(b.streams(text, 2, 1, shuffled), repeat(least)); err != nil {
		return err
	}
	b.Info("stream", "the same / pread, CRC-32C and DecodeAll to 64 MiB in turn", r, "x",
		rates(epochs*decoded, our, base)+": the least that a stream does")
	plain := shuffled
	plain.Shuffle = false
	r, _, _, err = b.ratio(b.streams(text, 2, 1, shuffled), b.streams(text, 2, 1, plain))
	if err != nil {
		return err
	}
	b.AtLeast("stream", "text 3 KB: shuffled / unshuffled", r, "x", 0.95, "2 ranks in a process")
	r, _, _, err = b.ratio(b.streams(text, 8, 1, shuffled), b.streams(text, 1, 2, shuffled))
	if err != nil {
		return err
	}
	b.AtLeast("stream", "text 3 KB: 8 ranks on this host / one rank with 2 workers", r, "x", 0.95, "total rate")
	single := shuffled
	single.GlobalBatch = 1
	if r, _, _, err = b.ratio(b.streams(text, 1, 2, single), b.streams(text, 1, 2, shuffled)); err != nil {
		return err
	}
	b.Info("stream", "text 3 KB: batches of 1 sample / of 256", r, "x", "one rank with 2 workers")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if err := b.streams(text, 1, 2, shuffled)(); err != nil {
		return err
	}
	runtime.ReadMemStats(&after)
	per := float64(after.Mallocs-before.Mallocs) / float64(epochs*ds.NumSamples())
	b.AtMost("stream", "text 3 KB: allocations a sample", table.One(per), "", 0.05,
		fmt.Sprintf("%d in all for %d samples, opening included", after.Mallocs-before.Mallocs, ds.NumSamples()))

	images, err := b.dataset("large images", false)
	if err != nil {
		return err
	}
	ids, err := b.open(images, reader.Options{})
	if err != nil {
		return err
	}
	defer ids.Close()
	floor, total, err := b.pread(images, ids, 2, 0)
	if err != nil {
		return err
	}
	if r, our, base, err = b.ratio(b.streams(images, 2, 1, shuffled), repeat(floor)); err != nil {
		return err
	}
	b.AtLeast("stream", "incompressible 100 KB, shuffled, verified, 2 ranks / pread + CRC-32C", r, "x", 0.75,
		rates(epochs*total, our, base))
	if floor, _, err = b.pread(images, ids, 2, 64<<20); err != nil {
		return err
	}
	if r, our, base, err = b.ratio(b.streams(images, 2, 1, shuffled), repeat(floor)); err != nil {
		return err
	}
	b.Info("stream", "the same / pread + CRC-32C to 64 MiB in turn", r, "x",
		rates(epochs*total, our, base)+": a shuffled window fits no cache")
	return nil
}
