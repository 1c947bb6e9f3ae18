package main

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/shardtool/shardtool/bench/table"
	"github.com/shardtool/shardtool/reader/order"
)

// unpacked is a data set of n samples that nobody packed: 300 to 366 in a block, 256 blocks in a
// shard.
func unpacked(n uint64) order.Table {
	var t order.Table
	for b := uint32(0); n > 0; b++ {
		if b%256 == 0 {
			t.ShardFirst = append(t.ShardFirst, int(b))
		}
		s := min(n, uint64(300+b*2654435761>>16%67))
		t.Samples = append(t.Samples, uint32(s))
		n -= s
	}
	t.Decoded = uint64(len(t.Samples)) << 20
	return t
}

// order measures the cost of computing the order of samples, and how well the order mixes.
func (b *bench) order() error {
	if err := b.planSeek(); err != nil {
		return err
	}
	if err := b.perSample(); err != nil {
		return err
	}
	return b.quality()
}

func newPlan(t order.Table, c order.Choice) (*order.Plan, error) {
	c.Shuffle, c.Seed = true, 42
	params, err := order.Choose(t, c)
	if err != nil {
		return nil, err
	}
	return order.New([]order.Source{{Table: t, Digest: "sha256:00"}}, params)
}

// planSeek starts at places of an epoch of 10^9 samples.
func (b *bench) planSeek() error {
	const n = 1_000_000_000
	t := unpacked(n)
	var slowest table.Sample
	var most float64
	for _, permille := range []uint64{0, 1, 500, 999} {
		var took table.Sample
		for range b.times {
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			begin := time.Now()
			plan, err := newPlan(t, order.Choice{})
			if err != nil {
				return err
			}
			c, err := plan.Seek(0, n/1000*permille)
			if err != nil {
				return err
			}
			if _, _, err := c.NextBatch(nil, order.Split{GlobalBatch: 1024, World: 1}); err != nil {
				return err
			}
			took = append(took, float64(time.Since(begin).Microseconds())/1000)
			runtime.ReadMemStats(&after)
			most = max(most, float64(after.TotalAlloc-before.TotalAlloc+4*uint64(len(t.Samples)))/1e6)
		}
		if slowest == nil || took.Median() > slowest.Median() {
			slowest = took
		}
	}
	b.AtMost("order", "10^9 samples: plan, seek, first batch of references", slowest, "ms", 200, "the slowest of 0, 0.1 %, 50 %, 99.9 % of an epoch")
	b.AtMost("order", "10^9 samples: memory of the same, the table included", table.One(most), "MB", 64, fmt.Sprintf("all that is allocated on the way; %d blocks", len(t.Samples)))
	return nil
}

// perSample goes through orders of growing size.
func (b *bench) perSample() error {
	var all []table.Sample
	for _, n := range []uint64{1e5, 1e6, 1e7, 1e8, 1e9} {
		plan, err := newPlan(unpacked(n), order.Choice{})
		if err != nil {
			return err
		}
		c, err := plan.Seek(0, n/3)
		if err != nil {
			return err
		}
		var refs []order.Ref
		var per table.Sample
		for range b.times + 1 {
			begin, samples := cpu(), 0
			for samples < 2_000_000 {
				if refs, _, err = c.NextBatch(refs[:0], order.Split{GlobalBatch: 1024, World: 1}); err != nil {
					return err
				}
				samples += len(refs)
			}
			per = append(per, float64((cpu()-begin).Nanoseconds())/float64(samples))
		}
		all = append(all, per[1:])
	}
	last := all[len(all)-1]
	b.AtMost("order", "10^9 samples: time a sample", last, "ns", 25, fmt.Sprintf("processor time; from 10^5 to 10^9: %.0f, %.0f, %.0f, %.0f, %.0f", all[0].Median(), all[1].Median(), all[2].Median(), all[3].Median(), last.Median()))
	return nil
}

// quality is the variance of label counts in batches of a data set sorted by class, as a multiple
// of a uniform permutation's.
func (b *bench) quality() error {
	const samples, perBlock, classes, g, head = 1_280_000, 10, 1000, 1024, 10
	var t order.Table
	for block := range samples / perBlock {
		if block%130 == 0 {
			t.ShardFirst = append(t.ShardFirst, block)
		}
		t.Samples = append(t.Samples, perBlock)
	}
	t.Decoded = uint64(len(t.Samples)) << 20
	plan, err := order.New([]order.Source{{Table: t, Digest: "sha256:00"}}, order.Params{
		Seed: 1, Shuffle: true, Lanes: 96, RunBlocks: 1, Delay: 24, Head: 4, MixBlock: 1, Affinity: order.AffinityEpoch, Tail: order.TailDrop})
	if err != nil {
		return err
	}
	c, err := plan.Seek(0, 0)
	if err != nil {
		return err
	}
	c.Until(1)
	const share = 1.0 / classes
	uniform := float64(g) * share * (1 - share) * (samples - g) / (samples - 1) * classes // hypergeometric
	var first, rest table.Sample
	counts := make([]int, classes)
	var refs []order.Ref
	for {
		refs, _, err = c.NextBatch(refs[:0], order.Split{GlobalBatch: g, World: 1})
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		clear(counts)
		for _, r := range refs {
			counts[r.Number/(samples/classes)]++
		}
		sum := 0.0
		for _, k := range counts {
			sum += (float64(k) - g*share) * (float64(k) - g*share)
		}
		if len(first) < head {
			first = append(first, sum/uniform)
		} else {
			rest = append(rest, sum/uniform)
		}
	}
	mean := 0.0
	for _, v := range rest {
		mean += v / float64(len(rest))
	}
	b.AtMost("order", "variance inflation of batches behind the head, sorted by class", table.One(mean), "", 1.05,
		fmt.Sprintf("1.28 M samples, 10 a block, G=1024, V=96, E=1, W=24; the first ten batches %.2f", []float64(first)))
	return nil
}
