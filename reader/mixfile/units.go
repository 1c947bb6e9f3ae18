package mixfile

import (
	"context"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/shardtool/shardtool/internal/mix"
	"github.com/shardtool/shardtool/internal/unitplan"
	"github.com/shardtool/shardtool/internal/units"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/order"
)

// Units is what makes units of the samples of a source.
type Units struct {
	Params  units.Params // as asked for; a Window of 0 is chosen
	Summary units.Summary
	// Line makes the units of an order over the source.
	Line func(params order.Params, p units.Params) (*units.Line, error)
}

// about is the size of a source before its units are known: as many as have room for its tokens. It
// divides the memory, on which the units depend. tokens is the sum of an attribute that may be
// another than the one with the lengths.
func (u *Units) about(tokens uint64, count string) Size {
	left, size := u.Summary.Tokens, uint64(u.Params.Size)
	if u.Params.By == count {
		tokens = left
	}
	return Size{Units: left/size + min(left%size, 1), Tokens: tokens}
}

// lay makes the units of the sources, counts those of epoch 0, and computes the weights from them.
// A source that a checkpoint has with the same units has as many as there: its epoch 0 is not
// planned.
func (f *File) lay(m *mix.Mix, data []Data, from *mix.Checkpoint) error {
	sizes, inUnits := make([]Size, len(data)), false
	for i, d := range data {
		s := &m.Sources[i]
		if sizes[i] = (Size{s.Units, d.Tokens}); d.Units == nil || s.Units == 0 {
			continue
		}
		inUnits = true
		line, err := d.Units.Line(m.Params(i), s.Unit)
		if err != nil {
			return f.of(i, err)
		}
		s.Line, s.Lengths = line, line.Units().Hash()
		if s.Units, err = unitsOf(s, from); err != nil {
			return f.of(i, err)
		}
		sizes[i] = Size{s.Units, d.Tokens}
		if d.Units.Params.By == f.Count {
			sizes[i].Tokens = line.Units().Summary().Tokens
		}
	}
	if !inUnits {
		return nil
	}
	var err error
	m.Segments, err = f.Weights(sizes)
	return err
}

// unitsOf is U(0).
func unitsOf(s *mix.Source, from *mix.Checkpoint) (uint64, error) {
	if from != nil {
		i := slices.IndexFunc(from.Sources, func(x mix.Source) bool {
			x.Unit.By = s.Unit.By
			return x.Name == s.Name && x.Digest == s.Digest && x.View == s.View && x.Unit == s.Unit && x.Lengths == s.Lengths
		})
		if i >= 0 {
			return from.Sources[i].Units, nil
		}
	}
	return s.Line.Len(0)
}

// UnitOrders are the units of the sources of a file, in its order; nil where a source has none.
type UnitOrders []*unitplan.Order

// Close ends the planning of all.
func (o UnitOrders) Close() {
	for _, u := range o {
		if u != nil {
			u.Close()
		}
	}
}

// MakeUnits has the positions of a mix hold units: it reads the lengths of the samples of all
// sources, and gives data what Mix needs to make the units. ask is what a source is asked for: the
// parameters of its units and, of the options, Plans, PlanProgress and Log. The units that Mix
// makes are in the result, which the caller must Close. Planning ends with the context.
//
// The error is that of the first source that has one: those of reader.Dataset.Lengths and
// units.New.
func (f *File) MakeUnits(ctx context.Context, sets []*reader.Dataset, data []Data, ask func(s *Source) (units.Params, reader.StreamOptions)) (UnitOrders, error) {
	made, failed := make(UnitOrders, len(sets)), make([]error, len(sets))
	var g errgroup.Group
	g.SetLimit(atOnce)
	for i, ds := range sets {
		if ds.NumSamples() == 0 {
			continue // it has no attributes, and can only have weight 0
		}
		p, o := ask(&f.Sources[i])
		g.Go(func() error {
			data[i].Units, failed[i] = makeUnits(ctx, ds, &data[i], p, o, &made[i])
			return nil
		})
	}
	_ = g.Wait() // errors are in failed
	for i, err := range failed {
		if err != nil {
			return nil, f.of(i, err)
		}
	}
	return made, nil
}

// makeUnits is MakeUnits of one source.
func makeUnits(ctx context.Context, ds *reader.Dataset, data *Data, p units.Params, o reader.StreamOptions, made **unitplan.Order) (*Units, error) {
	checked := p
	checked.Window = max(p.Window, 1)
	if err := checked.Check(); err != nil {
		return nil, err
	}
	source, err := ds.UnitSource(ctx, p, o)
	if err != nil {
		return nil, err
	}
	line := func(params order.Params, p units.Params) (*units.Line, error) {
		u, err := source.Order(ctx, data.Table, params, p)
		if err != nil {
			return nil, err
		}
		if *made != nil {
			(*made).Close()
		}
		*made = u
		return u.Line(), nil
	}
	return &Units{Params: p, Summary: source.Summary, Line: line}, nil
}
