package reader

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/shardtool/shardtool/internal/order/units"
	"github.com/shardtool/shardtool/reader/order"
)

// alone resolves a run over one data set. It returns an order.MismatchError for a checkpoint of
// other content, or one that differs from what the user said.
func (s *Spec) alone(ctx context.Context, in *input, from *Checkpoint, c Change, p Planning) (*Run, error) {
	if c.Mix || c.Skip != nil {
		return nil, optionsError{errors.New("a change of the mix, and steps to skip, for one data set: they are for mixes")}
	}
	run := &Run{inputs: []*input{in}, begin: Place{Epoch: s.Epoch}, end: s.End(), globalBatch: s.globalBatch(from)}
	params, unit, err := s.params(in, from)
	if err != nil {
		return nil, err
	}
	if !in.table.Fits(params) {
		if in.table, err = in.OrderTable(ctx); err != nil {
			return nil, err
		}
	}
	if in.plan, err = order.New(in.table, in.orderDigest(), params); err != nil {
		return nil, optionsError{err}
	}
	if from != nil {
		samples := *from.Dataset
		samples.Units = nil // before lengths are compared with another data set's
		if err := cmp.Or(samples.Fits(in.plan), s.continues(in, from.Dataset)); err != nil {
			return nil, err
		}
		run.begin = from.Place()
	}
	if c.Begin != nil {
		run.begin = Place{Epoch: *c.Begin}
	}
	var stop func()
	if run.engine, stop, err = in.engine(ctx, unit, from, p, run.end); err != nil {
		return nil, err
	}
	run.stop = []func(){stop}
	if err := run.useCosts(ctx, s, p); err != nil {
		run.Close()
		return nil, err
	}
	return run, nil
}

// params returns the parameters of the order and of its units, chosen or from a checkpoint. Units
// have no Kind if positions hold samples.
func (s *Spec) params(in *input, from *Checkpoint) (order.Params, units.Params, error) {
	if from != nil {
		return from.Dataset.Params, units.ParamsOf(from.Dataset.Units), nil
	}
	c, unit := s.Order, s.Units
	c.GlobalBatch, unit.Long = s.globalBatch(nil), cmp.Or(unit.Long, units.LongError)
	params, unit, err := chooseParams(in.table, c, unit)
	if err != nil {
		err = optionsError{err}
	}
	return params, unit, err
}

// continues refuses options that differ from a checkpoint of the same data.
func (s *Spec) continues(in *input, cp *order.Checkpoint) error {
	err := cmp.Or(cp.Params.Compare(s.orderOver(cp.Params)), s.sameUnits(cp), s.sameWindow(in.Dataset, in.table, cp))
	if err == nil && s.Said["epoch"] && s.Epoch > cp.Epoch {
		err = &order.MismatchError{Field: "epoch", Checkpoint: fmt.Sprint(cp.Epoch), Given: fmt.Sprintf("%d or later", s.Epoch)}
	}
	return err
}

// orderOver returns the parameters of a checkpoint, replaced by the ones that the user said. A
// number of 0 keeps the checkpoint's.
func (s *Spec) orderOver(p order.Params) order.Params {
	o := &s.Order
	for name, set := range map[string]func(){
		"shuffle": func() { p.Shuffle = o.Shuffle }, "seed": func() { p.Seed = o.Seed },
		"affinity": func() { p.Affinity = o.Affinity }, "tail": func() { p.Tail = o.Tail },
		"lanes": func() { p.Lanes = cmp.Or(o.Lanes, p.Lanes) }, "delay": func() { p.Delay = cmp.Or(o.Delay, p.Delay) },
		"head": func() {
			p.Head = cmp.Or(o.Head, p.Head)
		}, "run-blocks": func() { p.RunBlocks = cmp.Or(o.RunBlocks, p.RunBlocks) },
	} {
		if s.Said[name] {
			set()
		}
	}
	if s.Said["whole-shards"] && o.WholeShards {
		p.RunBlocks = 0
	}
	return p
}

// sameWindow refuses a shuffle memory that makes another window than the checkpoint has. Lanes and
// runs are the checkpoint's, whatever rules chose them: the memory alone then decides the delay.
// Layers add to the bytes that it is divided by, and the checkpoint does not say which ones were
// read: with layers the checkpoint's window stays, whatever the memory.
func (s *Spec) sameWindow(d *Dataset, table order.Table, cp *order.Checkpoint) error {
	if !s.Said["shuffle-memory"] || !cp.Shuffle || len(d.all) > 1 {
		return nil
	}
	c, unit := s.Order, units.ParamsOf(cp.Units)
	c.Shuffle, unit.Window = true, s.Units.Window
	if p, _, err := chooseParams(table, c, unit); err == nil && p.OneTick() && cp.OneTick() &&
		(p.Delay == cp.Delay || min(p.Head, cp.Head) > order.DefaultHead) {
		return nil // both are of small data; a later check compares the data
	}
	c.Lanes, c.RunBlocks, c.WholeShards = cp.Lanes, cp.RunBlocks, cp.RunBlocks == 0
	asked := cp.Params
	if chosen, _, err := chooseParams(table, c, unit); err == nil {
		asked.Delay, asked.Head = chosen.Delay, chosen.Head
	} else { // the memory is too small for these lanes
		asked.Delay = 0
	}
	if err := cp.Params.Compare(asked); err != nil {
		return fmt.Errorf("shuffle memory of %d bytes: %w (if layers were read, leave the shuffle memory out: the order stays)", c.Memory, err)
	}
	return nil
}
