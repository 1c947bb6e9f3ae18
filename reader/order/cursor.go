package order

import (
	"context"
	"io"
	"slices"
)

// Ref is one sample of a batch.
type Ref struct {
	Number uint64 // in storage order
	// Slot is the Span it belongs to. It says nothing for padding, whose block may be in no open span.
	Slot    uint64
	Block   uint32 // in the Table
	Index   uint32 // in the block
	Epoch   uint32 // of the source
	Draw    uint32 // of a view with weights: counts from 0 the draws of the sample in its block
	Source  uint16 // in a mix, its number; otherwise 0
	Padding bool   // a repeat that only fills the batch (TailPad)
}

// Span is the blocks of one slot: a run, or the piece of it that one lane has. It is the unit of
// reading: open from the first batch of this rank that has a sample of it to the last that can have
// one, at most W ticks. A run cut by the end of a lane is two spans that share a block.
type Span struct {
	Slot   uint64 // counts from 1, unique in a Cursor
	Epoch  uint64
	Lane   uint32
	Block  uint32 // its first block
	Blocks uint32 // how many, all of one shard; those without samples in between count
	Source uint16 // in a mix, its number; otherwise 0
	// Place counts samples of this rank's part of the batch: in Opened those before the first of the
	// span, in Closed those after which it may go.
	Place int
}

// Batch describes a global batch and this rank's part in it.
type Batch struct {
	// Epoch and Position are where the batch begins. With TailDrop that may be later than where the
	// last one ended. In a mix both are the mix's own, and Position counts over all epochs.
	Epoch, Position uint64
	// NextEpoch and NextPosition are where the next one begins: what a checkpoint holds once this
	// batch is consumed.
	NextEpoch, NextPosition uint64
	Global                  int // samples in the global batch with padding: G, or fewer under TailShort
	First                   int // place of this rank's first sample in the global batch
	// Entries are the places in the global batch of this rank's samples or units, in their order, if
	// they are others than First and the following ones. Valid until the next call.
	Entries []uint32
	// Of is how many units the epoch has that an order of units begins the batch in; else 0.
	Of uint64
	// Opened are the spans with their first sample in this batch, in order of first use; Closed
	// those that no later batch of this cursor needs. Padding opens nothing. A span is closed once;
	// at an epoch's turn all are. Both are valid until the next call.
	Opened, Closed []Span
	// Cuts are nil where a position holds a sample. Where it holds a unit, Global and First count
	// units, there are references to the samples of each unit, and Cuts has one for each reference.
	// Valid until the next call.
	Cuts []Cut
}

// Entry returns the place in the global batch of sample or unit i of this rank's part.
func (b *Batch) Entry(i int) int {
	if b.Entries != nil {
		return int(b.Entries[i])
	}
	return b.First + i
}

// Cut is a sample in a unit, or a piece of one.
type Cut struct {
	Unit   uint32 // in this rank's part of the batch, from 0
	Offset uint32 // where the piece begins in the sample
	Length uint32
	Whole  uint32 // length of the sample
}

// Cursor walks the order from a place on, for one rank at a time. It is not safe for concurrent
// use. It may run ahead of what is consumed at will; it reads nothing but what Groups of the table
// load. Held: four bytes a run and the windows of the lanes that its rank's share touches.
type Cursor struct {
	plan     *Plan
	epoch    uint64
	position uint64 // below N
	end      uint64 // first epoch not to begin a batch in
	loaded   bool
	order    epochOrder
	lanes    []*lane // nil where this rank's share has not been yet

	first          int // length of dst when the call began
	handed         int // samples handed out by the call, as of the current lane's last tick
	serial         uint64
	opened, closed []Span
	bodies         []*body // free
	sizes          []uint32

	ctx    context.Context // nil: context.Background()
	failed error           // of Groups.Load
}

// Within makes Groups.Load of the table wait no longer than ctx lasts.
func (c *Cursor) Within(ctx context.Context) { c.ctx = ctx }

func (c *Cursor) context() context.Context {
	if c.ctx == nil {
		return context.Background()
	}
	return c.ctx
}

// Seek returns a cursor at a position of an epoch: 0..N, where N is position 0 of the next. The
// cost is a permutation of the runs of the epoch, whatever the position.
func (p *Plan) Seek(epoch, position uint64) (*Cursor, error) {
	epoch, position, err := p.checkPlace(epoch, position)
	if err != nil {
		return nil, err
	}
	c := &Cursor{plan: p, epoch: epoch, position: position, end: maxEpochs, lanes: make([]*lane, p.params.Lanes)}
	if epoch < maxEpochs {
		c.load(uint32(epoch))
	}
	return c, nil
}

// Until ends the order before an epoch: no batch begins in it or later. A wrapping batch that
// begins before it is whole all the same.
func (c *Cursor) Until(epoch uint64) { c.end = min(epoch, maxEpochs) }

