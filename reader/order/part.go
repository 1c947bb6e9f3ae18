package order

import (
	"fmt"
	"io"
	"math/bits"
	"slices"
)

// NextPart passes over skip places, appends the places from ≤ k < to of the list of the n places
// after them, and moves past all n. The list is epoch by epoch, and lane by lane within an epoch
// (SPEC.md, "Global batches and ranks"). NextBatch deals a batch to ranks by itself; NextPart is
// for a caller that knows the places, as a mix does: n is one source's part of a global batch, from
// and to the rank's part of that. The parameters must have TailWrap. Where the order ends within
// these places, the error is io.EOF and the cursor has not moved. After an error of Groups.Load
// every call returns it.
//
// In the Batch, Global is n and First is from.
func (c *Cursor) NextPart(dst []Ref, skip, n, from, to uint64) ([]Ref, Batch, error) {
	switch {
	case c.plan.params.Tail != TailWrap:
		return dst, Batch{}, fmt.Errorf("parts of an order with tail %q: give wrap", c.plan.params.Tail)
	case from > to || to > n:
		return dst, Batch{}, fmt.Errorf("places %d to %d of a part of %d", from, to, n)
	case n == 0:
		return dst, Batch{}, nil
	case !c.reaches(skip, n):
		return dst, Batch{}, io.EOF
	}
	c.opened, c.closed, c.first, c.handed = c.opened[:0], c.closed[:0], len(dst), 0
	c.pass(skip)
	b := Batch{Epoch: c.epoch, Position: c.position, Global: int(n), First: int(from)}
	dst = c.list(slices.Grow(dst, int(to-from)), n, from, to)
	b.NextEpoch, b.NextPosition = c.epoch, c.position
	b.Opened, b.Closed = c.opened, c.closed
	return dst, b, c.failed
}

// reaches reports whether the order has n more places after skip.
func (c *Cursor) reaches(skip, n uint64) bool {
	last, carry := bits.Add64(c.position+skip, n-1, 0) // position and skip are below 2^63
	return carry == 0 && c.plan.total > 0 && c.epoch < c.end && last/c.plan.total <= maxEpochs-1-c.epoch
}

// pass moves past places without listing them.
func (c *Cursor) pass(places uint64) {
	c.position += places
	if c.position >= c.plan.total {
		c.leave()
		c.epoch, c.position = c.epoch+c.position/c.plan.total, c.position%c.plan.total
	}
}

// Check returns an error that names what is out of its limits in a split, nil when nothing is.
func (s Split) Check() error {
	if err := s.validate(); err != nil {
		return err
	}
	return nil
}
