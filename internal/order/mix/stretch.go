package mix

import (
	"fmt"
	"slices"
)

// stretch is the positions from ≤ g < to in which the weights do not change: a segment, cut where a
// source is used up. Its counts hold at to, too.
type stretch struct {
	from, to uint64
	segment  int
	tree     tree
	base     []uint64 // given before from
	// began is where these weights began to hold, and given what sources had given before: from and
	// base, or earlier where only an epoch of units ended since.
	began uint64
	given []uint64
	// shift is the difference between a count and the tree's count, modulo 2^64. The tree counts from
	// position 0 in every stretch, so that many short segments starve no source.
	shift []uint64
}

func (p *Plan) firstStretch() (stretch, error) {
	base := make([]uint64, len(p.mix.Sources))
	for s := range base {
		base[s] = p.mix.Sources[s].Base
	}
	first, ok, err := p.begin(0, p.mix.From, base)
	if !ok { // every source is used up: a stream without positions
		first = stretch{from: p.mix.From, to: p.mix.From, base: base, shift: base, began: p.mix.From, given: base}
	}
	return first, err
}

// begin makes the stretch at position from, with the first segment, from the given one on, that has
// an open source. ok is false if the stream ends at from.
func (p *Plan) begin(segment int, from uint64, base []uint64) (next stretch, ok bool, err error) {
	for ; segment < len(p.mix.Segments); segment++ {
		weights := slices.Clone(p.mix.Segments[segment].Weights)
		var total uint64
		for s := range weights {
			if err := p.mix.Sources[s].stop(weights, s, base[s]); err != nil {
				return stretch{}, false, err
			}
			total += weights[s]
		}
		if total > 0 {
			next, err = p.lay(segment, from, base, newTree(weights))
			return next, err == nil, err
		}
	}
	return stretch{}, false, nil
}

// stop sets the weight of source number i to 0 if the source has given all it may.
func (s *Source) stop(weights []uint64, i int, given uint64) error {
	if weights[i] == 0 {
		return nil
	}
	limit, err := s.limit(given)
	if given >= limit {
		weights[i] = 0
	}
	return err
}

// lay finds where a stretch ends: at the next segment, or where the first of its sources is used
// up, or where a source with a limit has given an epoch of units, whichever comes first.
func (p *Plan) lay(segment int, from uint64, base []uint64, t tree) (stretch, error) {
	st := stretch{from: from, to: maxPosition, segment: segment, tree: t, base: base, shift: make([]uint64, len(base)),
		began: from, given: base}
	if segment+1 < len(p.mix.Segments) {
		st.to = p.mix.Segments[segment+1].At
	}
	t.addCounts(st.shift, make([]uint64, len(t.nodes)), from)
	for s := range st.shift {
		st.shift[s] = base[s] - st.shift[s]
	}
	for i, l := range t.leaves {
		limit, err := p.mix.Sources[l.source].limit(base[l.source])
		if err != nil {
			return st, err
		}
		if limit < maxPosition {
			if g, ok := st.reach(i, limit); ok {
				st.to = min(st.to, g)
			}
		}
	}
	return st, nil
}

// reach returns the least position at which the source of leaf i has given count units. It may lie
// outside the stretch, where other rules hold. ok is false if it is past every position.
func (st *stretch) reach(i int, count uint64) (position uint64, ok bool) {
	return st.tree.reach(i, count-st.shift[st.tree.leaves[i].source])
}

// after returns the stretch that begins where st ends. ok is false if the stream ends there.
func (p *Plan) after(st *stretch) (next stretch, ok bool, err error) {
	if st.to >= maxPosition || st.from == st.to {
		return stretch{}, false, nil
	}
	segment := st.segment
	if segment+1 < len(p.mix.Segments) && st.to == p.mix.Segments[segment+1].At {
		segment++
	}
	next, ok, err = p.begin(segment, st.to, st.counts(nil, st.to))
	if next.segment == st.segment && len(next.tree.leaves) == len(st.tree.leaves) { // in a segment, sources only end
		next.began, next.given = st.began, st.given
	}
	return next, ok, err
}

// counts returns how much each source has given before position g of the stretch, in dst's memory.
func (st *stretch) counts(dst []uint64, g uint64) []uint64 {
	dst = append(dst[:0], st.shift...)
	var few [64]uint64
	units := few[:]
	if len(st.tree.nodes) > len(few) {
		units = make([]uint64, len(st.tree.nodes))
	}
	st.tree.addCounts(dst, units, g)
	return dst
}

// walk is a stretch of a plan and the way to others. It keeps one stretch, because all of them
// together would be sources times segments.
type walk struct {
	plan *Plan
	stretch
}

func (p *Plan) walk() walk { return walk{p, p.first} }

// seek makes the stretch with position g current. If the stream ends at or before g, ok is false
// and the last stretch is current.
func (w *walk) seek(g uint64) (ok bool, err error) {
	if g < w.from {
		w.stretch = w.plan.first
	}
	for g >= w.to {
		next, ok, err := w.plan.after(&w.stretch)
		if !ok {
			return false, err
		}
		w.stretch = next
	}
	return true, nil
}

// Counts appends to dst how many units each source has given before position g, by source number.
// Each position adds one to exactly one source.
func (p *Plan) Counts(dst []uint64, g uint64) ([]uint64, error) {
	w, err := p.walkTo(g)
	if err != nil {
		return dst, err
	}
	return append(dst, w.counts(nil, g)...), nil
}

// walkTo finds the stretch of a position, or the last one for the end of the stream.
func (p *Plan) walkTo(g uint64) (walk, error) {
	w := p.walk()
	if g < w.from {
		return w, fmt.Errorf("position %d is before %d, where the mix begins: use an earlier checkpoint", g, w.from)
	}
	if ok, err := w.seek(g); err != nil {
		return w, err
	} else if !ok && g > w.to {
		return w, fmt.Errorf("position %d is past the end of the stream at %d, where every source is used up", g, w.to)
	}
	return w, nil
}

// Until returns a position, or the end of the stream if that comes before it. It needs no stretches
// after the position.
func (p *Plan) Until(position uint64) (uint64, error) {
	w := p.walk()
	if ok, err := w.seek(position); ok || err != nil {
		return position, err
	}
	return min(w.to, position), nil
}

// End returns the position where the stream ends because every source is used up. It is 2^63, which
// is not a position, if the stream never ends. If positions hold units and every source has a
// limit, End plans all epochs.
func (p *Plan) End() (uint64, error) {
	last := p.mix.Segments[len(p.mix.Segments)-1]
	for s := range p.mix.Sources {
		if x := &p.mix.Sources[s]; x.inUnits() && last.Weights[s] > 0 && x.maxEpochs() == maxEpochs {
			return maxPosition, nil
		}
	}
	w := p.walk()
	_, err := w.seek(maxPosition)
	return w.to, err
}
