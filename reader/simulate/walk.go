package simulate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/bits"

	"github.com/shardtool/shardtool/reader/order"
	"github.com/shardtool/shardtool/reader/order/mixing"
)

// Epoch walks through one epoch of a plan. The time is proportional to its samples times the number
// of worlds; the memory to the blocks times the ranks of all worlds, a bit each. The labels must
// cover all samples of the plan.
func Epoch(ctx context.Context, plan *order.Plan, labels *mixing.Labels, o Options) (*Report, error) {
	w := walk{
		plan: plan, o: o, seen: newBitset(plan.Stored()), meter: mixing.NewMeter(labels.In(plan, o.Epoch), o.Worlds...),
		report: &Report{Epoch: o.Epoch, Samples: plan.Samples()},
	}
	for _, size := range o.Worlds {
		of := world{size: size, samples: make([]uint64, size), blocks: make([]bitset, size)}
		for r := range of.blocks {
			of.blocks[r] = newBitset(o.Blocks)
		}
		w.worlds = append(w.worlds, of)
	}
	if err := w.batches(ctx); err != nil {
		return nil, fmt.Errorf("simulate: epoch %d: %w", o.Epoch, err)
	}
	w.report.Missing = plan.Samples() - w.again - w.seen.count()
	w.report.ExactlyOnce = w.report.Missing == 0 && w.report.Repeated == 0
	p := plan.Params()
	for i := range w.worlds {
		w.report.Worlds = append(w.report.Worlds, w.worlds[i].figures(w.report, p, o))
	}
	w.report.mixed(w.meter.Figures(), labels.Len())
	w.report.Window, w.report.MixesLittle = p.Window(), p.MixesLittle(o.GlobalBatch)
	return w.report, nil
}

// walk is one pass through an epoch.
type walk struct {
	plan   *order.Plan
	o      Options
	seen   bitset // samples
	again  uint64 // draws of a view beyond the first of a sample
	meter  *mixing.Meter
	worlds []world
	report *Report
}

// world collects what the ranks of one world size get.
type world struct {
	size          int
	samples       []uint64 // of each rank
	blocks        []bitset // that each rank reads
	first, resume uint64   // most blocks of a rank's first batch, and of its batch in the middle
}

// batches reads all global batches of the epoch.
func (w *walk) batches(ctx context.Context) error {
	n := w.plan.Samples()
	cur, err := w.plan.Seek(w.o.Epoch, 0)
	if err != nil {
		return err
	}
	cur.Until(w.o.Epoch + 1)
	var refs []order.Ref
	for {
		var b order.Batch
		refs, b, err = cur.NextBatch(refs[:0], order.Split{GlobalBatch: w.o.GlobalBatch, World: 1})
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		own := int(min(uint64(len(refs)), n-b.Position)) // the rest is padding, or of the next epoch
		w.add(refs, own, b.Global)
		middle := b.Position <= n/2 && n/2 < b.Position+uint64(own)
		for i := range w.worlds {
			if w.report.Batches == 1 {
				w.worlds[i].firstBatch()
			}
			if middle {
				w.worlds[i].resumeBatch(refs, b.Global)
			}
		}
		w.meter.Batch(refs, own)
	}
}

// add counts a global batch, of whose refs the first own are samples of the epoch.
func (w *walk) add(refs []order.Ref, own, global int) {
	w.report.Batches++
	for i := range refs {
		r := &refs[i]
		switch {
		case r.Padding:
			w.report.Padding++
		case i < own && r.Draw > 0:
			w.again++
		case i < own && w.seen.has(r.Number):
			w.report.Repeated++
		case i < own:
			w.seen.set(r.Number)
		}
		for j := range w.worlds {
			of := &w.worlds[j]
			rank := of.rank(i, global)
			of.samples[rank]++
			if !r.Padding {
				of.blocks[rank].set(uint64(r.Block))
			}
		}
	}
}

// rank returns the rank that gets entry i of a global batch: rank r gets the entries from
// ⌊r·global/size⌋ to ⌊(r+1)·global/size⌋.
func (w *world) rank(i, global int) int { return ((i+1)*w.size - 1) / global }

// firstBatch records the blocks that ranks need for their first batch.
func (w *world) firstBatch() {
	for _, of := range w.blocks {
		w.first = max(w.first, of.count())
	}
}

// resumeBatch records the blocks that ranks need for this batch alone.
func (w *world) resumeBatch(refs []order.Ref, global int) {
	blocks := map[uint32]bool{} // of the rank at hand
	last := 0
	for i := range refs {
		if rank := w.rank(i, global); rank != last {
			clear(blocks)
			last = rank
		}
		if !refs[i].Padding {
			blocks[refs[i].Block] = true
		}
		w.resume = max(w.resume, uint64(len(blocks)))
	}
}

// figures sums up what the ranks of this world size got.
func (w *world) figures(r *Report, p order.Params, o Options) World {
	out := World{Size: w.size, Steps: r.Batches, Least: ^uint64(0)}
	read := uint64(0)
	for rank, n := range w.samples {
		blocks := w.blocks[rank].count()
		out.Least, out.Most, out.Blocks = min(out.Least, n), max(out.Most, n), max(out.Blocks, blocks)
		read += blocks
	}
	out.Amplification = float64(read) / float64(max(o.Blocks, 1))
	out.Needs = w.needs(r.Samples, p, o)
	return out
}

// bitset is a set of small numbers.
type bitset []uint64

func newBitset(n uint64) bitset { return make(bitset, (n+63)/64) }

func (b bitset) has(i uint64) bool { return b[i/64]>>(i%64)&1 != 0 }
func (b bitset) set(i uint64)      { b[i/64] |= 1 << (i % 64) }

// add adds the numbers of another set of the same size.
func (b bitset) add(o bitset) {
	for i, word := range o {
		b[i] |= word
	}
}

func (b bitset) count() (n uint64) {
	for _, word := range b {
		n += uint64(bits.OnesCount64(word))
	}
	return n
}
