package mix

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/shardtool/shardtool/reader/order"
)

// Cursor walks a mix from a position on, for one rank at a time. It is not safe for concurrent use.
// It may run ahead of the consumer; it reads nothing.
type Cursor struct {
	plan     *Plan
	orders   []*order.Plan // nil where positions hold units: sources have a Line
	position uint64
	end      uint64 // first epoch of the mix not to begin a batch in
	leftOut  []Range
	here     walk // at this rank's part of the current batch
	ahead    walk // at its end
	sources  []partCursor
	moved    []uint64 // by source: how many units its cursor has passed

	// Scratch of a call, by source: counts before the batch, this rank's part and the end of the
	// batch; and the places of its units in the part.
	before, low, after []uint64
	where              [][]uint32
	sequencer          sequencer
	listed             []order.Ref // of one source
	opened, closed     []order.Span
	units              unitParts // where positions hold units
}

// partCursor is a cursor of a source: an *order.Cursor, or a *units.Cursor.
type partCursor interface {
	NextPart(dst []order.Ref, skip, n, from, to uint64) ([]order.Ref, order.Batch, error)
}

// Seek returns a cursor at a position. orders are the orders of the sources, made with Params; a
// source of weight 0 needs none. The runs of a source are permuted when its first sample is wanted.
// Where positions hold units, orders is nil, and each source of weight > 0 has a Line.
func (p *Plan) Seek(position uint64, orders []*order.Plan) (*Cursor, error) {
	if p.mix.InUnits() {
		return p.seekUnits(position)
	}
	if len(orders) != len(p.mix.Sources) {
		return nil, fmt.Errorf("%d orders for %d sources", len(orders), len(p.mix.Sources))
	}
	for s, o := range orders {
		if o == nil {
			continue
		}
		params := o.Params()
		params.MixBlock = 0
		if x := &p.mix.Sources[s]; o.Samples() != x.Units || params != p.mix.Params(s) {
			return nil, &SourceError{x.Name, fmt.Errorf("its order has %d samples and %+v, the mix %d and %+v",
				o.Samples(), params, x.Units, p.mix.Params(s))}
		}
	}
	return p.cursor(position, orders)
}

func (p *Plan) cursor(position uint64, orders []*order.Plan) (*Cursor, error) {
	here, err := p.walkTo(position)
	if err != nil {
		return nil, err
	}
	n := len(p.mix.Sources)
	return &Cursor{
		plan: p, orders: orders, position: position, end: maxPosition, here: here, ahead: here,
		sources: make([]partCursor, n), moved: make([]uint64, n), where: make([][]uint32, n),
	}, nil
}

// Until ends the stream before an epoch of the mix: no batch begins in it or later. A wrapping
// batch that begins before it is whole all the same.
func (c *Cursor) Until(epoch uint64) { c.end = epoch }

// NextBatch appends this rank's part of the next global batch to dst and moves past the whole of
// it. The split may change from call to call; another rank is another part of the same sequence of
// global batches. At the end the error is io.EOF.
//
// References and spans name their source. The Position of the batch counts over all epochs of the
// mix; where steps are left out, it may be later than where the last batch ended.
func (c *Cursor) NextBatch(dst []order.Ref, s order.Split) ([]order.Ref, order.Batch, error) {
	if err := c.plan.CheckSplit(s); err != nil {
		return dst, order.Batch{}, err
	}
	g := uint64(s.GlobalBatch)
	position, size, err := c.extent(g)
	if err != nil {
		return dst, order.Batch{}, err
	}
	global := size
	if c.plan.mix.Tail == order.TailPad {
		global = g
	}
	from, to := order.Share(global, s.Rank, s.World), order.Share(global, s.Rank+1, s.World)
	epoch := c.plan.mix.Epoch
	b := order.Batch{
		Epoch: position / epoch, Position: position, NextEpoch: (position + size) / epoch, NextPosition: position +
			size,
		Global: int(global), First: int(from),
	}
	if dst, err = c.part(dst, position, size, min(from, size), min(to, size)); err != nil {
		return dst, b, err
	}
	if to > size {
		if dst, err = c.pad(dst, position, size, max(from, size), to); err != nil {
			return dst, b, err
		}
	}
	c.position = position + size
	b.Opened, b.Closed = c.opened, c.closed
	if c.plan.mix.InUnits() {
		b.Cuts = c.units.cuts
	}
	return dst, b, nil
}

