package reader

import (
	"context"
	"errors"
	"slices"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/reader/order"
)

// Batch is this rank's part of a global batch. Samples are views into blocks: valid until Release, or until the next call
// of Next when StreamOptions.Hold is 0. Clone keeps one longer. It is for one goroutine at a time.
type Batch struct {
	// Samples are in the order's order. Skipped ones are missing.
	Samples []Sample
	// Epoch and Position are where the global batch begins: Position counts samples of the epoch over all ranks.
	Epoch, Position uint64
	// NextEpoch and NextPosition are where the next one begins.
	NextEpoch, NextPosition uint64
	// Global is the size of the global batch, First the place of this rank's first sample in it.
	Global, First int
	// Holes is how many samples of this rank's part were skipped.
	Holes int

	places   []int32 // of Samples in this rank's part, when there are holes
	s        *Stream
	refs     []order.Ref
	uses     []*piece
	use      []int32 // of each ref: its piece in uses
	closing  []*slot
	pinned   bool // uses have pins to give back
	copied   bool // samples are in arena, not in pieces
	arena    []byte
	fields   []format.FieldView
	err      error
	released bool
}

// Release gives the batch's memory back. Samples must not be used afterwards. Releasing twice does nothing.
func (b *Batch) Release() {
	if b.s != nil && !b.released {
		b.released = true
		b.s.release(b)
	}
}

// Place is where sample i of Samples stands in this rank's part: i, and further back behind holes.
func (b *Batch) Place(i int) int {
	if len(b.places) > 0 {
		return int(b.places[i])
	}
	return i
}

// Clone returns samples that stay valid.
func (b *Batch) Clone() []Sample {
	out := make([]Sample, len(b.Samples))
	for i := range b.Samples {
		out[i] = b.Samples[i].Clone()
	}
	return out
}

// Checkpoint is the place behind this batch: a stream opened with it delivers what follows.
func (b *Batch) Checkpoint() (order.Checkpoint, error) {
	return b.s.checkpoint(b.NextEpoch, b.NextPosition)
}

// Clone returns a copy of the sample that stays valid.
func (s *Sample) Clone() Sample {
	n := len(s.Key)
	for i := range s.Fields {
		n += len(s.Fields[i].Name) + len(s.Fields[i].Data)
	}
	out := *s
	out.Key, out.Fields, _, _ = s.appendTo(make([]byte, 0, n), make([]format.FieldView, 0, len(s.Fields)))
	return out
}

// appendTo copies key and fields into memory that is given, which grows where it has to.
func (s *Sample) appendTo(arena []byte, fields []format.FieldView) (key []byte, own []format.FieldView, _ []byte, _ []format.FieldView) {
	keep := func(p []byte) []byte {
		at := len(arena)
		arena = append(arena, p...)
		return arena[at:len(arena):len(arena)]
	}
	at := len(fields)
	key = keep(s.Key)
	for _, f := range s.Fields {
		fields = append(fields, format.FieldView{Name: keep(f.Name), Data: keep(f.Data)})
	}
	return key, fields[at:len(fields):len(fields)], arena, fields
}

// assemble turns planned batches into delivered ones, in order. It is one goroutine of a stream.
func (s *Stream) assemble(ctx context.Context) {
	defer close(s.ready)
	for b := range s.planned {
		if b.err == nil {
			if b.copied {
				b.err = s.gather(ctx, b)
			} else {
				b.err = s.view(ctx, b)
			}
		}
		if b.err == nil && s.opts.Map != nil {
			b.err = s.mapAll(ctx, b)
		}
		failed := b.err != nil
		select {
		case s.ready <- b: // the consumer's from here on
		case <-ctx.Done():
			return
		}
		if failed {
			return
		}
	}
}

// wait waits for a piece to be decoded, or to have failed.
func (p *piece) wait(ctx context.Context) error {
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// view points the batch's samples into its pieces.
func (s *Stream) view(ctx context.Context, b *Batch) error {
	for _, p := range b.uses {
		if err := p.wait(ctx); err != nil {
			return err
		}
	}
	for i := range b.refs {
		r := &b.refs[i]
		if r.Padding {
			b.Samples = append(b.Samples, Sample{Number: r.Number, Padding: true})
			b.place(i)
			continue
		}
		smp, err := s.pick(b, r, b.uses[b.use[i]])
		if err != nil {
			return err
		}
		if smp != nil {
			b.Samples = append(b.Samples, *smp)
			b.place(i)
		}
	}
	return nil
}

// place notes where the sample added last stands, once there is a hole before it.
func (b *Batch) place(at int) {
	if b.Holes == 0 {
		return
	}
	for n := len(b.places); n < len(b.Samples)-1; n++ { // those before the first hole
		b.places = append(b.places, int32(n))
	}
	b.places = append(b.places, int32(at))
}

// pick returns a ref's sample, or nil for a hole.
func (s *Stream) pick(b *Batch, r *order.Ref, p *piece) (*Sample, error) {
	smp, err := p.sample(r)
	switch {
	case err == nil:
		return smp, nil
	case s.opts.OnCorrupt == CorruptSkips && isDamage(err):
		b.Holes++
		return nil, s.ledger.hole(p, r, err)
	}
	return nil, err
}

// gather copies the batch's samples out of its pieces, one piece after the other, so that they need not be in memory
// together.
func (s *Stream) gather(ctx context.Context, b *Batch) error {
	b.Samples = slices.Grow(b.Samples[:0], len(b.refs))[:len(b.refs)]
	missing := make([]bool, len(b.refs))
	order := make([]int32, 0, len(b.refs)) // refs by piece
	for i := range b.refs {
		if b.refs[i].Padding {
			b.Samples[i] = Sample{Number: b.refs[i].Number, Padding: true}
		} else {
			order = append(order, int32(i))
		}
	}
	slices.SortStableFunc(order, func(x, y int32) int { return int(b.use[x] - b.use[y]) })
	b.arena, b.fields = b.arena[:0], b.fields[:0]
	var failed error
	at := 0
	for u, p := range b.uses {
		if err := p.wait(ctx); err != nil {
			return err
		}
		for ; at < len(order) && b.use[order[at]] == int32(u); at++ {
			i := order[at]
			smp, err := s.pick(b, &b.refs[i], p)
			switch {
			case err != nil:
				failed = errors.Join(failed, err)
			case smp == nil:
				missing[i] = true
			default:
				b.Samples[i] = *smp
				b.Samples[i].Key, b.Samples[i].Fields, b.arena, b.fields = smp.appendTo(b.arena, b.fields)
			}
		}
		s.unpin(p)
	}
	b.pinned = false
	s.buffers.charge(int64(cap(b.arena)))
	if b.Holes > 0 {
		kept := b.Samples[:0]
		for i := range b.Samples {
			if !missing[i] {
				kept = append(kept, b.Samples[i])
				b.places = append(b.places, int32(i))
			}
		}
		b.Samples = kept
	}
	return failed
}
