package mix

import (
	"errors"
	"fmt"
	"math/bits"

	"github.com/shardtool/shardtool/reader/order"
)

// Steps numbers the batches of a run. Step is the number of the batch at Position, and from there
// on all batches have the size GlobalBatch: it is the last change of the batch size, or where a run
// continued after a batch that the end of the stream cut.
type Steps struct {
	Step, Position uint64
	GlobalBatch    int
}

// Range is the positions From ≤ g < To.
type Range struct{ From, To uint64 }

// maxLeftOut is the most ranges left out; more would not fit a checkpoint.
const maxLeftOut = 16

// Beginning returns where the batch of g units that follows a position begins: after ranges left
// out, and with drop in the next epoch if this one has fewer than g units left. The stream may end
// before it.
func (m *Mix) Beginning(position, g uint64, leftOut []Range) uint64 {
	for {
		was := position
		for _, r := range leftOut {
			if r.From <= position && position < r.To {
				position = r.To
			}
		}
		if left := m.Epoch - position%m.Epoch; m.Tail == order.TailDrop && left < g {
			position += left
		}
		if position == was {
			return position
		}
	}
}

// perEpoch returns how many batches of g units begin in n positions that end with an epoch.
func (m *Mix) perEpoch(n, g uint64) uint64 {
	if m.Tail == order.TailDrop {
		return n / g
	}
	return (n + g - 1) / g
}

// Position returns where the batch of a step begins. Steps that are left out count. The stream may
// end before it.
func (m *Mix) Position(at Steps, step uint64) (uint64, error) {
	g := uint64(at.GlobalBatch)
	switch {
	case at.GlobalBatch < 1:
		return 0, errors.New("the global batch is not known: give one")
	case step < at.Step:
		return 0, fmt.Errorf("step %d is before step %d, where the global batch changed: use an earlier checkpoint",
			step, at.Step)
	}
	n, origin := step-at.Step, at.Position
	if m.Tail != order.TailWrap {
		left := m.Epoch - origin%m.Epoch
		if first := m.perEpoch(left, g); n >= first {
			each := m.perEpoch(m.Epoch, g)
			if each == 0 {
				return 0, fmt.Errorf("global batch %d with tail drop delivers nothing of epochs of %d units", g,
					m.Epoch)
			}
			n, origin = n-first, origin+left
			epochs, ok := times(n/each, m.Epoch, origin)
			if !ok {
				return 0, pastLast(step)
			}
			n, origin = n%each, epochs
		}
	}
	position, ok := times(n, g, origin)
	if !ok {
		return 0, pastLast(step)
	}
	return position, nil
}

// Step returns the number of the batch that begins at a position, or that the position lies in.
func (m *Mix) Step(at Steps, position uint64) (uint64, error) {
	g := uint64(at.GlobalBatch)
	switch {
	case at.GlobalBatch < 1:
		return 0, errors.New("the global batch is not known: give one")
	case position < at.Position || position >= maxPosition:
		return 0, fmt.Errorf("position %d is outside %d to 2^63-1, where batches of %d are", position, at.Position, g)
	}
	n, origin := position-at.Position, at.Position
	left := m.Epoch - origin%m.Epoch
	if m.Tail == order.TailWrap || n < left {
		return at.Step + n/g, nil // in positions that drop skips, it is the batch that would begin there
	}
	n -= left
	return at.Step + m.perEpoch(left, g) + n/m.Epoch*m.perEpoch(m.Epoch, g) + n%m.Epoch/g, nil
}

// Next returns the number of the batch after the batch that ended at a position. It is Step, unless
// the end of the stream cut that batch and added sources continue there.
func (m *Mix) Next(at Steps, position uint64) (uint64, error) {
	step, err := m.Step(at, position)
	if err != nil {
		return 0, err
	}
	if begin, err := m.Position(at, step); err == nil && begin < position {
		step++
	}
	return step, nil
}

// Resize numbers the batches of g units from a position on, which follow a batch that ended there.
// at numbers the batches before; its zero value means that there are none.
func (m *Mix) Resize(at Steps, position uint64, g int) (Steps, error) {
	if at.GlobalBatch == 0 {
		return Steps{Position: position, GlobalBatch: g}, nil
	}
	next, err := m.Next(at, position)
	if err != nil {
		return at, err
	}
	if step, _ := m.Step(at, position); at.GlobalBatch == g && step == next {
		return at, nil
	}
	return Steps{Step: next, Position: position, GlobalBatch: g}, nil
}

// LeaveOut returns the positions of the steps first to last, both included. Leaving them out
// changes no other step.
func (m *Mix) LeaveOut(at Steps, first, last uint64) (Range, error) {
	if last < first {
		return Range{}, fmt.Errorf("steps %d to %d: give the lower one first", first, last)
	}
	from, err := m.Position(at, first)
	if err != nil {
		return Range{}, err
	}
	to, err := m.Position(at, last+1)
	return Range{from, to}, err
}

// Join adds a range to ranges in ascending order and apart. Ranges that meet become one.
func Join(ranges []Range, r Range) []Range {
	var joined []Range
	for _, x := range ranges {
		switch {
		case x.To < r.From:
			joined = append(joined, x)
		case r.To < x.From:
			joined, r = append(joined, r), x
		default:
			r = Range{min(r.From, x.From), max(r.To, x.To)}
		}
	}
	return append(joined, r)
}

// LeaveOut makes the cursor skip ranges of positions, such as a range from Mix.LeaveOut or the
// ranges of a checkpoint. They are in ascending order and apart. Each must begin and end where a
// batch does; a batch that reaches into a range is refused.
func (c *Cursor) LeaveOut(ranges []Range) error {
	if err := checkRanges(ranges); err != nil {
		return err
	}
	c.leftOut = ranges
	return nil
}

func checkRanges(ranges []Range) error {
	if len(ranges) > maxLeftOut {
		return fmt.Errorf("left_out: %d ranges, at most %d", len(ranges), maxLeftOut)
	}
	for i, r := range ranges {
		if r.From >= r.To || r.To > maxPosition || i > 0 && r.From <= ranges[i-1].To {
			return fmt.Errorf("left_out: the positions %d to %d: give ranges in ascending order and apart", r.From,
				r.To)
		}
	}
	return nil
}

// times returns n·size+origin. ok is false if that is not a position.
func times(n, size, origin uint64) (uint64, bool) {
	hi, lo := bits.Mul64(n, size)
	lo, carry := bits.Add64(lo, origin, 0)
	return lo, hi+carry == 0 && lo < maxPosition
}

func pastLast(step uint64) error {
	return fmt.Errorf("step %d is past the last position there is", step)
}
