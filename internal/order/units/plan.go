package units

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/shardtool/shardtool/reader/order"
)

// Plan tells how many units an epoch has, and where the units of each window are. It is immutable
// and safe for concurrent use.
type Plan struct {
	epoch uint32
	// first is the first window of each lane, in a numbering through all lanes; before has the units
	// before each window. Both end with the total.
	first  []uint64
	before []uint64
}

// Epoch returns the epoch that the plan is for.
func (p *Plan) Epoch() uint64 { return uint64(p.epoch) }

// Units returns U(e), the units of the epoch.
func (p *Plan) Units() uint64 { return p.before[len(p.before)-1] }

// Windows returns the number of windows of all lanes.
func (p *Plan) Windows() int { return len(p.before) - 1 }

// Plan plans an epoch with a number of goroutines, at least 1. progress is nil, or is called from
// any of them with the number of samples of each stretch that has been planned.
//
// The error is the error of ctx, or names a lane whose window has too many items.
func (u *Units) Plan(ctx context.Context, epoch uint64, workers int, progress func(samples int)) (*Plan, error) {
	if epoch >= order.MaxEpochs {
		return nil, fmt.Errorf("epoch %d: epochs end at %d", epoch, order.MaxEpochs-1)
	}
	p, err := u.emptyPlan(uint32(epoch))
	if err != nil {
		return nil, err
	}
	lanes := u.order.Lanes(uint32(epoch))
	p.before = make([]uint64, p.first[len(p.first)-1]+1)
	var next atomic.Int64
	var wg sync.WaitGroup
	workers = max(1, min(workers, len(p.first)-1))
	failed := make([]error, workers)
	for w := range workers {
		own := lanes.Fork()
		wg.Go(func() {
			l := laneCounter{units: u, former: newFormer(u.params), reader: own.Reader(), lanes: own,
				progress: progress}
			for lane := int(next.Add(1)) - 1; lane < len(p.first)-1; lane = int(next.Add(1)) - 1 {
				if failed[w] = l.count(ctx, lane, p.before[p.first[lane]:p.first[lane+1]]); failed[w] != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	for _, err := range failed {
		if err != nil {
			return nil, err
		}
	}
	return p, p.accumulate()
}

// emptyPlan returns a plan that has only the windows of each lane.
func (u *Units) emptyPlan(epoch uint32) (*Plan, error) {
	v := int(u.order.Params().Lanes)
	p := &Plan{epoch: epoch, first: make([]uint64, v+1)}
	for l := range v {
		windows := (u.order.ArcIndex(u.order.Samples(), l) + uint64(u.params.Window) - 1) / uint64(u.params.Window)
		if windows > math.MaxUint32 {
			return nil, fmt.Errorf("%d windows in a lane, at most %d: give a larger window, or more lanes", windows,
				uint32(math.MaxUint32))
		}
		p.first[l+1] = p.first[l] + windows
	}
	return p, nil
}

// accumulate turns the number of units in each window into the number before it.
func (p *Plan) accumulate() error {
	var sum uint64
	for i, n := range p.before {
		p.before[i] = sum
		sum += n
	}
	if sum > math.MaxInt64 {
		return fmt.Errorf("%d units in an epoch, at most %d", sum, int64(math.MaxInt64))
	}
	return nil
}

// laneCounter counts the units of the windows of lanes.
type laneCounter struct {
	units    *Units
	former   *former
	lanes    *order.Lanes
	reader   *order.LaneReader
	progress func(int)
	refs     []order.Ref
}

// count counts the units of each window of a lane.
func (c *laneCounter) count(ctx context.Context, lane int, counts []uint64) (err error) {
	defer c.reader.Leave()
	window, length := uint64(c.units.params.Window), c.lanes.Len(lane)
	for i := range counts {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		from := uint64(i) * window
		c.refs = c.reader.Read(c.refs[:0], lane, from, min(from+window, length))
		c.lanes.Spans() // they would pile up
		n, err := c.units.form(c.former, c.refs)
		if err != nil {
			return fmt.Errorf("lane %d, window %d: %w", lane, i, err)
		}
		counts[i] = uint64(n)
		if c.progress != nil {
			c.progress(len(c.refs))
		}
	}
	return nil
}

// form forms the units of a window and returns their number.
func (u *Units) form(f *former, window []order.Ref) (int, error) {
	f.reset()
	for i := range window {
		if !f.add(uint32(i), u.lengths[window[i].Number]) {
			if number := window[i].Number; u.params.Long == LongError {
				return 0, &LengthError{number, u.lengths[number], "it is longer than a unit"}
			}
			return 0, fmt.Errorf("more than %d pieces: give a larger %s or a smaller window", maxItems,
				u.params.measure())
		}
	}
	return f.form(), nil
}

// window finds the window that has the unit at a place of the line: its number through all lanes,
// its lane, and its number in the lane.
func (p *Plan) window(place uint64) (number, lane int, inLane uint32) {
	number = sort.Search(len(p.before), func(i int) bool { return p.before[i] > place }) - 1
	lane = p.laneOf(number)
	return number, lane, uint32(uint64(number) - p.first[lane])
}

// laneOf returns the lane of a window.
func (p *Plan) laneOf(window int) int {
	at, found := slices.BinarySearch(p.first, uint64(window))
	if !found {
		return at - 1
	}
	for p.first[at+1] == uint64(window) { // lanes without windows
		at++
	}
	return at
}
