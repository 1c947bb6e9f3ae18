package reader

import (
	"context"
	"errors"
	"fmt"

	"github.com/shardtool/shardtool/reader/order"
	"github.com/shardtool/shardtool/reader/order/mix"
	"github.com/shardtool/shardtool/reader/stats"
)

// OpenMix opens a stream over a mix. All sources share its memory, its requests and their tuning;
// they may be in different stores. The caller must Close the stream and keep the data sets open
// until then. The context is for opening alone.
//
// The plan decides the order: of the Order in the options, only Epochs, Epoch with it, GlobalBatch,
// Rank and World are used. Epochs are those of the mix. All sources must have the same fields,
// except those that Read.Expect names with a question mark.
//
// Errors are those of Dataset.Stream; those about one source wrap a *mix.SourceError.
func OpenMix(ctx context.Context, m Mix, o StreamOptions) (*Stream, error) {
	x := m.Plan.Mix()
	if len(m.Sets) != len(x.Sources) || m.Tables != nil && len(m.Tables) != len(x.Sources) {
		return nil, optionsError{fmt.Errorf("reader: %d data sets and %d tables for the %d sources of a mix: give one for each", len(m.Sets), len(m.Tables), len(x.Sources))}
	}
	if o.Checkpoint != nil {
		return nil, optionsError{errors.New("reader: a checkpoint of one data set for a mix: give that of a mix, see Mix.Continue")}
	}
	in, err := m.inputs(ctx, &x)
	if err != nil {
		return nil, err
	}
	tables := make([]order.Table, len(in))
	for i := range in {
		tables[i] = in[i].table
	}
	if o.GlobalBatch == 0 {
		o.GlobalBatch = m.Steps.GlobalBatch
	}
	if o, err = o.filled(in); err != nil {
		return nil, optionsError{err}
	}
	orders, err := m.orders(&x, in, tables)
	if err != nil {
		return nil, optionsError{err}
	}
	if m.Steps, err = x.Resize(m.Steps, m.Position, o.GlobalBatch); err != nil {
		return nil, optionsError{err}
	}
	s := &Stream{mix: &m, inputs: in, opts: o, split: order.Split{GlobalBatch: o.GlobalBatch, Rank: o.Rank, World: o.World}}
	if err := s.useRows(ctx); err != nil {
		return nil, err
	}
	for i := range in {
		s.count.sources = append(s.count.sources, stats.Source{Name: in[i].name})
	}
	s.place.epoch, s.place.position = m.Position/x.Epoch, m.Position
	if err := m.Plan.CheckSplit(s.split); err != nil {
		return nil, optionsError{err}
	}
	cursor, err := m.Plan.Seek(m.Position, orders)
	if err != nil {
		return nil, optionsError{err}
	}
	if err := cursor.LeaveOut(m.LeftOut); err != nil {
		return nil, optionsError{err}
	}
	if o.Epochs > 0 {
		cursor.Until(o.End())
	}
	s.start(ctx, mixOrder{cursor, s.split})
	return s, nil
}

// mixOrder is one rank's part of a mix.
type mixOrder struct {
	*mix.Cursor
	split order.Split
}

func (o mixOrder) Next(refs []order.Ref) ([]order.Ref, order.Batch, error) {
	return o.NextBatch(refs, o.split)
}

// orders makes the orders of the sources; where positions hold units, they are those of the units.
func (m *Mix) orders(x *mix.Mix, in []*input, tables []order.Table) ([]*order.Plan, error) {
	if !x.InUnits() {
		orders, err := x.Orders(tables)
		for i := range orders {
			in[i].plan = orders[i]
		}
		return orders, err
	}
	if len(m.Units) != len(in) {
		return nil, fmt.Errorf("reader: the units of %d of the %d sources of a mix: give those of all", len(m.Units), len(in))
	}
	for i, u := range m.Units {
		if u == nil {
			if in[i].share > 0 {
				return nil, in[i].failed(errors.New("reader: it has weight, but its units were not given"))
			}
			continue
		}
		in[i].units, in[i].plan = u, u.Order()
	}
	return nil, nil
}
