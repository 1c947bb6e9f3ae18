package order

import (
	"math"
	"slices"
)

// lane is a lane as a cursor reads it: the current tick, and the slots this tick and later ones
// draw from.
//
// Slots live in a ring of at least min(W, m) places, slot q at place q mod its size. due holds the
// tick in which a slot is next drawn from, and low the least due of each group of 64 places: with
// blocks of fewer samples than W most ticks draw from few of the W slots, and whole groups are
// passed over.
type lane struct {
	id      int
	arc     *arc
	dealing dealing
	started bool // a tick is current; the fields below hold
	passed  bool // the tick has been read to its end, its spent slots are closed
	made    bool // queue is filled

	at         uint64 // lane index of the next sample to hand out
	tick       uint64
	start, end uint64 // lane indices of the tick
	draws      []draw
	queue      []uint64 // the tick's samples in order: place in ring<<32 | place in piece
	ring       []slot
	due        []uint64
	low        []uint64
}

// draw is what one tick takes of one slot: its samples from ≤ u < to.
type draw struct{ place, from, to uint32 }

const (
	never      = math.MaxUint64
	groupShift = 6
	groupSize  = 1 << groupShift

	// seekBeyond ticks it is cheaper to search for a tick than to step there.
	seekBeyond = 8
)

// enter begins an epoch: no tick is current. The ring is kept when it is large enough.
func (n *lane) enter(p *Params, a *arc) {
	n.arc, n.started = a, false
	if a.count == 0 {
		return
	}
	n.dealing = newDealing(p, a.count)
	size := 1
	for size < int(min(uint64(p.Delay), uint64(a.count))) {
		size *= 2
	}
	if len(n.ring) < size {
		n.ring = make([]slot, size)
		n.due = make([]uint64, size)
		n.low = make([]uint64, (size+groupSize-1)>>groupShift)
	}
}

// seek makes the tick of lane index k current. Slots that were live and still are keep their
// permutation.
func (n *lane) seek(c *Cursor, k uint64) {
	d := &n.dealing
	tick, start, sizes := d.find(&c.order, n.arc, k, c.sizes)
	c.sizes = sizes
	first := tick - min(tick, d.delay-1)
	for i := range n.ring {
		if s := &n.ring[i]; s.samples != 0 && (uint64(s.q) < first || uint64(s.q) > tick) {
			n.drop(c, s)
		}
		n.due[i] = never
	}
	for q := first; q <= tick; q++ {
		i := q & uint64(len(n.ring)-1)
		s := &n.ring[i]
		size := c.order.size(n.arc, n.arc.first+int(q))
		var dealt uint64
		if tick > d.first && q < tick {
			dealt = d.through(q, uint64(size), tick-1)
		}
		if dealt == uint64(size) {
			if s.samples != 0 {
				n.drop(c, s)
			}
			continue
		}
		if s.samples == 0 {
			*s = slot{q: uint32(q), samples: size}
		}
		s.dealt = uint32(dealt)
		n.due[i] = d.tickOf(q, uint64(size), dealt)
	}
	for g := range n.low {
		n.lower(g)
	}
	n.started, n.tick, n.end = true, tick, start
	n.draw(first)
}

// step makes the next tick current. The tick before has been passed.
func (n *lane) step(c *Cursor) {
	n.tick++
	i := n.tick & uint64(len(n.ring)-1)
	n.ring[i] = slot{q: uint32(n.tick), samples: c.order.size(n.arc, n.arc.first+int(n.tick))}
	n.due[i] = n.tick
	n.low[i>>groupShift] = min(n.low[i>>groupShift], n.tick)
	n.draw(n.tick - min(n.tick, n.dealing.delay-1))
}

// draw takes from the slots first..tick, in order, what is due in the tick.
func (n *lane) draw(first uint64) {
	n.draws = n.draws[:0]
	n.start, n.passed, n.made = n.end, false, false
	mask := uint64(len(n.ring) - 1)
	for q := first; q <= n.tick; {
		g := (q & mask) >> groupShift
		stop := min(q|(groupSize-1), n.tick)
		if n.low[g] > n.tick {
			q = stop + 1
			continue
		}
		for ; q <= stop; q++ {
			if i := q & mask; n.due[i] == n.tick {
				n.take(i)
			}
		}
		n.lower(int(g))
	}
}

