package reader

import (
	"context"

	"github.com/shardtool/shardtool/internal/unitplan"
	"github.com/shardtool/shardtool/internal/units"
	"github.com/shardtool/shardtool/reader/order"
)

// UnitSource is a data set whose samples are put into units as a source of a mix. The order of a
// source is chosen between its lengths, which it depends on, and its unitplan.Order.
type UnitSource struct {
	Lengths  []uint32 // of the samples
	Summary  units.Summary
	set      *Dataset
	planning Planning
}

// UnitSource reads the lengths of the samples, and counts what units of them have: with the
// parameters given, whose Window plays no part; of a view with weights, about what an epoch has. Of
// the options, Plans, PlanProgress and Log are used. Errors are those of Lengths and of units.New.
func (d *Dataset) UnitSource(ctx context.Context, p units.Params, o StreamOptions) (*UnitSource, error) {
	u := &UnitSource{set: d}
	var err error
	_, u.planning = o.spec()
	if u.Lengths, err = d.lengths(ctx, p.By, &u.planning); err != nil {
		return nil, err
	}
	table, err := d.OrderTable(ctx)
	if err != nil {
		return nil, err
	}
	var drawn func(yield func(uint64))
	if table.View != nil { // what an epoch draws depends on the key, but not by much
		any, err := order.New([]order.Source{{Table: table}}, order.Params{Lanes: 1, RunBlocks: 1, Delay: 1, Head: 1, Affinity: order.AffinityRun, Tail: order.TailWrap})
		if err != nil {
			return nil, optionsError{err}
		}
		drawn = func(yield func(uint64)) { any.Drawn(0, yield) }
	}
	if u.Summary, err = units.Summarize(u.Lengths, drawn, p); err != nil {
		return nil, d.lengthsError(ctx, err)
	}
	return u, nil
}

// Order makes the units of an order over the data set. They plan until Close, or until the context
// ends. The caller must Close them; a stream opened with them does.
func (s *UnitSource) Order(ctx context.Context, table order.Table, params order.Params, p units.Params) (*unitplan.Order, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	plan, err := order.New([]order.Source{{Table: table, Digest: s.set.orderDigest()}}, params)
	if err != nil {
		return nil, optionsError{err}
	}
	u, err := unitplan.New(ctx, plan, s.Lengths, p, s.planning.of("", 0))
	if err != nil {
		return nil, s.set.lengthsError(ctx, err)
	}
	return u, nil
}
