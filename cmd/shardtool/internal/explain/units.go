package explain

import (
	"context"
	"errors"

	"github.com/shardtool/shardtool/internal/unitplan"
	"github.com/shardtool/shardtool/internal/units"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/order"
)

// Units is what positions of a step hold, where they hold packed sequences or micro-batches. The
// step then lists the samples of each unit, or their pieces, one after another: those of one unit
// have one position.
type Units struct {
	Kind units.Kind `json:"kind"`
	Size uint32     `json:"size"`
	// Tokens are those of the units listed, Fill their share of the room.
	Tokens uint64  `json:"tokens"`
	Fill   float64 `json:"fill"`
	room   uint64
}

// piece is the part of a sample that a unit has. Row counts the units of the rank in the step from
// 0: it is the row of a batch of sequences.
type piece struct {
	Row    *int    `json:"row,omitempty"`
	Offset *uint32 `json:"offset,omitempty"`
	Length *uint32 `json:"length,omitempty"`
}

// cut adds the units of a batch to a step: which piece of a sample each reference has. world is the
// number of ranks.
func (s *Step) cut(refs []order.Ref, b *order.Batch, p units.Params, world int) {
	if p.Kind == "" {
		return
	}
	cuts := b.Cuts
	s.Units = &Units{Kind: p.Kind, Size: p.Size}
	for i := 0; i < len(refs); {
		unit, count, longest := cuts[i].Unit, uint64(0), uint64(0)
		for ; i < len(refs) && cuts[i].Unit == unit; i++ {
			first := order.Share(uint64(b.Global), s.Samples[i].Rank, world)
			s.Samples[i].Row = new(b.First + int(unit) - int(first))
			s.Samples[i].Offset, s.Samples[i].Length = new(cuts[i].Offset), new(cuts[i].Length)
			if n := uint64(cuts[i].Length); !refs[i].Padding {
				count, longest, s.Units.Tokens = count+1, max(longest, n), s.Units.Tokens+n
			}
		}
		switch {
		case count == 0:
		case p.Kind == units.Bucket:
			s.Units.room += count * longest
		default:
			s.Units.room += uint64(p.Size)
		}
	}
	s.Units.Fill = part(s.Units.Tokens, s.Units.room)
}

// UnitPlace is where a batch of units of one data set begins: its step, the epoch and the position
// in it, and the units of all epochs before.
type UnitPlace struct {
	Step, Epoch, Position, Before uint64
}

// UnitStep finds the place of a step, counted from 0 in batches of the same size. Epochs differ in
// their units, so the epochs before it are planned, unless their plans are kept.
func UnitStep(ctx context.Context, u *unitplan.Order, globalBatch int, step uint64) (UnitPlace, error) {
	g, tail := uint64(globalBatch), u.Order().Params().Tail
	at, left := UnitPlace{Step: step}, step // batches to pass over, or units with wrap
	if tail == order.TailWrap {
		if left > (1<<63-1)/g {
			return at, ErrEnd
		}
		left *= g
	}
	for ; at.Epoch < order.MaxEpochs; at.Epoch++ {
		plan, err := u.Plan(ctx, at.Epoch)
		if err != nil {
			return at, err
		}
		n := plan.Units()
		each := n
		switch tail {
		case order.TailDrop:
			each = n / g
		case order.TailShort, order.TailPad:
			each = (n + g - 1) / g
		}
		if left < each {
			if at.Position = left; tail != order.TailWrap {
				at.Position *= g
			}
			return at, nil
		}
		left, at.Before = left-each, at.Before+n
	}
	return at, ErrEnd
}

// UnitPlaceOf is the place of the batch that begins at a position of an epoch, such as a checkpoint's,
// or of the first one of the next epoch where the tail drops the position. The epochs before it are
// planned, unless their plans are kept.
func UnitPlaceOf(ctx context.Context, u *unitplan.Order, globalBatch int, epoch, position uint64) (UnitPlace, error) {
	g, tail := uint64(globalBatch), u.Order().Params().Tail
	if tail == order.TailDrop && position > 0 {
		plan, err := u.Plan(ctx, epoch)
		if err != nil {
			return UnitPlace{}, err
		}
		if plan.Units()-position < g {
			epoch, position = epoch+1, 0
		}
	}
	at := UnitPlace{Epoch: epoch, Position: position}
	for e := range epoch {
		plan, err := u.Plan(ctx, e)
		if err != nil {
			return at, err
		}
		n := plan.Units()
		at.Before += n
		switch tail {
		case order.TailDrop:
			at.Step += n / g
		case order.TailShort, order.TailPad:
			at.Step += (n + g - 1) / g
		}
	}
	if tail == order.TailWrap {
		at.Step = (at.Before + position) / g
	} else {
		at.Step += position / g
	}
	return at, nil
}

// DatasetUnits explains a step of one data set whose positions hold units. Positions count units. A
// step after the end of the order is ErrEnd.
func DatasetUnits(ctx context.Context, ds *reader.Dataset, u *unitplan.Order, at UnitPlace, o Options) (*Step, error) {
	s, err := o.split()
	if err != nil {
		return nil, err
	}
	x := stepper{Options: o, sets: []*reader.Dataset{ds}, names: []string{""}, keys: []uint64{u.Order().Params().Seed}}
	x.units = []units.Params{u.Units.Params()}
	if err := x.loadTables(ctx); err != nil {
		return nil, err
	}
	cursor, err := u.Seek(at.Epoch, at.Position, u.Plans(ctx))
	if err != nil {
		return nil, err
	}
	step := &Step{Step: at.Step}
	var b order.Batch
	next := func(s order.Split) (refs []order.Ref, _ order.Batch, err error) {
		refs, b, err = cursor.NextBatch(nil, s)
		if err == nil && b.Epoch != at.Epoch {
			err = errors.New("explain: less than a batch is left of the epoch, and the tail is dropped: give the next step")
		}
		step.Position = at.Before + b.Position
		return refs, b, err
	}
	if err := x.list(ctx, step, next, s); err != nil {
		return nil, err
	}
	step.Epoch, step.EpochPosition, step.EpochLength = b.Epoch, b.Position, b.Of
	step.NextPosition = at.Before + b.NextPosition
	for e := b.Epoch; e < b.NextEpoch; e++ {
		plan, err := u.Plan(ctx, e)
		if err != nil {
			return nil, err
		}
		step.NextPosition += plan.Units()
	}
	for i := range step.Samples {
		r := &step.Samples[i]
		r.Position -= at.Before
		for e := b.Epoch; e < r.Epoch && !r.Padding; e++ {
			plan, err := u.Plan(ctx, e)
			if err != nil {
				return nil, err
			}
			r.Position -= plan.Units()
		}
	}
	only := Source{Samples: b.Of, Share: 1, Given: step.Position, InStep: step.NextPosition - step.Position, StepShare: 1, Epoch: b.Epoch, Place: b.Position, LastEpoch: b.NextEpoch}
	if only.LastEpoch > only.Epoch && b.NextPosition == 0 {
		only.LastEpoch--
	}
	only.GivenShare = part(only.Given, step.Position)
	step.Sources = []Source{only}
	return step, nil
}

// params are the parameters of the units of the step; without a Kind where positions hold samples.
func (x *stepper) params(source uint16) units.Params {
	if int(source) < len(x.units) {
		return x.units[source]
	}
	return units.Params{}
}