// extent returns where the next batch of g units begins, and how many positions it has.
func (c *Cursor) extent(g uint64) (position, size uint64, err error) {
	m := &c.plan.mix
	position = m.Beginning(c.position, g, c.leftOut)
	if position >= maxPosition || position/m.Epoch >= c.end {
		return 0, 0, io.EOF
	}
	size = g
	cut := m.Tail == order.TailShort || m.Tail == order.TailPad
	if cut {
		size = min(g, m.Epoch-position%m.Epoch)
	}
	more, err := c.ahead.seek(position + size - 1)
	if err != nil {
		return 0, 0, err
	}
	if !more {
		if c.ahead.to <= position || !cut { // wrap acts as drop: no sources are left to go on with
			return 0, 0, io.EOF
		}
		size = c.ahead.to - position
	}
	for _, r := range c.leftOut {
		if position < r.From && r.From < position+size {
			return 0, 0, fmt.Errorf("the positions %d to %d are left out, but the batch of %d at %d ends after they begin: use the global batch that they were given with until they have passed",
				r.From, r.To-1, size, position)
		}
	}
	return position, size, nil
}

// part appends the entries from ≤ i < to of the size positions from position on and moves the
// sources past all of them.
func (c *Cursor) part(dst []order.Ref, position, size, from, to uint64) ([]order.Ref, error) {
	c.opened, c.closed = c.opened[:0], c.closed[:0]
	if err := c.share(position, size, from, to); err != nil {
		return dst, err
	}
	if c.plan.mix.InUnits() {
		return c.listUnits(dst, int(to-from))
	}
	first := len(dst)
	dst = slices.Grow(dst, int(to-from))[:first+int(to-from)]
	for s := range c.sources {
		if c.after[s] == c.before[s] {
			continue
		}
		if err := c.list(s, dst[first:]); err != nil {
			return dst[:first], err
		}
	}
	slices.SortStableFunc(c.opened, bySpanPlace)
	slices.SortStableFunc(c.closed, bySpanPlace)
	return dst, nil
}

// share finds which source has each of the entries, and how much each source has given before and
// after.
func (c *Cursor) share(position, size, from, to uint64) (err error) {
	if _, err = c.ahead.seek(position + size - 1); err != nil {
		return err
	}
	c.after = c.ahead.counts(c.after, position+size)
	if c.before, err = c.count(c.before, position); err != nil {
		return err
	}
	if c.low, err = c.count(c.low, position+from); err != nil {
		return err
	}
	return c.interleave(position+from, position+to)
}

func bySpanPlace(a, b order.Span) int { return cmp.Compare(a.Place, b.Place) }

// count returns how much each source has given before a position, or before the end of the stream
// if that comes first.
func (c *Cursor) count(dst []uint64, position uint64) ([]uint64, error) {
	_, err := c.here.seek(position)
	return c.here.counts(dst, position), err
}

// interleave finds which source has each of the positions from ≤ g < to.
func (c *Cursor) interleave(from, to uint64) error {
	for s := range c.where {
		c.where[s] = c.where[s][:0]
	}
	for at := from; at < to; {
		if _, err := c.here.seek(at); err != nil {
			return err
		}
		stop := min(to, c.here.to)
		c.sequencer.places(c.where, &c.here.tree, at, int(at-from), int(stop-at))
		at = stop
	}
	return nil
}

