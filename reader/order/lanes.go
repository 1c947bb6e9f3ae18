package order

import (
	"encoding/binary"
	"hash"
)

// Lanes reads the lanes of one epoch, any stretch of any of them: what package units builds on. It
// is not safe for concurrent use; Fork makes one for another goroutine.
type Lanes struct{ c Cursor }

// Lanes returns the lanes of an epoch, below 2^32, of a table without Groups. The cost is a
// permutation of its runs.
func (p *Plan) Lanes(epoch uint32) *Lanes {
	l := &Lanes{c: Cursor{plan: p, loaded: true}}
	l.c.order.load(p, epoch)
	return l
}

// Fork returns lanes of the same epoch for another goroutine. They share the permuted runs.
func (l *Lanes) Fork() *Lanes {
	return &Lanes{c: Cursor{plan: l.c.plan, order: l.c.order, loaded: true}}
}

// Len is the number of samples of a lane.
func (l *Lanes) Len(lane int) uint64 { return l.c.plan.laneLength(lane) }

// Load makes another epoch the current one. Every Reader must have left its lane.
func (l *Lanes) Load(epoch uint32) {
	if l.c.order.epoch != epoch {
		l.c.order.load(l.c.plan, epoch)
	}
}

// Spans returns the spans that readers have opened and closed since the last call. Their places
// mean nothing. Both are valid until the next call of a Reader.
func (l *Lanes) Spans() (opened, closed []Span) {
	opened, closed = l.c.opened, l.c.closed
	l.c.opened, l.c.closed = l.c.opened[:0], l.c.closed[:0]
	return opened, closed
}

// LaneReader reads a lane, best from its beginning on. Readers of the same lanes count the slots of
// their references and spans together, and none shares an open span with another.
type LaneReader struct {
	of   *Lanes
	lane *lane // nil before the first call
	left bool  // the lane was left: another, or another epoch's, is entered next
}

// Reader returns a reader.
func (l *Lanes) Reader() *LaneReader { return &LaneReader{of: l, left: true} }

// Read appends the samples from ≤ k < to of a lane. Spans that were open in another lane are
// closed.
func (r *LaneReader) Read(dst []Ref, lane int, from, to uint64) []Ref {
	if from >= to {
		return dst
	}
	c := &r.of.c
	if r.lane != nil && r.lane.id != lane {
		r.Leave()
	}
	if r.left {
		r.enter(lane)
	}
	return r.lane.read(c, dst, from, to, false)
}

func (r *LaneReader) enter(id int) {
	if r.lane == nil {
		r.lane = new(lane)
	}
	r.lane.id, r.left = id, false
	r.lane.enter(&r.of.c.plan.params, &r.of.c.order.arcs[id])
}

// Leave closes the spans of the reader.
func (r *LaneReader) Leave() {
	if r.lane != nil && r.lane.started {
		r.lane.leave(&r.of.c)
	}
	r.left = true
}

// domainUnits is the domain of WORDS for the units of a window (SPEC.md, "Units").
const domainUnits = 6

// ShuffleUnits puts the units of a window of a lane into their order; an order that is not shuffled
// leaves them.
func (p *Plan) ShuffleUnits(units []uint32, lane int, epoch, window uint32) {
	if p.params.Shuffle {
		shuffle(units, newWords(p.params.Seed, domainUnits, uint32(lane), epoch, window))
	}
}

// ArcIndex is cnt(x, l) of an order of any length with the lanes of this one: how many of the
// positions below x lane l has.
func (p *Plan) ArcIndex(x uint64, l int) uint64 { return p.laneIndex(x, l) }

// HashTable writes what the order depends on of the table of blocks, which has no Groups, to a
// hash. The digest of the source stands for its view.
func (p *Plan) HashTable(h hash.Hash) {
	buf := make([]byte, 0, 1<<14)
	put := func(x uint64) {
		if buf = binary.LittleEndian.AppendUint64(buf, x); len(buf) == cap(buf) {
			h.Write(buf)
			buf = buf[:0]
		}
	}
	put(uint64(len(p.table.Samples)))
	for _, n := range p.table.Samples {
		put(uint64(n))
	}
	for _, first := range p.table.ShardFirst {
		put(uint64(first))
	}
	h.Write(append(buf, p.digest...))
}

// MaxEpochs is the number of epochs of an order: they are 0 to MaxEpochs-1.
const MaxEpochs uint64 = maxEpochs
