package reader

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/shardtool/shardtool/internal/mix"
	"github.com/shardtool/shardtool/reader/order"
)

// Run makes the run over a mix, which ends before an epoch unless that is 0. The caller must Close it,
// and keep the data sets open until then.
//
// Errors are those of Dataset.Run; those about one source wrap a *mix.SourceError.
func (m Mix) Run(ctx context.Context, until uint64) (*Run, error) {
	x := m.Plan.Mix()
	if len(m.Sets) != len(x.Sources) || m.Tables != nil && len(m.Tables) != len(x.Sources) {
		return nil, optionsError{fmt.Errorf("reader: %d data sets and %d tables for the %d sources of a mix: give one for each", len(m.Sets), len(m.Tables), len(x.Sources))}
	}
	in, err := m.inputs(ctx, &x)
	if err != nil {
		return nil, err
	}
	tables := make([]order.Table, len(in))
	for i := range in {
		tables[i] = in[i].table
	}
	orders, err := m.orders(&x, in, tables)
	if err != nil {
		return nil, optionsError{err}
	}
	run := &Run{
		engine: &mixEngine{m.Plan, orders, m.Units, m.Position, m.Steps, m.LeftOut}, inputs: in,
		begin: Place{Position: m.Position}, end: until, globalBatch: cmp.Or(m.Steps.GlobalBatch, 256),
	}
	for _, u := range m.Units {
		if u != nil {
			run.stop = append(run.stop, u.Close)
		}
	}
	return run, nil
}

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
	if o.Checkpoint != nil {
		return nil, optionsError{errors.New("reader: a checkpoint of one data set for a mix: give that of a mix, see Mix.Continue")}
	}
	spec, _ := o.spec()
	run, err := m.Run(ctx, spec.End())
	if err != nil {
		return nil, err
	}
	s, err := run.Stream(ctx, o)
	if err != nil {
		return nil, err
	}
	s.life.ends = append(s.life.ends, func() { run.Close() })
	return s, nil
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
		in[i].use(u)
	}
	return nil, nil
}
