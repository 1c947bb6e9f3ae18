package simulate

import (
	"context"
	"fmt"
	"math"

	"github.com/shardtool/shardtool/internal/mix"
	"github.com/shardtool/shardtool/internal/mixing"
	"github.com/shardtool/shardtool/reader/order"
)

// MixSource describes a source for Mix: the number of its blocks, their stored bytes, and the
// labels of its samples. Labels are nil if the source has no data set.
type MixSource struct {
	Blocks, Bytes uint64
	Labels        *mixing.Labels
}

// MixOptions describe the walk through a mix. Epoch, Blocks and Bytes of the Options are not used.
type MixOptions struct {
	Options
	// Steps is the number of global batches to walk, 0 all of the stream.
	Steps uint64
	// End, when not 0, ends the walk before the batch that begins at this position or later.
	End uint64
	// LeftOut are positions to skip.
	LeftOut []mix.Range
}

// MixReport has the figures that Mix counted.
type MixReport struct {
	// Position is where the walk began and End where it ended. Batches and Samples count what lies
	// between.
	Position uint64 `json:"position"`
	End      uint64 `json:"end"`
	Samples  uint64 `json:"samples"`
	Batches  uint64 `json:"batches"`
	// ExactlyOnce reports that no epoch of a source had a sample twice, and that each epoch that ended
	// had all samples.
	ExactlyOnce bool           `json:"exactly_once"`
	Padding     uint64         `json:"padding"`
	Sources     []SourceReport `json:"sources"`
	Worlds      []Reading      `json:"worlds"`
	Verdict     mixing.Verdict `json:"-"` // on the source that is mixed least
}

// SourceReport describes what a source gave.
type SourceReport struct {
	Name    string `json:"name"`
	Samples uint64 `json:"samples"`
	// Share is the source's share of the samples. Epochs is Samples divided by the samples of the
	// source.
	Share  float64 `json:"share"`
	Epochs float64 `json:"epochs"`
	// Repeated counts samples that an epoch of the source had twice. Missing counts samples that an
	// epoch did not have when it ended.
	Repeated uint64 `json:"repeated"`
	Missing  uint64 `json:"missing"`
	// The figures of package mixing for the source's part of global batches.
	Mixing
	// ReadBytes is the number of bytes that all ranks of the first world size read of the source.
	ReadBytes uint64 `json:"read_bytes"`
}

// Mix walks through the steps of a mix from a position on, without reading samples. orders and
// sources are by source number, as for mix.Plan.Seek. It takes as much time and memory as Epoch.
// Where a new epoch of a source begins, blocks are read again.
func Mix(ctx context.Context, plan *mix.Plan, position uint64, orders []*order.Plan, sources []MixSource, o MixOptions) (*MixReport, error) {
	w, err := newMixWalk(plan, orders, sources, o)
	if err != nil {
		return nil, fmt.Errorf("simulate: %w", err)
	}
	w.report.Position, w.report.End = position, position
	cursor, err := plan.Seek(position, orders)
	if err == nil {
		err = cursor.LeaveOut(o.LeftOut)
	}
	if err == nil {
		err = w.batches(ctx, cursor)
	}
	if err != nil {
		return nil, fmt.Errorf("simulate: %w", err)
	}
	w.finish()
	return w.report, nil
}

// mixWalk is a pass through steps of a mix.
type mixWalk struct {
	o       MixOptions
	parts   parts
	sources []mixWalkSource
	worlds  []world
	report  *MixReport
	orders  []*order.Plan // by source
	own     [][]order.Ref // the samples of a batch, by source
}

type mixWalkSource struct {
	units uint64
	begun bool
	epoch uint32
	// whole reports that the present epoch has been walked from its beginning.
	whole bool
	seen  bitset // samples of the present epoch
	meter *mixing.Meter
	SourceReport
}

