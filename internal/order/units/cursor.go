package units

import (
	"errors"
	"fmt"
	"io"

	"github.com/shardtool/shardtool/reader/order"
)

// Plans returns the plan of an epoch. A Cursor asks for the plan of an epoch when it gets there.
type Plans func(epoch uint64) (*Plan, error)

// Cursor walks the units of an order from a place on, for one rank at a time. It is not safe for
// concurrent use. It may run ahead of the consumer; it reads nothing. It holds what an order.Cursor
// holds, and one window for each arc that its rank's part touches.
type Cursor struct {
	units    *Units
	plans    Plans
	plan     *Plan // of epoch; nil until it is needed
	lanes    *order.Lanes
	arcs     []*arc // nil where this rank's part has not been yet
	epoch    uint64
	position uint64 // below the units of the epoch
	end      uint64 // first epoch not to begin a batch in

	former *former
	// Of a call.
	opened, closed []order.Span
	cuts           []order.Cut
	handed         uint32 // units handed out
}

// Seek returns a cursor at a position of an epoch, which counts units: 0..U, where U is position 0
// of the next. It costs the plan, and permuting the runs of the epoch.
func (u *Units) Seek(epoch, position uint64, plans Plans) (*Cursor, error) {
	c := &Cursor{
		units: u, plans: plans, epoch: epoch, end: order.MaxEpochs,
		arcs: make([]*arc, u.order.Params().Lanes), former: newFormer(u.params),
	}
	if epoch > order.MaxEpochs || epoch == order.MaxEpochs && position > 0 {
		return nil, fmt.Errorf("epoch %d, position %d: epochs end at %d", epoch, position, order.MaxEpochs-1)
	}
	if position == 0 || u.order.Samples() == 0 {
		return c, nil
	}
	if err := c.load(); err != nil {
		return nil, err
	}
	switch n := c.plan.Units(); {
	case position > n:
		return nil, fmt.Errorf("position %d is past the %d units of epoch %d", position, n, epoch)
	case position == n:
		c.turn()
	default:
		c.position = position
	}
	return c, nil
}

// Until ends the order before an epoch: no batch begins in it or later. A wrapping batch that
// begins before it is whole all the same.
func (c *Cursor) Until(epoch uint64) { c.end = min(epoch, order.MaxEpochs) }

// Place returns where the next batch begins, before TailDrop moves it on.
func (c *Cursor) Place() (epoch, position uint64) { return c.epoch, c.position }

// NextBatch appends the references of this rank's part of the next global batch to dst, unit by
// unit, and moves past the whole of it. See order.Cursor.NextBatch; Cuts of the batch has the
// pieces and the units.
//
// The first batch of an epoch needs its plan, and permutes the runs.
func (c *Cursor) NextBatch(dst []order.Ref, s order.Split) ([]order.Ref, order.Batch, error) {
	if err := s.Check(); err != nil {
		return dst, order.Batch{}, err
	}
	g, tail := uint64(s.GlobalBatch), c.units.order.Params().Tail
	c.opened, c.closed, c.cuts, c.handed = c.opened[:0], c.closed[:0], c.cuts[:0], 0
	left, err := c.begin(g)
	if err != nil {
		return dst, order.Batch{}, err
	}
	listed := g
	if tail == order.TailShort {
		listed = min(g, left)
	}
	from, to := order.Share(listed, s.Rank, s.World), order.Share(listed, s.Rank+1, s.World)
	b := order.Batch{Epoch: c.epoch, Position: c.position, Global: int(listed), First: int(from), Of: c.plan.Units()}
	if dst, err = c.list(dst, listed, from, to); err != nil {
		return dst, order.Batch{}, err
	}
	b.NextEpoch, b.NextPosition = c.epoch, c.position
	b.Opened, b.Closed, b.Cuts = c.opened, c.closed, c.cuts
	return dst, b, nil
}

