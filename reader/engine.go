package reader

import (
	"context"
	"slices"

	"github.com/shardtool/shardtool/internal/mix"
	"github.com/shardtool/shardtool/internal/unitplan"
	"github.com/shardtool/shardtool/internal/units"
	"github.com/shardtool/shardtool/reader/order"
)

// engine decides the batches of a run. There is one for the samples of a data set, one for its
// units, and one for a mix. Nothing but their constructors asks which one a run has.
type engine interface {
	// seek returns a cursor at a place. Where an epoch has to be planned, the cursor waits until ctx
	// ends.
	seek(ctx context.Context, at Place) (batches, error)
	// check refuses a split that no batch can have, and without an end one that has nothing for the
	// rank from a place on.
	check(ctx context.Context, at Place, s order.Split, endless bool) error
	// checkpoint returns the checkpoint of a place, without the skipped samples.
	checkpoint(at Place, globalBatch int) (Checkpoint, error)
	// length returns how many samples or units an epoch has.
	length(ctx context.Context, epoch uint64) (uint64, error)
	// entry returns the epoch and the position of an entry of a batch, that of its source in a mix. at is
	// where the batch begins, moved on by the place of the entry in it.
	entry(ctx context.Context, at Place, r *order.Ref) (Place, error)
	// last reports whether no other batch of size g begins in the epoch that this one begins in.
	last(b *Batch, g uint64) bool
	// middle is the place in the middle of the epoch of another.
	middle(ctx context.Context, at Place) (Place, error)
	// info has what a StreamInfo tells of the order.
	info() StreamInfo
}

// batches is the cursor of an engine.
type batches interface {
	NextBatch(dst []order.Ref, s order.Split) ([]order.Ref, order.Batch, error)
	Until(epoch uint64)
}

// samplesEngine is the samples of one data set.
type samplesEngine struct {
	plan   *order.Plan
	tables string // of the generation
}

func (e *samplesEngine) seek(_ context.Context, at Place) (batches, error) {
	return e.plan.Seek(at.Epoch, at.Position)
}

func (e *samplesEngine) check(_ context.Context, _ Place, s order.Split, endless bool) error {
	return e.plan.CheckRun(s, endless)
}

func (e *samplesEngine) checkpoint(at Place, globalBatch int) (Checkpoint, error) {
	return saved(e.plan.Checkpoint, at, globalBatch, e.tables)
}

// saved is the checkpoint of one data set.
func saved(checkpoint func(epoch, position uint64) (order.Checkpoint, error), at Place, globalBatch int, tables string) (Checkpoint, error) {
	c, err := checkpoint(at.Epoch, at.Position)
	c.GlobalBatch, c.Tables = globalBatch, tables
	return Checkpoint{Dataset: &c}, err
}

func (e *samplesEngine) length(context.Context, uint64) (uint64, error) {
	return e.plan.Samples(), nil
}

func (e *samplesEngine) entry(_ context.Context, at Place, r *order.Ref) (Place, error) {
	if r.Padding { // of the epoch that it fills
		return at, nil
	}
	n := e.plan.Samples()
	return Place{at.Epoch + at.Position/n, at.Position % n}, nil
}

func (e *samplesEngine) last(b *Batch, g uint64) bool { return lastOf(b, e.plan, e.plan.Samples(), g) }

// lastOf is last of an epoch of one data set with n samples or units.
func lastOf(b *Batch, plan *order.Plan, n, g uint64) bool {
	return b.NextEpoch > b.Epoch || plan.Params().Tail == order.TailDrop && n-b.NextPosition < g
}

func (e *samplesEngine) middle(_ context.Context, at Place) (Place, error) {
	return Place{min(at.Epoch, lastEpoch), e.plan.Samples() / 2}, nil
}

func (e *samplesEngine) info() StreamInfo {
	return StreamInfo{Plan: e.plan, Measured: e.plan, Tail: e.plan.Params().Tail}
}

// unitsEngine is the units of one data set.
type unitsEngine struct {
	units  *unitplan.Order
	tables string
}

func (e *unitsEngine) seek(ctx context.Context, at Place) (batches, error) {
	return e.units.Seek(at.Epoch, at.Position, e.units.Plans(ctx))
}

func (e *unitsEngine) check(ctx context.Context, at Place, s order.Split, endless bool) error {
	return e.units.CheckRun(s, endless, at.Epoch, e.units.Plans(ctx))
}

