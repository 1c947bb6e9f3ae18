package reader

import (
	"cmp"
	"context"
	"errors"
	"io"

	"github.com/shardtool/shardtool/internal/order/epochplan"
	"github.com/shardtool/shardtool/internal/order/ledger"
	"github.com/shardtool/shardtool/internal/order/mix"
	"github.com/shardtool/shardtool/internal/order/units"
	"github.com/shardtool/shardtool/reader/order"
)

// engine decides the batches of a run. There is one for the samples of a data set, one for its
// units, and one for a mix.
type engine interface {
	// seek returns a cursor at a place. Where an epoch has to be planned, or the tables are read on,
	// the cursor waits until ctx ends.
	seek(ctx context.Context, at Place) (batches, error)
	// whole is the engine without steps left out.
	whole() engine
	// check refuses a split that no batch can have. For an endless stream it also refuses a split that
	// has nothing for the rank from a place on.
	check(ctx context.Context, at Place, s order.Split, endless bool) error
	// checkpoint returns the checkpoint of a place.
	checkpoint(at Place, globalBatch int, skipped ledger.Mark) (Checkpoint, error)
	// length returns how many samples or units an epoch has.
	length(ctx context.Context, epoch uint64) (uint64, error)
	// step returns where the batch of a step begins. number returns the number of the batch that
	// begins at a place, with the position of the place over all epochs.
	step(ctx context.Context, n uint64, globalBatch int) (Place, error)
	number(ctx context.Context, at Place, globalBatch int) (step, position uint64, err error)
	// entry returns the epoch and the position of an entry of a batch. In a mix, it is the epoch of
	// the entry's source. at is where the batch begins, moved on by the place of the entry in it.
	entry(ctx context.Context, at Place, r *order.Ref) (Place, error)
	// last reports whether no other batch of size g begins in an epoch of n samples or units, after a
	// batch that began in it and ends at a place.
	last(epoch, n uint64, end Place, g uint64) bool
	// middle returns the middle of the epoch of a place.
	middle(ctx context.Context, at Place) (Place, error)
	// shares returns what the sources give from a batch on to the position, over all epochs, where the
	// next batch begins.
	shares(b *order.Batch, from, to uint64) ([]mix.Share, error)
	// ends returns the position where the stream of a mix ends, 2^63 where it has no end; 0 for one
	// data set.
	ends() (uint64, error)
	// arithmetic implements Run.Plan.
	arithmetic() any
	// info returns the fields of a StreamInfo that describe the order.
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

func (e *samplesEngine) seek(ctx context.Context, at Place) (batches, error) {
	c, err := e.plan.Seek(at.Epoch, at.Position)
	if err != nil {
		return nil, err
	}
	c.Within(ctx)
	return c, nil
}

func (e *samplesEngine) whole() engine { return e }

func (e *samplesEngine) check(_ context.Context, _ Place, s order.Split, endless bool) error {
	return e.plan.CheckRun(s, endless)
}

func (e *samplesEngine) checkpoint(at Place, globalBatch int, skipped ledger.Mark) (Checkpoint, error) {
	return saved(e.plan.Checkpoint, at, globalBatch, e.tables, skipped)
}

// saved returns the checkpoint of one data set.
func saved(checkpoint func(epoch, position uint64) (order.Checkpoint, error), at Place, globalBatch int, tables string,
	skipped ledger.Mark) (Checkpoint, error) {
	c, err := checkpoint(at.Epoch, at.Position)
	c.GlobalBatch, c.Tables = globalBatch, tables
	c.SkipHash, c.Skipped = skipped.Hash, skipped.Samples
	return Checkpoint{Dataset: &c}, err
}

func (e *samplesEngine) length(context.Context, uint64) (uint64, error) {
	return e.plan.Samples(), nil
}

// steps numbers the steps of one data set as a mix does: over all epochs.
func (e *samplesEngine) steps() *mix.Mix {
	return &mix.Mix{Tail: e.plan.Params().Tail, Epoch: max(e.plan.Samples(), 1)}
}

func (e *samplesEngine) step(_ context.Context, n uint64, globalBatch int) (Place, error) {
	m := e.steps()
	at, err := m.Position(mix.Steps{GlobalBatch: globalBatch}, n)
	return Place{at / m.Epoch, at % m.Epoch}, asOptions(err)
}

func (e *samplesEngine) number(_ context.Context, at Place, globalBatch int) (step, position uint64, err error) {
	m := e.steps()
	position = at.Epoch*m.Epoch + at.Position
	step, err = m.Step(mix.Steps{GlobalBatch: globalBatch}, position)
	return step, position, err
}

func (e *samplesEngine) entry(_ context.Context, at Place, r *order.Ref) (Place, error) {
	if r.Padding { // of the epoch that it fills
		return at, nil
	}
	n := e.plan.Samples()
	return Place{at.Epoch + at.Position/n, at.Position % n}, nil
}

func (e *samplesEngine) last(epoch, _ uint64, end Place, g uint64) bool {
	return lastOf(e.plan, epoch, e.plan.Samples(), end, g)
}

// lastOf implements last for one data set.
func lastOf(plan *order.Plan, epoch, n uint64, end Place, g uint64) bool {
	return end.Epoch > epoch || plan.Params().Tail == order.TailDrop && n-end.Position < g
}

func (e *samplesEngine) middle(_ context.Context, at Place) (Place, error) {
	return Place{min(at.Epoch, lastEpoch), e.plan.Samples() / 2}, nil
}

func (e *samplesEngine) shares(b *order.Batch, from, to uint64) ([]mix.Share, error) {
	return mix.Whole(b, e.plan.Samples(), from, to), nil
}

func (e *samplesEngine) ends() (uint64, error) { return 0, nil }

func (e *samplesEngine) arithmetic() any { return e.plan }

func (e *samplesEngine) info() StreamInfo {
	return StreamInfo{Tail: e.plan.Params().Tail, Holds: "sample"}
}

// unitsEngine is the units of one data set.
type unitsEngine struct {
	units  *epochplan.Order
	tables string
}

func (e *unitsEngine) seek(ctx context.Context, at Place) (batches, error) {
	return e.units.Seek(at.Epoch, at.Position, e.units.Plans(ctx))
}

func (e *unitsEngine) whole() engine { return e }

func (e *unitsEngine) check(ctx context.Context, at Place, s order.Split, endless bool) error {
	return e.units.CheckRun(s, endless, at.Epoch, e.units.Plans(ctx))
}

func (e *unitsEngine) checkpoint(at Place, globalBatch int, skipped ledger.Mark) (Checkpoint, error) {
	return saved(e.units.Checkpoint, at, globalBatch, e.tables, skipped)
}

func (e *unitsEngine) length(ctx context.Context, epoch uint64) (uint64, error) {
	p, err := e.units.Plan(ctx, min(epoch, order.MaxEpochs-1))
	if err != nil {
		return 0, err
	}
	return p.Units(), nil
}

// perEpoch is how many batches of g begin in an epoch of n units. With wrap they do not end with
// epochs.
func (e *unitsEngine) perEpoch(n, g uint64) uint64 {
	if e.units.Order().Params().Tail == order.TailDrop {
		return n / g
	}
	return (n + g - 1) / g
}

// step passes over the epochs before, which are planned unless their plans are kept: they differ in
// their units.
func (e *unitsEngine) step(ctx context.Context, n uint64, globalBatch int) (at Place, err error) {
	g, wrap := uint64(globalBatch), e.units.Order().Params().Tail == order.TailWrap
	if wrap { // units to pass over, otherwise batches
		if n > (1<<63-1)/g {
			return at, io.EOF
		}
		n *= g
	}
	for ; at.Epoch < order.MaxEpochs; at.Epoch++ {
		plan, err := e.units.Plan(ctx, at.Epoch)
		if err != nil {
			return at, err
		}
		each := plan.Units()
		if !wrap {
			each = e.perEpoch(each, g)
		}
		if n < each {
			if at.Position = n; !wrap {
				at.Position *= g
			}
			return at, nil
		}
		n -= each
	}
	return at, io.EOF
}

// number plans the epochs before, unless their plans are kept.
func (e *unitsEngine) number(ctx context.Context, at Place, globalBatch int) (step, position uint64, err error) {
	g, before := uint64(globalBatch), uint64(0)
	for epoch := range min(at.Epoch, order.MaxEpochs) {
		plan, err := e.units.Plan(ctx, epoch)
		if err != nil {
			return 0, 0, err
		}
		before += plan.Units()
		step += e.perEpoch(plan.Units(), g)
	}
	position = before + at.Position
	if e.units.Order().Params().Tail == order.TailWrap {
		return position / g, position, nil
	}
	return step + at.Position/g, position, nil
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

func (e *unitsEngine) last(epoch, n uint64, end Place, g uint64) bool {
	return lastOf(e.units.Order(), epoch, n, end, g)
}

func (e *unitsEngine) middle(ctx context.Context, at Place) (Place, error) {
	p, err := e.units.Plan(ctx, min(at.Epoch, lastEpoch))
	if err != nil {
		return Place{}, err
	}
	return Place{p.Epoch(), p.Units() / 2}, nil
}

func (e *unitsEngine) shares(b *order.Batch, from, to uint64) ([]mix.Share, error) {
	return mix.Whole(b, b.Of, from, to), nil
}

func (e *unitsEngine) ends() (uint64, error) { return 0, nil }

func (e *unitsEngine) arithmetic() any { return e.units }

func (e *unitsEngine) info() StreamInfo {
	return StreamInfo{Tail: e.units.Order().Params().Tail, Holds: "unit", Units: e.units.Units.Params(),
		Lengths: e.units.Summary()}
}

// engine returns what decides the batches of one data set: of its samples, or of units where they
// have a Kind. stop ends the planning of units.
func (in *input) engine(ctx context.Context, unit units.Params, from *Checkpoint, p Planning,
	end uint64) (e engine, stop func(), err error) {
	if unit.Kind == "" {
		return &samplesEngine{in.plan, in.catalog.Name}, func() {}, nil
	}
	u, err := in.unitOrder(ctx, in.plan, unit, p, end)
	if err != nil {
		return nil, nil, err
	}
	if from != nil {
		if err := u.Fits(from.Dataset); err != nil {
			u.Close()
			return nil, nil, err
		}
	}
	in.use(u)
	return &unitsEngine{u, in.catalog.Name}, u.Close, nil
}

// mixEngine is a mix.
type mixEngine struct {
	plan    *mix.Plan
	orders  []*order.Plan      // of the samples of the sources; nil where positions hold units
	units   []*epochplan.Order // of the sources; nil where positions hold samples
	begin   uint64             // position where the run begins
	steps   mix.Steps
	leftOut []mix.Range
}

// use makes the orders of the sources. If positions hold units, it takes the orders of the units.
func (e *mixEngine) use(m *mix.Mix, in []*input, made []*epochplan.Order) error {
	if !m.InUnits() {
		tables := make([]order.Table, len(in))
		for i := range in {
			tables[i] = in[i].table
		}
		orders, err := m.Orders(tables)
		if err != nil {
			return optionsError{err}
		}
		for i := range orders {
			in[i].plan = orders[i]
		}
		e.orders = orders
		return nil
	}
	for i, u := range made {
		if u == nil {
			if in[i].share > 0 {
				return optionsError{in[i].failed(errors.New("it has weight, but its units were not given"))}
			}
			continue
		}
		in[i].use(u)
	}
	e.units = made
	return nil
}

func (e *mixEngine) seek(ctx context.Context, at Place) (batches, error) {
	plan := e.plan
	if e.units != nil { // cursors wait for plans until ctx ends, Lines until the run is closed
		m, lines := plan.Mix(), make([]*units.Line, len(e.units))
		for i, u := range e.units {
			if u != nil {
				lines[i] = mix.LineOf(&m.Sources[i]).With(u.Plans(ctx))
			}
		}
		plan = plan.Over(lines)
	}
	c, err := plan.Seek(at.Position, e.orders)
	if err != nil {
		return nil, err
	}
	return c, c.LeaveOut(e.leftOut)
}

func (e *mixEngine) whole() engine {
	all := *e
	all.leftOut = nil
	return &all
}

func (e *mixEngine) check(_ context.Context, _ Place, s order.Split, endless bool) error {
	return e.plan.CheckRun(s, endless)
}

func (e *mixEngine) checkpoint(at Place, globalBatch int, skipped ledger.Mark) (Checkpoint, error) {
	c, err := e.plan.Checkpoint(at.Position)
	if err != nil {
		return Checkpoint{}, err
	}
	c.Steps, err = c.Resize(e.steps, e.begin, globalBatch)
	c.LeftOut, c.SkipHash, c.Skipped = e.leftOut, skipped.Hash, skipped.Samples
	return Checkpoint{Mix: &c}, err
}

func (e *mixEngine) length(context.Context, uint64) (uint64, error) { return e.plan.Mix().Epoch, nil }

// numbered returns how the steps of batches of a size are counted: as the checkpoint of the run
// counts them, or from the beginning if its batches have another size.
func (e *mixEngine) numbered(globalBatch int) mix.Steps {
	if g := e.steps.GlobalBatch; g == 0 || g == globalBatch || globalBatch == 0 {
		at := e.steps
		at.GlobalBatch = cmp.Or(g, globalBatch)
		return at
	}
	return mix.Steps{GlobalBatch: globalBatch}
}

func (e *mixEngine) step(_ context.Context, n uint64, globalBatch int) (Place, error) {
	m := e.plan.Mix()
	at, err := m.Position(e.numbered(globalBatch), n)
	return Place{Position: at}, asOptions(err)
}

func (e *mixEngine) number(_ context.Context, at Place, globalBatch int) (step, position uint64, err error) {
	m := e.plan.Mix()
	step, err = m.Step(e.numbered(globalBatch), at.Position)
	return step, at.Position, err
}

func (e *mixEngine) entry(_ context.Context, at Place, r *order.Ref) (Place, error) {
	return Place{uint64(r.Epoch), at.Position}, nil
}

func (e *mixEngine) last(epoch, _ uint64, end Place, g uint64) bool {
	m := e.plan.Mix()
	return m.Beginning(end.Position, g, e.leftOut)/m.Epoch > epoch
}

func (e *mixEngine) middle(_ context.Context, at Place) (Place, error) {
	n := e.plan.Mix().Epoch
	return Place{at.Position / n, at.Position/n*n + n/2}, nil
}

func (e *mixEngine) shares(_ *order.Batch, from, to uint64) ([]mix.Share, error) {
	return e.plan.Shares(from, to)
}

func (e *mixEngine) ends() (uint64, error) { return e.plan.End() }

func (e *mixEngine) arithmetic() any { return e.plan }

func (e *mixEngine) info() StreamInfo {
	m := e.plan.Mix()
	i := StreamInfo{Tail: m.Tail, Holds: "sample", Steps: e.steps, LeftOut: e.leftOut}
	for s := range m.Sources {
		if p := m.Sources[s].Unit; p.Kind != "" && m.LargestShare(s).Sign() > 0 {
			i.Holds, i.Units = "unit", units.Params{Kind: p.Kind, Size: p.Size}
			if line := mix.LineOf(&m.Sources[s]); line != nil {
				i.Lengths.Add(line.Units().Summary())
			}
		}
	}
	return i
}

// lastEpoch is the number of the last possible epoch.
const lastEpoch = 1<<32 - 1

// chooseParams chooses the parameters of an order and of its units, if unit has a Kind.
func chooseParams(table order.Table, c order.Choice, unit units.Params) (order.Params, units.Params, error) {
	if unit.Kind != "" {
		return units.Choose(table, c, unit)
	}
	params, err := order.Choose(table, c)
	return params, units.Params{}, err
}

// sameUnits compares the units that the user said with a checkpoint's.
func (s *Spec) sameUnits(cp *order.Checkpoint) error {
	switch {
	case cp.Units != nil:
		return units.ParamsOf(cp.Units).Compare(s.unitsOver(units.ParamsOf(cp.Units)))
	case s.Units.Kind != "":
		return &order.MismatchError{Field: "units", Checkpoint: "none", Given: string(s.Units.Kind)}
	}
	return nil
}

// unitsOver is orderOver for units.
func (s *Spec) unitsOver(p units.Params) units.Params {
	if s.Said["pack"] || s.Said["bucket"] {
		p.Kind, p.Size = s.Units.Kind, s.Units.Size
	}
	if s.Said["by"] {
		p.By = s.Units.By
	}
	if s.Said["long"] {
		p.Long = s.Units.Long
	}
	if s.Said["unit-window"] {
		p.Window = cmp.Or(s.Units.Window, p.Window)
	}
	return p
}
