package units

import (
	"fmt"
	"io"
	"sync"

	"github.com/shardtool/shardtool/reader/order"
)

// Line is the units of all epochs of an order, one epoch after another, as a mix reads them from a
// source. Plans plans the epochs. A Line is safe for concurrent use if its Plans are.
type Line struct {
	units *Units
	plans Plans
	known *lineCounts
}

// lineCounts are the units of the epochs asked for.
type lineCounts struct {
	mu     sync.Mutex
	counts map[uint64]uint64
}

// Line returns the line of the units.
func (u *Units) Line(plans Plans) *Line {
	return &Line{u, plans, &lineCounts{counts: map[uint64]uint64{}}}
}

// With returns the same line with other plans, such as plans with another context. Both lines share
// the numbers of units that they have learned.
func (l *Line) With(plans Plans) *Line { return &Line{l.units, plans, l.known} }

// Units returns the units of the line.
func (l *Line) Units() *Units { return l.units }

// Len returns U(e), the units of an epoch. The first call for an epoch costs its plan.
func (l *Line) Len(epoch uint64) (uint64, error) {
	l.known.mu.Lock()
	n, known := l.known.counts[epoch]
	l.known.mu.Unlock()
	if known {
		return n, nil
	}
	p, err := l.plans(epoch)
	if err != nil {
		return 0, err
	}
	l.known.mu.Lock()
	defer l.known.mu.Unlock()
	l.known.counts[epoch] = p.Units()
	return p.Units(), nil
}

// Seek returns a cursor at a position of an epoch.
func (l *Line) Seek(epoch, position uint64) (*Cursor, error) {
	return l.units.Seek(epoch, position, l.plans)
}

// NextPart skips skip units, appends the references of the units from ≤ k < to of the list of the n
// units after them, and moves past all n. See order.Cursor.NextPart. If the order ends within these
// units, the error is io.EOF and the cursor must not be used again.
func (c *Cursor) NextPart(dst []order.Ref, skip, n, from, to uint64) ([]order.Ref, order.Batch, error) {
	switch tail := c.units.order.Params().Tail; {
	case tail != order.TailWrap:
		return dst, order.Batch{}, fmt.Errorf("parts of an order with tail %q: give wrap", tail)
	case from > to || to > n:
		return dst, order.Batch{}, fmt.Errorf("places %d to %d of a part of %d", from, to, n)
	case n == 0:
		return dst, order.Batch{}, nil
	case c.units.order.Samples() == 0:
		return dst, order.Batch{}, io.EOF
	}
	c.opened, c.closed, c.cuts, c.handed = c.opened[:0], c.closed[:0], c.cuts[:0], 0
	if err := c.pass(skip); err != nil {
		return dst, order.Batch{}, err
	}
	if c.epoch >= order.MaxEpochs {
		return dst, order.Batch{}, io.EOF
	}
	b := order.Batch{Epoch: c.epoch, Position: c.position, Global: int(n), First: int(from)}
	dst, err := c.list(dst, n, from, to)
	if err != nil {
		return dst, order.Batch{}, err
	}
	b.NextEpoch, b.NextPosition = c.epoch, c.position
	b.Opened, b.Closed, b.Cuts = c.opened, c.closed, c.cuts
	return dst, b, nil
}

// pass moves past units without listing them.
func (c *Cursor) pass(units uint64) error {
	for units > 0 {
		if c.epoch >= order.MaxEpochs {
			return io.EOF
		}
		if err := c.load(); err != nil {
			return err
		}
		left := c.plan.Units() - c.position
		if units < left {
			c.position += units
			return nil
		}
		units -= left
		c.turn()
	}
	return nil
}
