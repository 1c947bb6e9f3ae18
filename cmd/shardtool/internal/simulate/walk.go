package simulate

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/shardtool/shardtool/internal/mixing"
	"github.com/shardtool/shardtool/reader/order"
)

// Epoch walks through one epoch of a plan. The time is proportional to its samples times the number
// of worlds; the memory to the blocks times the ranks of all worlds, a bit each. The labels must
// cover all samples of the plan.
func Epoch(ctx context.Context, plan *order.Plan, labels *mixing.Labels, o Options) (*Report, error) {
	p := plan.Params()
	parts := parts{newPart(0, o.Blocks, o.Bytes, p)}
	w := walk{
		plan: plan, o: o, seen: newBitset(plan.Stored()), meter: mixing.NewMeter(labels.In(plan, o.Epoch), o.Worlds...),
		report: &Report{Epoch: o.Epoch, Samples: plan.Samples()},
	}
	for _, size := range o.Worlds {
		w.worlds = append(w.worlds, newWorld(size, parts))
	}
	if err := w.batches(ctx); err != nil {
		return nil, fmt.Errorf("simulate: epoch %d: %w", o.Epoch, err)
	}
	w.report.Missing = plan.Samples() - w.again - w.seen.count()
	w.report.ExactlyOnce = w.report.Missing == 0 && w.report.Repeated == 0
	for i := range w.worlds {
		w.report.Worlds = append(w.report.Worlds, World{Reading: w.worlds[i].figures(w.report.Samples, w.report.Batches, o.Job)})
	}
	w.report.mixed(w.meter.Figures(), labels.Len())
	worst := w.report.VIF
	for _, x := range w.report.Worlds {
		worst = max(worst, x.LocalVIF)
	}
	if plan.Params().Shuffle {
		w.report.Verdict = mixing.Judge(worst, "", plan)
	}
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

// batches is a cursor over an order.
type batches interface {
	NextBatch(dst []order.Ref, s order.Split) ([]order.Ref, order.Batch, error)
}

// each calls f with the global batches of a cursor, until its end or until f returns false.
func each(ctx context.Context, c batches, globalBatch int, f func(refs []order.Ref, b *order.Batch) (more bool)) error {
	var refs []order.Ref
	for {
		var b order.Batch
		var err error
		refs, b, err = c.NextBatch(refs[:0], order.Split{GlobalBatch: globalBatch, World: 1})
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if err != nil || !f(refs, &b) {
			return err
		}
	}
}

// batches reads all global batches of the epoch.
func (w *walk) batches(ctx context.Context) error {
	n := w.plan.Samples()
	cur, err := w.plan.Seek(w.o.Epoch, 0)
	if err != nil {
		return err
	}
	cur.Until(w.o.Epoch + 1)
	return each(ctx, cur, w.o.GlobalBatch, func(refs []order.Ref, b *order.Batch) bool {
		own := int(min(uint64(len(refs)), n-b.Position)) // the rest is padding, or of the next epoch
		w.add(refs, own, b.Global)
		middle := b.Position <= n/2 && n/2 < b.Position+uint64(own)
		for i := range w.worlds {
			if w.report.Batches == 1 {
				w.worlds[i].firstBatch()
			}
			if middle {
				w.worlds[i].resumeBatch(refs, b.Global, func(*order.Ref) int { return 0 })
			}
		}
		w.meter.Batch(refs, own)
		return true
	})
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
			w.worlds[j].add(i, global, r.Block, r.Padding)
		}
	}
}