// begin moves to where a batch of g units begins, and returns how many units are left there. The
// cursor has not moved when the order ends.
func (c *Cursor) begin(g uint64) (left uint64, err error) {
	if c.units.order.Samples() == 0 || c.epoch >= c.end {
		return 0, io.EOF
	}
	if err := c.load(); err != nil {
		return 0, err
	}
	left = c.plan.Units() - c.position
	if c.units.order.Params().Tail != order.TailDrop || left >= g {
		return left, nil
	}
	if c.epoch+1 >= c.end {
		return 0, io.EOF
	}
	c.turn()
	if err := c.load(); err != nil {
		return 0, err
	}
	if left = c.plan.Units(); left < g {
		return 0, errDropsAll(g, c.plan)
	}
	return left, nil
}

// load makes the order of the epoch the current one.
func (c *Cursor) load() (err error) {
	if c.plan != nil {
		return nil
	}
	if c.plan, err = c.plans(c.epoch); err != nil {
		return err
	}
	if c.plan.Epoch() != c.epoch {
		err := fmt.Errorf("the plan of epoch %d for epoch %d", c.plan.Epoch(), c.epoch)
		c.plan = nil
		return err
	}
	if c.lanes == nil {
		c.lanes = c.units.order.Lanes(uint32(c.epoch))
	}
	c.lanes.Load(uint32(c.epoch))
	return nil
}

// turn moves to the next epoch and closes every span of this one.
func (c *Cursor) turn() {
	for _, a := range c.arcs {
		if a != nil {
			a.leave(c)
		}
	}
	c.epoch, c.position, c.plan = c.epoch+1, 0, nil
}

// list appends places from..to of the list of the next global batch and moves past all of it.
func (c *Cursor) list(dst []order.Ref, listed, from, to uint64) (_ []order.Ref, err error) {
	pad := c.units.order.Params().Tail == order.TailPad
	for done := uint64(0); done < listed; {
		if err := c.load(); err != nil {
			return dst, err
		}
		total := c.plan.Units()
		n := min(listed-done, total-c.position)
		if low, high := max(from, done), min(to, done+n); low < high {
			if dst, err = c.part(dst, n, low-done, high-done, false); err != nil {
				return dst, err
			}
		}
		if pad && done+n < listed {
			if dst, err = c.pad(dst, n, max(from, n), to); err != nil {
				return dst, err
			}
		}
		done += n
		if c.position += n; c.position == total {
			c.turn()
		}
		if pad {
			return dst, nil
		}
		if done < listed && c.epoch >= order.MaxEpochs {
			return dst, io.EOF // the last epoch there is cannot fill the batch
		}
	}
	return dst, nil
}

// part appends places from ≤ k < to of the list of the next n positions: arc by arc.
func (c *Cursor) part(dst []order.Ref, n, from, to uint64, padding bool) (_ []order.Ref, err error) {
	o, total := c.units.order, c.plan.Units()
	var place, start uint64 // of the arc's first unit: in the list, and in the line
	for l := range c.arcs {
		low, high := o.ArcIndex(c.position, l), o.ArcIndex(c.position+n, l)
		next := place + high - low
		if next > from && next > place {
			if c.arcs[l] == nil {
				c.arcs[l] = &arc{reader: c.lanes.Reader(), window: -1}
			}
			if dst, err = c.arcs[l].read(c, dst, start+low+max(from, place)-place, start+low+min(to, next)-place,
				padding); err != nil {
				return dst, err
			}
			if next >= to {
				break
			}
		}
		place = next
		start += o.ArcIndex(total, l)
	}
	return dst, nil
}