func newMixWalk(plan *mix.Plan, orders []*order.Plan, sources []MixSource, o MixOptions) (*mixWalk, error) {
	m := plan.Mix()
	if len(sources) != len(m.Sources) {
		return nil, fmt.Errorf("%d sources for the %d of a mix: give one for each", len(sources), len(m.Sources))
	}
	w := &mixWalk{o: o, orders: orders, report: &MixReport{}, own: make([][]order.Ref, len(sources))}
	var first uint64
	for i, s := range sources {
		at := mixWalkSource{units: m.Sources[i].Units, SourceReport: SourceReport{Name: m.Sources[i].Name, Mixing: Mixing{First: []float64{}}}}
		p := order.Params{}
		if orders[i] != nil {
			p = orders[i].Params()
			at.seen = newBitset(at.units)
		}
		if s.Labels != nil {
			at.meter, at.Labels = mixing.NewMeter(s.Labels), s.Labels.Len()
		}
		w.sources = append(w.sources, at)
		w.parts = append(w.parts, newPart(first, s.Blocks, s.Bytes, p))
		if first += s.Blocks; first > math.MaxUint32 {
			return nil, fmt.Errorf("the sources have more than %d blocks", uint32(math.MaxUint32))
		}
	}
	for _, size := range o.Worlds {
		w.worlds = append(w.worlds, newWorld(size, w.parts))
	}
	return w, nil
}

// batches walks the steps.
func (w *mixWalk) batches(ctx context.Context, cursor *mix.Cursor) error {
	return each(ctx, cursor, w.o.GlobalBatch, func(refs []order.Ref, b *order.Batch) bool {
		if w.o.End > 0 && b.Position >= w.o.End {
			return false
		}
		w.report.Batches++
		w.report.End = b.NextPosition
		w.add(refs, b.Global)
		for i := range w.worlds {
			switch n := w.report.Batches; {
			case n == 1:
				w.worlds[i].firstBatch()
			case n&(n-1) == 0: // a few batches, spread over the steps
				w.worlds[i].resumeBatch(refs, b.Global, func(r *order.Ref) int { return int(r.Source) })
			}
		}
		return w.o.Steps == 0 || w.report.Batches < w.o.Steps
	})
}

// add counts a global batch. It renumbers the blocks of the references: the blocks of a source
// follow the blocks of the sources before it.
func (w *mixWalk) add(refs []order.Ref, global int) {
	for i := range w.own {
		w.own[i] = w.own[i][:0]
	}
	for i := range refs {
		r := &refs[i]
		if r.Padding {
			w.report.Padding++
		} else {
			w.delivered(r)
			w.own[r.Source] = append(w.own[r.Source], *r)
			w.report.Samples++
		}
		r.Block += uint32(w.parts[r.Source].first)
		for j := range w.worlds {
			w.worlds[j].add(i, global, r.Block, r.Padding)
		}
	}
	for s, own := range w.own {
		if meter := w.sources[s].meter; meter != nil && len(own) > 0 {
			meter.Batch(own, len(own))
		}
	}
}

// delivered counts a sample. The samples of a source come epoch by epoch.
func (w *mixWalk) delivered(r *order.Ref) {
	s := &w.sources[r.Source]
	switch {
	case !s.begun:
		s.begun, s.epoch = true, r.Epoch
		s.whole = w.report.Position == 0 // an epoch that began before Position had some samples already
	case s.epoch != r.Epoch:
		if s.whole {
			s.Missing += s.units - s.seen.count()
		}
		s.epoch, s.whole = r.Epoch, true
		clear(s.seen)
		for i := range w.worlds {
			w.worlds[i].nextEpoch(int(r.Source))
		}
	}
	s.Samples++
	if s.seen.has(r.Number) {
		s.Repeated++
	}
	s.seen.set(r.Number)
}

// finish fills in the report.
func (w *mixWalk) finish() {
	r := w.report
	r.ExactlyOnce = true
	for i := range w.sources {
		s := &w.sources[i]
		s.Share = float64(s.Samples) / float64(max(r.Samples, 1))
		s.Epochs = float64(s.Samples) / float64(max(s.units, 1))
		if s.meter != nil && s.Samples > 0 {
			f := s.meter.Figures()
			s.VIF, s.Adjacency, s.Expected, s.First = f.VIF, f.Adjacent, f.Expected, append(s.First, f.First...)
		}
		if len(w.worlds) > 0 {
			s.ReadBytes = uint64(w.worlds[0].read(i))
		}
		r.ExactlyOnce = r.ExactlyOnce && s.Repeated == 0 && s.Missing == 0
		r.Sources = append(r.Sources, s.SourceReport)
		if s.VIF > r.Verdict.VIF && w.orders[i].Params().Shuffle {
			r.Verdict = mixing.Judge(s.VIF, s.Name, w.orders...)
		}
	}
	for i := range w.worlds {
		r.Worlds = append(r.Worlds, w.worlds[i].figures(r.Samples, r.Batches, w.o.Job))
	}
}
