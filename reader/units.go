package reader

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/shardtool/shardtool/reader/internal/kept"
	"github.com/shardtool/shardtool/reader/order"
	"github.com/shardtool/shardtool/reader/order/units"
)

// UnitOrder is the order of a data set in units, see package units. It plans epochs when they are
// asked for, and keeps plans in Read.Plans. It is safe for concurrent use.
type UnitOrder struct {
	*units.Units
	keeper
	workers int
	until   uint64 // epoch that no stream begins
	ctx     context.Context
	end     context.CancelFunc
	wg      sync.WaitGroup

	mu     sync.Mutex
	epochs map[uint64]*plannedEpoch // the last two asked for, and the one after
}

// plannedEpoch is a plan, or the error in its place, once done is closed.
type plannedEpoch struct {
	done chan struct{}
	plan *units.Plan
	err  error
}

// chooseUnits chooses the parameters of the order and of its units. A checkpoint has both.
func (o *StreamOptions) chooseUnits(table order.Table) (order.Params, units.Params, error) {
	if cp := o.Checkpoint; cp != nil {
		if cp.Units == nil {
			return cp.Params, o.Units, &order.MismatchError{Field: "units", Checkpoint: "none", Given: string(o.Units.Kind)}
		}
		return cp.Params, units.ParamsOf(cp.Units), nil
	}
	p := o.Units
	if p.Long == "" {
		p.Long = units.LongError
	}
	params, p, err := units.Choose(table, o.Choice(), p)
	if err != nil {
		err = optionsError{err}
	}
	return params, p, err
}

func (d *Dataset) unitOrder(ctx context.Context, table order.Table, o *StreamOptions) (*UnitOrder, error) {
	params, p, err := o.chooseUnits(table)
	if err != nil {
		return nil, err
	}
	plan, err := order.New([]order.Source{{Table: table, Digest: d.OrderDigest()}}, params)
	if err != nil {
		return nil, optionsError{err}
	}
	if cp := o.Checkpoint; cp != nil { // before lengths are compared with those of another data set
		samples := *cp
		samples.Units = nil
		if err := samples.Fits(plan); err != nil {
			return nil, err
		}
	}
	lengths, err := d.lengths(ctx, p.By, newKeeper(o))
	if err != nil {
		return nil, err
	}
	u, err := d.newUnits(ctx, plan, lengths, p, o)
	if err != nil {
		return nil, err
	}
	if cp := o.Checkpoint; cp != nil {
		if err := u.Fits(cp); err != nil {
			u.Close()
			return nil, err
		}
	}
	if o.Epochs > 0 {
		u.until = min(u.until, o.End())
	}
	return u, nil
}

func (d *Dataset) newUnits(ctx context.Context, plan *order.Plan, lengths []uint32, p units.Params, o *StreamOptions) (*UnitOrder, error) {
	u := &UnitOrder{keeper: newKeeper(o), workers: runtime.GOMAXPROCS(0), epochs: map[uint64]*plannedEpoch{}, until: order.MaxEpochs}
	var err error
	if u.Units, err = units.New(plan, lengths, p); err != nil {
		return nil, d.lengthsError(ctx, err)
	}
	u.ctx, u.end = context.WithCancel(context.WithoutCancel(ctx))
	return u, nil
}

// lengthsError is an ErrOptions with the place of the first sample that is too long.
func (d *Dataset) lengthsError(ctx context.Context, err error) error {
	var long *units.TooLongError
	if errors.As(err, &long) {
		err = d.placed(ctx, long.First, err)
	}
	return optionsError{err}
}

// Close ends the planning that still runs, and waits for it.
func (u *UnitOrder) Close() {
	u.end()
	u.wg.Wait()
}

// Plan returns the plan of an epoch: the one at hand, the one that the folder has, or a new one. It
// then has the next epoch planned by one goroutine, so that the turn of an epoch waits for nothing.
func (u *UnitOrder) Plan(ctx context.Context, epoch uint64) (*units.Plan, error) {
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
func (u *UnitOrder) Plans(ctx context.Context) units.Plans {
	return func(epoch uint64) (*units.Plan, error) { return u.Plan(ctx, epoch) }
}

// planned returns the plan of an epoch, which may still be made.
func (u *UnitOrder) planned(epoch uint64, workers int) *plannedEpoch {
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
func (u *UnitOrder) make(epoch uint64, workers int) (*units.Plan, error) {
	key := kept.Key{}
	if u.folder != "" {
		key = u.Key(epoch)
		if text := u.folder.Get("plan", key, u.MaxPlan()); text != nil {
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
		return nil, fmt.Errorf("reader: %w", err)
	}
	if u.folder != "" {
		u.put("plan", key, units.AppendPlan(nil, p))
	}
	return p, nil
}

// Until returns the epoch that the order ends before.
func (u *UnitOrder) Until() uint64 { return u.until }
