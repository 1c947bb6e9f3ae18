package main

import (
	"fmt"

	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/order"
)

// start measures how long a job waits for its first batch, new and resumed.
func (b *bench) start() error {
	dir, err := b.dataset("large text", false)
	if err != nil {
		return err
	}
	ds, err := b.open(dir, reader.Options{Workers: 2})
	if err != nil {
		return err
	}
	defer ds.Close()
	o := shuffled
	o.World, o.Tuning.Workers, o.Order.ShuffleMemory = 1, 2, 512<<20
	s, err := ds.Stream(b.ctx, o)
	if err != nil {
		return err
	}
	plan := s.Info().Plans[0]
	s.Close() // it reads ahead from the moment it is opened
	middle, err := plan.Checkpoint(0, plan.Samples()/2)
	if err != nil {
		return err
	}
	resumed := o
	resumed.Checkpoint = &reader.Checkpoint{Dataset: &middle}
	split := order.Split{GlobalBatch: o.GlobalBatch, World: 1}
	cold, blocks, err := b.fetchDecode(ds, dir, plan, 0, split)
	if err != nil {
		return err
	}
	r, our, _, err := b.ratio(cold, b.firstBatch(ds, o)) // the other way round: time over time
	if err != nil {
		return err
	}
	b.AtMost("start", "first batch / fetch and decode of the blocks it needs", r, "x", 1.2,
		fmt.Sprintf("%d blocks of %d KiB, %.1f ms without the reader, 2 goroutines", blocks, meanBlock(ds)>>10,
			1000*our.Median()))
	again, blocks, err := b.fetchDecode(ds, dir, plan, middle.Position, split)
	if err != nil {
		return err
	}
	if r, our, _, err = b.ratio(again, b.firstBatch(ds, resumed)); err != nil {
		return err
	}
	b.AtMost("start", "the same, resumed in the middle of an epoch", r, "x", 1.2,
		fmt.Sprintf("%d blocks, %.1f ms", blocks, 1000*our.Median()))
	if r, _, _, err = b.ratio(b.batches(ds, o, 200), b.batches(ds, resumed, 200)); err != nil {
		return err
	}
	b.AtMost("start", "200 batches, resumed / from an epoch's beginning", r, "x", 1.1,
		fmt.Sprintf("V=%d, E=%d, W=%d", plan.Params().Lanes, plan.Params().RunBlocks, plan.Params().Delay))
	return b.first(dir)
}

// meanBlock is the mean decoded size of a block.
func meanBlock(ds *reader.Dataset) uint64 { return ds.Info().DecodedBytes / max(ds.Info().Blocks, 1) }

func (b *bench) firstBatch(ds *reader.Dataset, o reader.StreamOptions) func() error {
	return b.batches(ds, o, 1)
}

// batches opens a stream and takes some batches. It releases the last one before Close, so that the
// next stream gets the memory of this one.
func (b *bench) batches(ds *reader.Dataset, o reader.StreamOptions, n int) func() error {
	return func() error {
		s, err := ds.Stream(b.ctx, o)
		if err != nil {
			return err
		}
		defer s.Close()
		for range n - 1 {
			if _, err := s.Next(b.ctx); err != nil {
				return err
			}
		}
		batch, err := s.Next(b.ctx)
		if err != nil {
			return err
		}
		batch.Release()
		return nil
	}
}

// fetchDecode reads, checks and decodes the blocks that the first batch from a position draws from,
// as the planner lists them.
func (b *bench) fetchDecode(ds *reader.Dataset, dir string, plan *order.Plan, position uint64,
	split order.Split) (func() error, int, error) {
	cursor, err := plan.Seek(0, position)
	if err != nil {
		return nil, 0, err
	}
	refs, _, err := cursor.NextBatch(nil, split)
	if err != nil {
		return nil, 0, err
	}
	var list []uint32 // in order of first use
	seen := map[uint32]bool{}
	for i := range refs {
		if r := &refs[i]; !r.Padding && !seen[r.Block] {
			seen[r.Block] = true
			list = append(list, r.Block)
		}
	}
	// each block has its own memory, because the batch points into all of them
	run, err := b.preadDecode(dir, ds, list, 2, 0)
	return run, len(list), err
}