func (e *unitsEngine) checkpoint(at Place, globalBatch int) (Checkpoint, error) {
	return saved(e.units.Checkpoint, at, globalBatch, e.tables)
}

func (e *unitsEngine) length(ctx context.Context, epoch uint64) (uint64, error) {
	p, err := e.units.Plan(ctx, min(epoch, order.MaxEpochs-1))
	if err != nil {
		return 0, err
	}
	return p.Units(), nil
}

func (e *unitsEngine) entry(ctx context.Context, at Place, r *order.Ref) (Place, error) {
	for !r.Padding {
		p, err := e.units.Plan(ctx, at.Epoch)
		if err != nil || at.Position < p.Units() {
			return at, err
		}
		at = Place{at.Epoch + 1, at.Position - p.Units()}
	}
	return at, nil
}

func (e *unitsEngine) last(b *Batch, g uint64) bool {
	return lastOf(b, e.units.Order(), b.Of, g)
}

func (e *unitsEngine) middle(ctx context.Context, at Place) (Place, error) {
	p, err := e.units.Plan(ctx, min(at.Epoch, lastEpoch))
	if err != nil {
		return Place{}, err
	}
	return Place{p.Epoch(), p.Units() / 2}, nil
}

func (e *unitsEngine) info() StreamInfo {
	plan := e.units.Order()
	return StreamInfo{Plan: plan, Tail: plan.Params().Tail, Units: e.units.Units.Params(), Lengths: e.units.Summary(), UnitOrder: e.units}
}

// mixEngine is a mix.
type mixEngine struct {
	plan    *mix.Plan
	orders  []*order.Plan     // of the samples of the sources; nil where positions hold units
	units   []*unitplan.Order // of the sources; nil where positions hold samples
	begin   uint64            // position where the run begins
	steps   mix.Steps
	leftOut []mix.Range
}

func (e *mixEngine) seek(ctx context.Context, at Place) (batches, error) {
	plan, m := e.plan, e.plan.Mix()
	if e.units != nil { // cursors wait for plans until ctx ends, the Lines of the mix until the run is closed
		m.Sources = slices.Clone(m.Sources)
		for i, u := range e.units {
			if u != nil {
				m.Sources[i].Line = m.Sources[i].Line.With(u.Plans(ctx))
			}
		}
		var err error
		if plan, err = mix.New(m); err != nil {
			return nil, err
		}
	}
	c, err := plan.Seek(at.Position, e.orders)
	if err != nil {
		return nil, err
	}
	return c, c.LeaveOut(e.leftOut)
}

func (e *mixEngine) check(_ context.Context, _ Place, s order.Split, endless bool) error {
	return e.plan.CheckRun(s, endless)
}

func (e *mixEngine) checkpoint(at Place, globalBatch int) (Checkpoint, error) {
	c, err := e.plan.Checkpoint(at.Position)
	if err != nil {
		return Checkpoint{}, err
	}
	c.Steps, err = c.Resize(e.steps, e.begin, globalBatch)
	c.LeftOut = e.leftOut
	return Checkpoint{Mix: &c}, err
}

func (e *mixEngine) length(context.Context, uint64) (uint64, error) { return e.plan.Mix().Epoch, nil }

func (e *mixEngine) entry(_ context.Context, at Place, r *order.Ref) (Place, error) {
	return Place{uint64(r.Epoch), at.Position}, nil
}

func (e *mixEngine) last(b *Batch, g uint64) bool {
	m := e.plan.Mix()
	return m.Beginning(b.NextPosition, g, e.leftOut)/m.Epoch > b.Epoch
}

func (e *mixEngine) middle(_ context.Context, at Place) (Place, error) {
	n := e.plan.Mix().Epoch
	return Place{at.Position / n, at.Position/n*n + n/2}, nil
}

func (e *mixEngine) info() StreamInfo {
	m := e.plan.Mix()
	i := StreamInfo{Mix: e.plan, Tail: m.Tail}
	for s := range m.Sources {
		if p := m.Sources[s].Unit; p.Kind != "" && m.LargestShare(s).Sign() > 0 {
			i.Units = units.Params{Kind: p.Kind, Size: p.Size}
			if line := m.Sources[s].Line; line != nil {
				i.Lengths.Add(line.Units().Summary())
			}
		}
	}
	return i
}