// pad appends places from ≤ k < to of a list that repeats its first n. It reads them with another
// cursor: padding opens no span, and it is rare.
func (c *Cursor) pad(dst []order.Ref, n, from, to uint64) ([]order.Ref, error) {
	if from >= to {
		return dst, nil
	}
	again, err := c.units.Seek(c.epoch, c.position, func(uint64) (*Plan, error) { return c.plan, nil })
	if err != nil {
		return dst, err
	}
	if err := again.load(); err != nil {
		return dst, err
	}
	refs, err := again.part(nil, n, 0, n, true)
	if err != nil {
		return dst, err
	}
	ends := make([]int, n) // of each unit, in refs
	for i, cut := range again.cuts {
		ends[cut.Unit] = i + 1
	}
	for ; from < to; from++ {
		k := from % n
		begin := 0
		if k > 0 {
			begin = ends[k-1]
		}
		for i := begin; i < ends[k]; i++ {
			cut := again.cuts[i]
			cut.Unit = c.handed
			dst, c.cuts = append(dst, refs[i]), append(c.cuts, cut)
		}
		c.handed++
	}
	return dst, nil
}

// arc is an arc of the line of units as a cursor reads it: one window at a time.
type arc struct {
	reader *order.LaneReader
	window int // the current one, of all lanes; -1 for none
	refs   []order.Ref
	items  []item
	order  []uint32 // items, unit by unit as they were formed
	ends   []uint32 // of the units in order
	units  []uint32 // the units in their order
	closed []order.Span
}

// errPlan is returned for a plan that was made for another order.
var errPlan = errors.New("the plan does not belong to the order")

// read appends the units at the places from ≤ x < to of the line.
func (a *arc) read(c *Cursor, dst []order.Ref, from, to uint64, padding bool) ([]order.Ref, error) {
	for x := from; x < to; {
		number := a.window
		if number < 0 || x < c.plan.before[number] || x >= c.plan.before[number+1] {
			var err error
			if number, err = a.move(c, x); err != nil {
				return dst, err
			}
		}
		stop := min(to, c.plan.before[number+1])
		for ; x < stop; x++ {
			dst = a.append(c, dst, a.units[x-c.plan.before[number]], padding)
		}
	}
	return dst, nil
}

// append appends a unit.
func (a *arc) append(c *Cursor, dst []order.Ref, unit uint32, padding bool) []order.Ref {
	begin := uint32(0)
	if unit > 0 {
		begin = a.ends[unit-1]
	}
	for _, i := range a.order[begin:a.ends[unit]] {
		it := &a.items[i]
		r := a.refs[it.sample]
		if padding {
			r.Padding, r.Slot = true, 0
		}
		dst = append(dst, r)
		c.cuts = append(c.cuts, order.Cut{Unit: c.handed, Offset: it.offset, Length: it.length,
			Whole: c.units.lengths[r.Number]})
	}
	c.handed++
	return dst
}

// move makes the window with the unit at a place of the line the current one. Spans that only the
// window before needs are closed: it has been read, or another rank reads the rest.
func (a *arc) move(c *Cursor, place uint64) (int, error) {
	c.closed, a.closed = append(c.closed, a.closed...), a.closed[:0]
	number, lane, inLane := c.plan.window(place)
	u, window := c.units, uint64(c.units.params.Window)
	from := uint64(inLane) * window
	a.refs = a.reader.Read(a.refs[:0], lane, from, min(from+window, c.lanes.Len(lane)))
	opened, closed := c.lanes.Spans()
	c.opened, a.closed = append(c.opened, opened...), append(a.closed, closed...)
	f := c.former
	n, err := u.form(f, a.refs)
	if err == nil && uint64(n) != c.plan.before[number+1]-c.plan.before[number] {
		err = errPlan
	}
	if err != nil {
		a.window = -1
		return 0, err
	}
	f.group(n)
	a.window = number
	a.items, a.order, a.ends = append(a.items[:0], f.items...), append(a.order[:0], f.order...), append(a.ends[:0],
		f.ends...)
	a.units = a.units[:0]
	for i := range n {
		a.units = append(a.units, uint32(i))
	}
	u.order.ShuffleUnits(a.units, lane, uint32(c.epoch), inLane)
	return number, nil
}

// leave closes every span.
func (a *arc) leave(c *Cursor) {
	a.reader.Leave()
	opened, closed := c.lanes.Spans()
	c.opened = append(c.opened, opened...)
	c.closed = append(append(c.closed, a.closed...), closed...)
	a.closed, a.window = a.closed[:0], -1
}
