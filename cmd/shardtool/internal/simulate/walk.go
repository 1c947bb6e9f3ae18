package simulate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/shardtool/shardtool/internal/order/uniformity"
	"github.com/shardtool/shardtool/reader/order"
)

// Epoch walks through one epoch of a plan. The time is proportional to its samples times the number
// of worlds; the memory to the blocks times the ranks of all worlds, a bit each. The labels of the
// data set must cover all samples of the plan.
func Epoch(ctx context.Context, plan *order.Plan, of Source, o Options) (*Report, error) {
	w, err := newWalk([]*order.Plan{plan}, []Source{of}, o.Worlds)
	if err != nil {
		return nil, err
	}
	cursor, err := plan.Seek(o.Epoch, 0)
	if err != nil {
		return nil, fmt.Errorf("epoch %d: %w", o.Epoch, err)
	}
	cursor.Until(o.Epoch + 1)
	n, meter := plan.Samples(), uniformity.NewMeter(of.Labels.In(plan, o.Epoch), o.Worlds...)
	if err := each(ctx, cursor, &o, func(refs []order.Ref, b *order.Batch) error {
		own := int(min(uint64(len(refs)), n-b.Position)) // the rest is padding, or of the next epoch
		err := w.add(refs, own, b, b.Position <= n/2 && n/2 < b.Position+uint64(own), &o)
		meter.Batch(refs, own)
		return err
	}); err != nil {
		return nil, fmt.Errorf("epoch %d: %w", o.Epoch, err)
	}
	s, p := &w.sources[0], plan.Params()
	r := &Report{Epoch: o.Epoch, Samples: n, Batches: w.batches, Repeated: s.Repeated, Missing: s.lacking(),
		Padding: w.padding, Window: p.Window(), MixesLittle: p.MixesLittle(o.GlobalBatch)}
	r.ExactlyOnce = r.Missing == 0 && r.Repeated == 0
	for i := range w.worlds {
		r.Worlds = append(r.Worlds, World{Reading: w.worlds[i].figures(n, w.batches, o.Job)})
	}
	r.mixed(meter.Figures(), of.Labels.Len())
	worst := r.VIF
	for _, x := range r.Worlds {
		worst = max(worst, x.LocalVIF)
	}
	if p.Shuffle {
		r.Verdict = uniformity.Judge(worst, "", plan)
	}
	return r, nil
}

// each calls f with the global batches that c lists, up to the end that o has.
func each(ctx context.Context, c uniformity.Batches, o *Options, f func(refs []order.Ref, b *order.Batch) error) error {
	var refs []order.Ref
	for n := uint64(1); ; n++ {
		var b order.Batch
		var err error
		refs, b, err = c.NextBatch(refs[:0], order.Split{GlobalBatch: o.GlobalBatch, World: 1})
		if err == nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if errors.Is(err, io.EOF) || err == nil && o.End > 0 && b.Position >= o.End {
			return nil
		}
		if err == nil {
			err = f(refs, &b)
		}
		if err != nil || n == o.Steps {
			return err
		}
	}
}

// walk is a pass through batches of samples, of one data set or of the sources of a mix.
type walk struct {
	parts            parts
	sources          []walkSource
	worlds           []world
	batches, padding uint64
}

// walkSource is what a walk has seen of a source.
type walkSource struct {
	plan  *order.Plan
	begun bool
	epoch uint32
	// whole reports that the present epoch has been walked from its beginning.
	whole bool
	seen  bitset // samples of the present epoch
	again uint64 // draws of a view in it, beyond the first of a sample
	own   []order.Ref
	meter *uniformity.Meter
	SourceReport
}

func newWalk(orders []*order.Plan, sources []Source, worlds []int) (*walk, error) {
	w := &walk{}
	var words uint64
	for i, s := range sources {
		at, p := walkSource{plan: orders[i], SourceReport: SourceReport{Mixing: Mixing{First: []float64{}}}},
			order.Params{}
		if at.plan != nil {
			p, at.seen = at.plan.Params(), newBitset(at.plan.Stored())
		}
		w.sources = append(w.sources, at)
		w.parts = append(w.parts, newPart(words, s.Blocks, s.Bytes, p))
		if words = w.parts[i].to; 64*words > math.MaxUint32 {
			return nil, fmt.Errorf("the sources have more than %d blocks", uint32(math.MaxUint32))
		}
	}
	for _, size := range worlds {
		w.worlds = append(w.worlds, newWorld(size, w.parts))
	}
	return w, nil
}

// add counts a global batch, of whose references the first own are samples of the epochs walked. It
// renumbers their blocks: the blocks of a source follow the blocks of the sources before it. In the
// middle, it records what a job that resumes there must read.
func (w *walk) add(refs []order.Ref, own int, b *order.Batch, middle bool, o *Options) (err error) {
	w.batches++
	for i := range w.worlds {
		if of := &w.worlds[i]; o.Ranks != nil {
			if of.dealt, err = o.Ranks(refs, b, of.size); err != nil {
				return err
			}
		}
	}
	for i := range w.sources {
		w.sources[i].own = w.sources[i].own[:0]
	}
	for i := range refs {
		r := &refs[i]
		switch {
		case r.Padding:
			w.padding++
		case i < own:
			w.delivered(r)
		}
		r.Block += uint32(64 * w.parts[r.Source].from)
		for j := range w.worlds {
			w.worlds[j].add(i, b.Global, r.Block, r.Padding)
		}
	}
	for i := range w.worlds {
		if w.batches == 1 {
			w.worlds[i].firstBatch()
		}
		if middle {
			w.worlds[i].resumeBatch(refs, b.Global)
		}
	}
	return nil
}

// delivered counts a sample. The samples of a source come epoch by epoch.
func (w *walk) delivered(r *order.Ref) {
	s := &w.sources[r.Source]
	if s.begun && s.epoch != r.Epoch {
		if s.whole {
			s.Missing += s.lacking()
		}
		s.whole, s.again = true, 0
		clear(s.seen)
		for i := range w.worlds {
			w.worlds[i].nextEpoch(int(r.Source))
		}
	}
	s.begun, s.epoch = true, r.Epoch
	s.Samples++
	s.own = append(s.own, *r)
	switch {
	case r.Draw > 0:
		s.again++
	case s.seen.has(r.Number):
		s.Repeated++
	default:
		s.seen.set(r.Number)
	}
}

// lacking returns how many samples of the present epoch have not been seen.
func (s *walkSource) lacking() uint64 { return s.plan.Samples() - s.again - s.seen.count() }
