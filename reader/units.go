package reader

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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

// keeper is a folder for what need not be computed again.
type keeper struct {
	folder kept.Folder
	log    *slog.Logger
	show   func(epoch, done, of uint64)
}

func (k *keeper) put(kind string, key kept.Key, payload []byte) {
	if err := k.folder.Put(kind, key, payload); err != nil && k.log != nil {
		k.log.Warn("units: the next start computes again what could not be kept", "what", kind, "error", err)
	}
}

func newKeeper(o *StreamOptions) keeper {
	return keeper{folder: kept.Folder(o.Plans), log: o.Log, show: o.PlanProgress}
}

// UnitOrder makes the order of the units that the options ask for, or their checkpoint has. The
// caller must Close it. Errors are those of Stream; lengths that units cannot have are errors of
// Lengths and of units.New.
func (d *Dataset) UnitOrder(ctx context.Context, o StreamOptions) (*UnitOrder, error) {
	o, err := o.filled([]*input{{Dataset: d, share: 1}})
	if err != nil {
		return nil, optionsError{err}
	}
	table, err := d.OrderTable(ctx)
	if err != nil {
		return nil, err
	}
	return d.unitOrder(ctx, table, &o)
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

// openUnits starts a stream of units.
func (s *Stream) openUnits(ctx context.Context, in *input) (err error) {
	o := &s.opts
	if in.units, err = in.unitOrder(ctx, in.table, o); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			in.units.Close()
		}
	}()
	in.plan = in.units.Order()
	s.place.epoch = o.Epoch
	if cp := o.Checkpoint; cp != nil {
		s.place.epoch, s.place.position = cp.Epoch, cp.Position
	}
	if err := s.split.Check(); err != nil {
		return optionsError{err}
	}
	cursor, err := in.units.Seek(s.place.epoch, s.place.position, in.units.Plans(in.units.ctx))
	if err != nil {
		return optionsError{err}
	}
	if o.Epochs > 0 {
		cursor.Until(o.End())
	}
	s.start(ctx, unitCursor{cursor, s.split})
	return nil
}

// unitCursor is one rank's part of an order of units.
type unitCursor struct {
	*units.Cursor
	split order.Split
}

func (o unitCursor) Next(refs []order.Ref) ([]order.Ref, order.Batch, error) {
	return o.NextBatch(refs, o.split)
}

// UnitOrder returns the order of the units of the stream; nil where positions hold samples, and of
// a mix, whose sources have one each. It must not be used after Close.
func (s *Stream) UnitOrder() *UnitOrder {
	if s.mix != nil {
		return nil
	}
	return s.inputs[0].units
}

// UnitParams returns the parameters of the units of the stream, without a Kind where positions hold
// samples. Of a mix, whose sources have their own Window, attribute and policy, it has the kind and
// the size, which are those of all.
func (s *Stream) UnitParams() units.Params {
	if s.mix == nil {
		if u := s.inputs[0].units; u != nil {
			return u.Units.Params()
		}
		return units.Params{}
	}
	for _, in := range s.inputs {
		if in.units != nil && in.share > 0 {
			p := in.units.Units.Params()
			return units.Params{Kind: p.Kind, Size: p.Size}
		}
	}
	return units.Params{}
}

// Until returns the epoch that the order ends before.
func (u *UnitOrder) Until() uint64 { return u.until }
