package reader

import (
	"context"
	"slices"

	"github.com/shardtool/shardtool/reader/order"
)

// assemble turns drafts into batches, in order. It is one goroutine of a stream.
func (s *Stream) assemble(ctx context.Context) {
	defer close(s.ready)
	for d := range s.planned {
		if d.err == nil {
			d.err = s.fill(ctx, d)
		}
		failed := d.err != nil
		s.clock.Hand(1)
		select {
		case s.ready <- d: // the consumer's from here on
		case <-ctx.Done():
			return
		}
		if failed {
			return
		}
	}
}

// fill puts the samples into a batch.
func (s *Stream) fill(ctx context.Context, d *draft) error {
	b := d.Batch
	s.mu.Lock()
	v := take(&s.idleViews)
	s.mu.Unlock()
	*v = views{samples: v.samples[:0], fields: v.fields[:0], places: v.places[:0], copies: v.copies[:0]}
	b.views = v
	var err error
	if d.copied {
		err = s.gather(ctx, d, v)
	} else {
		err = s.view(ctx, d, v)
	}
	if err != nil {
		return err
	}
	b.Samples, b.skipped = v.samples, s.ledger.mark()
	if s.opts.Map != nil {
		s.clock.Map(true)
		defer s.clock.Map(false)
		return s.mapAll(ctx, b)
	}
	return nil
}

// wait waits for a draft's piece to be decoded, or to have failed.
func (s *Stream) wait(ctx context.Context, d *draft, p *piece) error {
	before := d.window + d.brought
	if p.broughtBy == d.seq {
		d.brought += int64(p.plan.decoded)
	}
	if p.landed.Load() {
		return nil
	}
	// What makes the window larger than it was, its own share of the data left out, is for the batches behind it.
	s.clock.Await(&p.Piece, before >= d.most)
	defer s.clock.Await(nil, false)
	for !p.landed.Load() {
		select {
		case <-s.landing:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// view points the batch's samples into its pieces.
func (s *Stream) view(ctx context.Context, d *draft, v *views) error {
	for _, p := range d.uses {
		if err := s.wait(ctx, d, p); err != nil {
			return err
		}
	}
	for i := range d.refs {
		r := &d.refs[i]
		if r.Padding {
			v.samples = append(v.samples, Sample{Number: r.Number, Padding: true})
			d.Batch.place(v, i)
			continue
		}
		there, err := s.pick(d, v, r, d.uses[d.use[i]])
		if err != nil {
			return err
		}
		if there {
			d.Batch.place(v, i)
		}
	}
	return nil
}

// place notes where the sample added last stands, once there is a hole before it.
func (b *Batch) place(v *views, at int) {
	if b.Holes == 0 {
		return
	}
	for n := len(v.places); n < len(v.samples)-1; n++ { // those before the first hole
		v.places = append(v.places, int32(n))
	}
	v.places = append(v.places, int32(at))
}

// pick appends a ref's sample, unless it is a hole.
func (s *Stream) pick(d *draft, v *views, r *order.Ref, p *piece) (there bool, err error) {
	at := len(v.fields)
	key, fields, err := p.sample(r, v.fields)
	switch {
	case err == nil:
		v.fields = fields
		v.samples = append(v.samples, Sample{Number: r.Number, Key: key, Fields: fields[at:len(fields):len(fields)]})
		d.samples++
		for i := range fields[at:] {
			d.delivers += int64(len(fields[at+i].Data))
		}
		return true, nil
	case s.opts.OnCorrupt == CorruptSkips && confirmed(err):
		d.Batch.Holes++
		return false, s.ledger.hole(p, r, err)
	}
	return false, err
}

// gather copies the batch's samples out of its pieces, one piece after the other, so that they need not be in memory
// together.
func (s *Stream) gather(ctx context.Context, d *draft, v *views) error {
	byPiece := make([]int32, 0, len(d.refs)) // places of refs
	places := make([]int32, 0, len(d.refs))  // of v.samples
	for i := range d.refs {
		if r := &d.refs[i]; !r.Padding {
			byPiece = append(byPiece, int32(i))
		} else {
			v.samples = append(v.samples, Sample{Number: r.Number, Padding: true})
			places = append(places, int32(i))
		}
	}
	slices.SortStableFunc(byPiece, func(x, y int32) int { return int(d.use[x] - d.use[y]) })
	var failed error
	failedAt := int32(len(d.refs))
	for u, p := range d.uses {
		if err := s.wait(ctx, d, p); err != nil {
			return err
		}
		for ; len(byPiece) > 0 && d.use[byPiece[0]] == int32(u); byPiece = byPiece[1:] {
			i := byPiece[0]
			there, err := s.pick(d, v, &d.refs[i], p)
			switch {
			case err != nil && i < failedAt: // the error is that of the first sample that has one
				failed, failedAt = err, i
			case there:
				places = append(places, i)
				s.copyOut(d, v, &v.samples[len(v.samples)-1])
			}
		}
		s.gathered(d, p)
	}
	if failed != nil {
		return failed
	}
	v.arrange(places)
	if d.Batch.Holes > 0 {
		v.places = append(v.places, places...)
	}
	return nil
}

// copyOut moves a sample from its piece to memory of the batch: to the chunk at hand, where it fits.
func (s *Stream) copyOut(d *draft, v *views, smp *Sample) {
	n := bytesOf(smp)
	if cap(v.chunk)-len(v.chunk) < n {
		s.mu.Lock()
		size := max(n, min(max(int(s.memory.limit/64), 4<<10), 1<<20)) // of few sizes, for the next batch to use again
		buf := s.memory.take(size)
		if buf == nil {
			buf = s.makeRoom(size)
		}
		if buf == nil {
			buf = s.memory.force(size)
		}
		d.copies += int64(cap(buf))
		s.mu.Unlock()
		v.copies = append(v.copies, buf)
		v.chunk = buf[:0]
	}
	v.chunk = copyBytes(smp, v.chunk)
}

// arrange sorts samples by their places, and the places with them.
func (v *views) arrange(places []int32) {
	order := make([]int32, len(places))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(x, y int32) int { return int(places[x] - places[y]) })
	sorted := make([]Sample, len(order))
	for i, from := range order {
		sorted[i] = v.samples[from]
	}
	v.samples = append(v.samples[:0], sorted...)
	slices.Sort(places)
}
