package reader

import (
	"cmp"
	"context"

	"github.com/shardtool/shardtool/internal/order/mix"
	"github.com/shardtool/shardtool/internal/order/units"
	"github.com/shardtool/shardtool/reader/order"
)

// mix makes the mix of the spec, at its first start, over the data sets of its sources. Order has
// what a user asks for: seed, shuffling, tail or the number of epochs that decides it, the shuffle
// memory of all sources together, and the affinity of sources that fix none. Its lanes, runs, delay
// and head are not used.
//
// With a checkpoint, sources that it knows take their parameters from it, as far as the spec does
// not fix them. Epoch is then 0 if the spec gives no number. The mix is for the checkpoint's
// Differences and Change.
func (s *Spec) mix(ctx context.Context, data []sourceData, from *mix.Checkpoint) (mix.Mix, error) {
	m, err := s.unordered(data)
	if err != nil {
		return m, err
	}
	if err := m.Tail.Validate(); err != nil {
		return m, &SpecError{Err: err}
	}
	if err := s.choose(&m, data, from); err != nil {
		return m, err
	}
	if err := s.lay(ctx, &m, data, from); err != nil {
		return m, err
	}
	if from == nil {
		if m.Epoch, err = s.epochLength(m); err != nil {
			return m, s.located(s.Length.Line, "epoch", err)
		}
	}
	return m, nil
}

// extent implements Sources.Extent for the sources of a mix.
func (s *Spec) extent(data []sourceData, from *mix.Checkpoint, change bool) (epoch, end uint64, err error) {
	if from != nil && from.InUnits() {
		return from.Epoch, 1 << 63, nil
	}
	m, err := s.unordered(data)
	if err != nil {
		return 0, 0, err
	}
	for i := range m.Sources { // any order will do
		if x := &m.Sources[i]; !known(x, &order.Choice{}, units.Params{}, from) {
			x.Lanes, x.RunBlocks, x.Delay, x.Head, x.Affinity = 1, 1, 1, 1, order.AffinityEpoch
		}
	}
	switch {
	case from == nil:
		if m.Epoch, err = s.epochLength(m); err != nil {
			return 0, 0, err
		}
	case change:
		m.Seed, m.Shuffle, m.Tail, m.Epoch = from.Seed, from.Shuffle, from.Tail, 0
		if from.Steered && from.Fits(m) == nil { // KeepWeights
			m = from.Mix
		} else if m, err = from.Change(m); err != nil {
			return 0, 0, err
		}
	default:
		m = from.Mix
	}
	p, err := mix.New(m)
	if err != nil {
		return 0, 0, err
	}
	end, err = p.End()
	return m.Epoch, end, err
}

// unordered returns the mix without the orders of its sources and, if the spec gives no number,
// without its epoch.
func (s *Spec) unordered(data []sourceData) (mix.Mix, error) {
	sizes := make([]sourceSize, len(data))
	c := &s.Order
	m := mix.Mix{Seed: c.Seed, Shuffle: c.Shuffle, Tail: cmp.Or(c.Tail, order.DefaultTail(c.Epochs)),
		Epoch: s.Length.Units}
	for i, d := range data {
		sizes[i] = d.units.about(&d, s.Count)
		x := &s.Sources[i]
		m.Sources = append(m.Sources, mix.Source{Name: x.Name, Digest: d.digest, Tables: d.tables, View: d.view,
			Units: sizes[i].units, MaxEpochs: x.MaxEpochs})
	}
	var err error
	m.Segments, err = s.weights(sizes)
	return m, err
}

// choose fills in the parameters of the sources' orders.
func (s *Spec) choose(m *mix.Mix, data []sourceData, from *mix.Checkpoint) error {
	choices := make([]order.Choice, len(data))
	needs := make([]mix.Need, len(data))
	for i, d := range data {
		o, c := &s.Sources[i].Fixed, &s.Order
		choices[i] = order.Choice{
			Seed: c.Seed, Shuffle: c.Shuffle, Tail: m.Tail, GlobalBatch: c.GlobalBatch, World: c.World,
			Affinity: cmp.Or(o.Affinity, c.Affinity), Host: c.Host,
			WholeShards: o.WholeShards, Lanes: o.Lanes, RunBlocks: o.RunBlocks, Delay: o.Delay, Head: o.Head,
		}
		var count uint64
		choices[i].UnitBlocks, count = d.units.least(&d, m.Sources[i].Units)
		least, err := order.LeastMemory(d.table, choices[i])
		if err != nil {
			return s.of(i, err)
		}
		needs[i] = mix.Need{Bytes: d.table.Decoded, Units: count, Share: m.LargestShare(i), Least: least}
	}
	var parts []uint64
	if s.Order.Shuffle {
		var err error
		memory := cmp.Or(s.Order.Memory, order.DefaultMemory)
		if s.Order.Host {
			parts = mix.Fit(memory, needs)
		}
		if parts == nil {
			if parts, err = mix.Divide(memory, needs); err != nil {
				return &SpecError{Err: err}
			}
		}
	}
	for i := range choices {
		x, unit := &m.Sources[i], data[i].units.asked()
		if known(x, &choices[i], unit, from) {
			continue
		}
		if parts != nil {
			choices[i].Memory = parts[i]
		}
		var p order.Params
		var err error
		if p, x.Unit, err = chooseParams(data[i].table, choices[i], unit); err != nil {
			return s.of(i, err)
		}
		x.Lanes, x.RunBlocks, x.Delay, x.Head, x.Affinity = p.Lanes, p.RunBlocks, p.Delay, p.Head, p.Affinity
	}
	return nil
}

// known takes the parameters of a source from a checkpoint that has the same data set, except for
// parameters that the spec fixes.
func known(s *mix.Source, c *order.Choice, unit units.Params, from *mix.Checkpoint) bool {
	if from == nil {
		return false
	}
	was := from.Same(s, unit.Kind)
	if was == nil {
		return false
	}
	s.Lanes, s.RunBlocks, s.Delay, s.Head = cmp.Or(c.Lanes, was.Lanes), cmp.Or(c.RunBlocks, was.RunBlocks),
		cmp.Or(c.Delay, was.Delay), cmp.Or(c.Head, was.Head)
	if c.WholeShards {
		s.RunBlocks = 0
	}
	s.Affinity = cmp.Or(c.Affinity, was.Affinity)
	s.Unit = unit
	s.Unit.Window = cmp.Or(unit.Window, was.Unit.Window)
	return true
}
