// Package epochplan answers which units an epoch of a data set has. Planning an epoch reads no
// sample but takes a while, so an [Order] plans the next epoch while this one is read, and keeps
// plans in a folder.
package epochplan

import (
	"context"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/shardtool/shardtool/internal/order/kept"
	"github.com/shardtool/shardtool/internal/order/units"
	"github.com/shardtool/shardtool/reader/order"
)

// Options say how an Order plans. The zero value keeps no plans.
type Options struct {
	// Folder is where plans are kept, so that the next start finds them there; "" keeps none.
	Folder string
	// Log, when not nil, gets a warning if a plan cannot be kept.
	Log *slog.Logger
	// Progress, when not nil, is called while an epoch is planned, from several goroutines: with its
	// number, and how many of its samples have been planned.
	Progress func(epoch, done, of uint64)
	// Until is the epoch before which the order ends; 0 means order.MaxEpochs.
	Until uint64
}

// Order is the order of a data set in units, see package units. It plans epochs when they are
// asked for. It is safe for concurrent use.
type Order struct {
	*units.Units
	keeper  kept.Keeper
	show    func(epoch, done, of uint64)
	workers int
	until   uint64 // epoch that no stream begins
	ctx     context.Context
	end     context.CancelFunc
	wg      sync.WaitGroup

	mu     sync.Mutex
	epochs map[uint64]*plannedEpoch // the last two asked for, and the one after
}

// New makes the order of the units that samples of these lengths have in a plan. It plans until
// Close, or until the context ends. The caller must Close it. It returns the errors of units.New.
func New(ctx context.Context, plan *order.Plan, lengths []uint32, p units.Params, o Options) (*Order, error) {
	u := &Order{
		keeper: kept.Keeper{Folder: kept.Folder(o.Folder), Log: o.Log}, show: o.Progress,
		workers: runtime.GOMAXPROCS(0), epochs: map[uint64]*plannedEpoch{}, until: order.MaxEpochs,
	}
	if o.Until > 0 {
		u.until = min(u.until, o.Until)
	}
	var err error
	if u.Units, err = units.New(plan, lengths, p); err != nil {
		return nil, err
	}
	u.ctx, u.end = context.WithCancel(ctx)
	return u, nil
}

// plannedEpoch is a plan, or the error in its place, once done is closed.
type plannedEpoch struct {
	done chan struct{}
	plan *units.Plan
	err  error
}

// Stop ends the planning that still runs. Plan returns an error from then on.
func (u *Order) Stop() { u.end() }

// Close calls Stop and waits for the planning to end. No Plan may run at the time.
func (u *Order) Close() {
	u.end()
	u.wg.Wait()
}

// Plan returns the plan of an epoch, from memory, from the folder, or newly made. Then one
// goroutine plans the next epoch, so that nobody has to wait when it begins.
func (u *Order) Plan(ctx context.Context, epoch uint64) (*units.Plan, error) {
	e := u.planned(epoch, u.workers)
	select {
	case <-e.done:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if e.err == nil && epoch+1 < u.until {
		u.planned(epoch+1, 1)
	}
	return e.plan, e.err
}

// Plans returns Plan with a context, for units.Seek.
func (u *Order) Plans(ctx context.Context) units.Plans {
	return func(epoch uint64) (*units.Plan, error) { return u.Plan(ctx, epoch) }
}

// planned returns the plan of an epoch, which may still be made.
func (u *Order) planned(epoch uint64, workers int) *plannedEpoch {
	u.mu.Lock()
	defer u.mu.Unlock()
	if e := u.epochs[epoch]; e != nil {
		return e
	}
	for other := range u.epochs { // a wrapping batch may need two
		if other+1 < epoch || other > epoch+1 {
			delete(u.epochs, other)
		}
	}
	e := &plannedEpoch{done: make(chan struct{})}
	u.epochs[epoch] = e
	u.wg.Go(func() {
		defer close(e.done)
		e.plan, e.err = u.make(epoch, workers)
	})
	return e
}

// make plans an epoch, unless the folder has its plan.
func (u *Order) make(epoch uint64, workers int) (*units.Plan, error) {
	key := kept.Key{}
	if u.keeper.Folder != "" {
		key = u.Key(epoch)
		if text := u.keeper.Folder.Get("plan", key, u.MaxPlan()); text != nil {
			if p, err := u.DecodePlan(epoch, text); err == nil {
				return p, nil
			}
		}
	}
	var done atomic.Uint64
	progress := func(samples int) {
		if n := done.Add(uint64(samples)); u.show != nil {
			u.show(epoch, n, u.Order().Samples())
		}
	}
	p, err := u.Units.Plan(u.ctx, epoch, workers, progress)
	if err != nil {
		return nil, err
	}
	if u.keeper.Folder != "" {
		u.keeper.Put("plan", key, units.AppendPlan(nil, p))
	}
	return p, nil
}

// Line returns the units of all epochs, for a source of a mix. It plans until Close.
func (u *Order) Line() *units.Line { return u.Units.Line(u.Plans(u.ctx)) }