// source returns the cursor of source s. It stands at the first unit that source s gives in the
// batch, or earlier.
func (c *Cursor) source(s int) (partCursor, error) {
	if c.sources[s] != nil {
		return c.sources[s], nil
	}
	x := &c.plan.mix.Sources[s]
	epoch, place, err := x.Place(c.before[s])
	if err != nil {
		return nil, err
	}
	switch {
	case x.inUnits() && x.line != nil:
		c.sources[s], err = x.line.Seek(epoch, place)
	case !x.inUnits() && c.orders[s] != nil:
		c.sources[s], err = c.orders[s].Seek(epoch, place)
	default:
		err = errors.New("it has samples in the batch, but no order was given")
	}
	if err != nil {
		c.sources[s] = nil
		return nil, err
	}
	c.moved[s] = c.before[s]
	return c.sources[s], nil
}

// next appends the units that source s gives to this rank's part, and moves the source past the
// batch.
func (c *Cursor) next(dst []order.Ref, s int) ([]order.Ref, order.Batch, error) {
	cursor, err := c.source(s)
	if err != nil {
		return dst, order.Batch{}, &SourceError{c.plan.mix.Sources[s].Name, err}
	}
	n, from := c.after[s]-c.before[s], c.low[s]-c.before[s]
	// Units that drop skips and units left out lie between the batches.
	first := len(dst)
	dst, b, err := cursor.NextPart(dst, c.before[s]-c.moved[s], n, from, from+uint64(len(c.where[s])))
	if err != nil {
		return dst, b, &SourceError{c.plan.mix.Sources[s].Name, err}
	}
	c.moved[s] = c.after[s]
	for i := first; i < len(dst); i++ {
		dst[i].Source = uint16(s)
	}
	return dst, b, nil
}

// list puts the references of source s into this rank's part.
func (c *Cursor) list(s int, part []order.Ref) error {
	listed, b, err := c.next(c.listed[:0], s)
	if err != nil {
		return err
	}
	where := c.where[s]
	c.listed = listed
	for i := range listed {
		part[where[i]] = listed[i]
	}
	for _, span := range b.Opened {
		span.Place, span.Source = int(where[span.Place]), uint16(s)
		c.opened = append(c.opened, span)
	}
	for _, span := range b.Closed {
		span.Source = uint16(s)
		if span.Place > 0 {
			span.Place = int(where[span.Place-1]) + 1
		}
		c.closed = append(c.closed, span)
	}
	return nil
}

// pad appends the places from ≤ k < to of a list that repeats the size positions from position on.
// It lists them with another cursor: padding opens no span, and it is rare.
func (c *Cursor) pad(dst []order.Ref, position, size, from, to uint64) ([]order.Ref, error) {
	whole, err := c.plan.Seek(position, c.orders)
	if err != nil {
		return dst, err
	}
	refs, err := whole.part(nil, position, size, 0, size)
	if err != nil {
		return dst, err
	}
	if c.plan.mix.InUnits() {
		return c.padUnits(dst, refs, whole.units.cuts, size, from, to), nil
	}
	for ; from < to; from++ {
		r := refs[from%size]
		r.Slot, r.Padding = 0, true
		dst = append(dst, r)
	}
	return dst, nil
}

// CheckSplit returns an error for a split that no batch can have, as CheckSplit of package order
// does. NextBatch calls it each time.
func (p *Plan) CheckSplit(s order.Split) error {
	if err := s.Check(); err != nil {
		return err
	}
	if p.mix.Tail == order.TailDrop && uint64(s.GlobalBatch) > p.mix.Epoch {
		return fmt.Errorf("global batch %d with tail drop delivers nothing of epochs of %d units: give a smaller batch or another tail", s.GlobalBatch, p.mix.Epoch)
	}
	return nil
}

// CheckRun is CheckSplit for a stream that begins, as CheckRun of package order.
func (p *Plan) CheckRun(s order.Split, endless bool) error {
	if err := p.CheckSplit(s); err != nil || !endless {
		return err
	}
	return s.Reaches(p.mix.Epoch, p.mix.Tail)
}