func (n *lane) take(i uint64) {
	s, d := &n.ring[i], &n.dealing
	q, size := uint64(s.q), uint64(s.samples)
	to := d.through(q, size, n.tick)
	n.draws = append(n.draws, draw{uint32(i), s.dealt, uint32(to)})
	n.end += to - uint64(s.dealt)
	s.dealt = uint32(to)
	switch {
	case to == size:
		n.due[i] = never
	case size >= d.delay: // at least one sample a tick
		n.due[i] = n.tick + 1
	default:
		n.due[i] = d.tickOf(q, size, to)
	}
}

// lower recomputes the least due of a group.
func (n *lane) lower(g int) {
	least := uint64(never)
	for _, t := range n.due[g<<groupShift : min((g+1)<<groupShift, len(n.due))] {
		least = min(least, t)
	}
	n.low[g] = least
}

// pass ends the current tick: slots with nothing left are closed.
func (n *lane) pass(c *Cursor) {
	if n.passed {
		return
	}
	n.passed = true
	for _, d := range n.draws {
		if s := &n.ring[d.place]; s.dealt == s.samples {
			n.drop(c, s)
		}
	}
}

// leave closes every slot.
func (n *lane) leave(c *Cursor) {
	for i := range n.ring {
		if n.ring[i].samples != 0 {
			n.drop(c, &n.ring[i])
		}
	}
	n.started = false
}

func (n *lane) drop(c *Cursor, s *slot) {
	if s.serial != 0 {
		c.closed = append(c.closed, c.span(n, s, c.handed))
	}
	if s.body != nil {
		c.bodies = append(c.bodies, s.body)
	}
	*s = slot{}
}

// moveTo makes k the next index handed out. k is below the lane's length.
func (n *lane) moveTo(c *Cursor, k uint64) {
	if n.started && k == n.at && k < n.end {
		return
	}
	n.at = k
	if !n.started || k < n.start || k < n.end && n.passed {
		n.seek(c, k)
		return
	}
	for range seekBeyond {
		if k < n.end {
			return
		}
		n.pass(c)
		n.step(c)
	}
	if k >= n.end {
		n.pass(c)
		n.seek(c, k)
	}
}

// fill puts the samples of the current tick into their order.
func (n *lane) fill(c *Cursor) {
	n.made = true
	n.queue = slices.Grow(n.queue[:0], int(n.end-n.start))
	if c.plan.table.Groups != nil {
		n.expect(c)
	}
	for _, d := range n.draws {
		s := &n.ring[d.place]
		if s.body == nil {
			s.fill(c, n.id, c.body())
		}
		place := uint64(d.place) << 32
		for _, x := range s.body.order[d.from:d.to] {
			n.queue = append(n.queue, place|uint64(x))
		}
	}
	if c.plan.params.Shuffle {
		shuffle(n.queue, newWords(c.plan.params.Seed, domainTick, uint32(n.id), c.order.epoch, uint32(n.tick)))
	}
}

// read appends the samples at lane indices from ≤ k < to. Padding opens no slot: it is often of
// other ranks' lanes, and nothing after the batch needs it.
func (n *lane) read(c *Cursor, dst []Ref, from, to uint64, padding bool) []Ref {
	for n.moveTo(c, from); ; n.moveTo(c, n.at) {
		if !n.made {
			n.fill(c)
		}
		stop := min(to, n.end)
		dst = n.list(c, dst, n.queue[n.at-n.start:stop-n.start], padding)
		n.at = stop
		c.handed = len(dst) - c.first
		if stop == n.end {
			n.pass(c)
		}
		if stop == to {
			return dst
		}
	}
}

// list appends samples of the current tick. Each reference is written field by field where it
// belongs: a literal would be built on the stack and copied, which makes it 21 ns for a sample
// instead of 16, all of the order's work included.
func (n *lane) list(c *Cursor, dst []Ref, queue []uint64, padding bool) []Ref {
	at := len(dst)
	dst = slices.Grow(dst, len(queue))[:at+len(queue)]
	epoch := c.order.epoch
	for i, x := range queue {
		s, place := &n.ring[x>>32], uint32(x)
		if s.serial == 0 && !padding {
			c.open(n, s, at+i-c.first)
		}
		r := &dst[at+i]
		r.Number, r.Block, r.Index = s.number+uint64(place), s.block, s.index+place
		r.Slot, r.Epoch, r.Draw, r.Source, r.Padding = s.serial, epoch, 0, 0, padding
		if s.mapped {
			s.find(place, r)
		}
	}
	return dst
}