// NextBatch appends this rank's part of the next global batch to dst and moves past the whole of
// it. The split may change from call to call; another rank is another part of the same sequence of
// global batches. A rank's part may be empty. At the end, and for a data set without samples, the
// error is io.EOF.
//
// The cost is proportional to the ticks the part touches. The first batch of an epoch also permutes
// its runs. After an error of Groups.Load every call returns it.
func (c *Cursor) NextBatch(dst []Ref, s Split) ([]Ref, Batch, error) {
	if err := c.plan.CheckSplit(s); err != nil {
		return dst, Batch{}, err
	}
	c.opened, c.closed, c.first, c.handed = c.opened[:0], c.closed[:0], len(dst), 0
	total, tail, g := c.plan.total, c.plan.params.Tail, uint64(s.GlobalBatch)
	if total == 0 {
		return dst, Batch{}, io.EOF
	}
	epoch, position := c.epoch, c.position
	if tail == TailDrop && total-position < g {
		epoch, position = epoch+1, 0
	}
	if epoch >= c.end {
		return dst, Batch{}, io.EOF
	}
	listed := g
	if tail == TailShort {
		listed = min(g, total-position)
	}
	if tail == TailWrap && (g-min(g, total-position)+total-1)/total > maxEpochs-1-epoch {
		return dst, Batch{}, io.EOF // the last epoch there is cannot fill the batch
	}
	b := Batch{Epoch: epoch, Position: position, Global: int(listed)}
	from, to := Share(listed, s.Rank, s.World), Share(listed, s.Rank+1, s.World)
	b.First = int(from)
	dst = slices.Grow(dst, int(to-from))
	c.epoch, c.position = epoch, position
	dst = c.list(dst, listed, from, to)
	b.NextEpoch, b.NextPosition = c.epoch, c.position
	b.Opened, b.Closed = c.opened, c.closed
	return dst, b, c.failed
}

// list appends places from..to of the list of the next global batch and moves past all of it.
func (c *Cursor) list(dst []Ref, listed, from, to uint64) []Ref {
	for done := uint64(0); done < listed; {
		n := min(listed-done, c.plan.total-c.position)
		low, high := max(from, done), min(to, done+n)
		if low < high {
			c.load(uint32(c.epoch))
			dst = c.part(dst, n, low-done, high-done, false)
		}
		done += n
		if c.position+n < c.plan.total {
			c.position += n
			return dst // only the end of an epoch leaves a list unfinished
		}
		if c.plan.params.Tail == TailPad && max(from, done) < to {
			c.load(uint32(c.epoch))
			dst = c.pad(dst, n, max(from, done), to)
		}
		c.epoch, c.position = c.epoch+1, 0
		c.leave()
		if c.plan.params.Tail == TailPad {
			return dst
		}
	}
	return dst
}

// pad appends places from ≤ k < to of a list that repeats its first n, which are the next n
// positions.
func (c *Cursor) pad(dst []Ref, n, from, to uint64) []Ref {
	once := min(to, from+n)
	for from < once {
		low := from % n
		high := min(n, low+once-from)
		dst = c.part(dst, n, low, high, true)
		from += high - low
	}
	for ; from < to; from++ {
		dst = append(dst, dst[uint64(len(dst))-n])
	}
	return dst
}

// part appends places from ≤ k < to of the list of the next n positions, all of one epoch: lane by
// lane.
func (c *Cursor) part(dst []Ref, n, from, to uint64, padding bool) []Ref {
	c.expectAll(n, from, to)
	c.eachLane(n, from, to, func(l int, low, high uint64) {
		dst = c.lane(l).read(c, dst, low, high, padding)
	})
	return dst
}

// eachLane calls f for the lanes of these places, with the lane indices low ≤ k < high of each.
func (c *Cursor) eachLane(n, from, to uint64, f func(l int, low, high uint64)) {
	v := uint64(c.plan.params.Lanes)
	x, y := c.position, c.position+n
	begin, end := round{x / v, uint32(x % v)}, round{y / v, uint32(y % v)}
	var place uint64 // of the lane's first sample in the list
	for l, turn := range c.plan.turn {
		low := begin.index(turn)
		next := place + end.index(turn) - low
		if next > from && next > place {
			f(l, low+max(from, place)-place, low+min(to, next)-place)
			if next >= to {
				return
			}
		}
		place = next
	}
}

// load makes the order of an epoch the current one.
func (c *Cursor) load(epoch uint32) {
	if c.loaded && c.order.epoch == epoch {
		return
	}
	c.leave()
	c.order.load(c.plan, epoch)
	c.loaded = true
	for l, n := range c.lanes {
		if n != nil {
			n.enter(&c.plan.params, &c.order.arcs[l])
		}
	}
}

// lane is lane l in the current epoch.
func (c *Cursor) lane(l int) *lane {
	n := c.lanes[l]
	if n == nil {
		n = &lane{id: l}
		n.enter(&c.plan.params, &c.order.arcs[l])
		c.lanes[l] = n
	}
	return n
}

// leave closes every span of the epoch.
func (c *Cursor) leave() {
	for _, n := range c.lanes {
		if n != nil && n.started {
			n.leave(c)
		}
	}
}

func (c *Cursor) open(n *lane, s *slot, place int) {
	c.serial++
	s.serial = c.serial
	c.opened = append(c.opened, c.span(n, s, place))
}

func (c *Cursor) span(n *lane, s *slot, place int) Span {
	return Span{
		Slot: s.serial, Epoch: uint64(c.order.epoch), Lane: uint32(n.id),
		Block: s.block, Blocks: s.body.last - s.block + 1, Place: place,
	}
}

// body takes a free body, or makes one.
func (c *Cursor) body() *body {
	if n := len(c.bodies); n > 0 {
		b := c.bodies[n-1]
		c.bodies = c.bodies[:n-1]
		return b
	}
	return new(body)
}
