package mixfile

import (
	"cmp"
	"errors"
	"slices"

	"github.com/shardtool/shardtool/internal/mix"
	"github.com/shardtool/shardtool/internal/units"
	"github.com/shardtool/shardtool/reader/order"
)

// Data is the data set of a source, as its tables describe it.
type Data struct {
	Table  order.Table
	Digest string // of the data set
	Tables string // the object of its generation
	View   string // the ID of the view that Table has; empty for all samples
	Tokens uint64 // sum of File.Count over all samples; only shares of tokens need it
	Units  *Units // what makes units of the samples; nil where positions hold samples
}

// stored is the number of samples of the data set, in a view or not.
func (d *Data) stored() (n uint64) {
	for _, samples := range d.Table.Samples {
		n += uint64(samples)
	}
	return n
}

// Mix makes the mix of the file, at its first start, over the data sets of its sources. c is what a
// user asks for: seed, shuffling, tail or the number of epochs that it follows from, the shuffle
// memory of all sources together, and the affinity of those that fix none; what it has of lanes,
// runs, delay and head is not used.
//
// With a checkpoint, sources that it knows have their parameters from there, as far as the file
// does not fix them, and an Epoch of 0 where the file gives no number: the mix is for the
// checkpoint's Fits, Differences and Change.
func (f *File) Mix(data []Data, c order.Choice, from *mix.Checkpoint) (mix.Mix, error) {
	m, err := f.unordered(data, c)
	if err != nil {
		return m, err
	}
	if err := f.choose(&m, data, c, from); err != nil {
		return m, err
	}
	if err := f.lay(&m, data, from); err != nil {
		return m, err
	}
	if from == nil {
		if m.Epoch, err = f.Epoch(m); err != nil {
			return m, f.located(f.epochLine, "epoch", err)
		}
	}
	checked := m
	checked.Epoch = max(m.Epoch, 1) // with a checkpoint it may be open
	if _, err := mix.New(checked); err != nil {
		return m, f.located(0, "", err)
	}
	return m, nil
}

// located is an error at a line, or at the line of the source that it is about.
func (f *File) located(line int, member string, err error) error {
	var of *mix.SourceError
	if !errors.As(err, &of) {
		return f.fail(line, member, err)
	}
	i := slices.IndexFunc(f.Sources, func(s Source) bool { return s.Name == of.Source })
	if i < 0 {
		return f.fail(line, member, err)
	}
	return f.of(i, of.Err)
}

// Extent is how many samples an epoch of the mix has, and the position where its stream ends
// because every source is used up; 2^63 where it never does. Both are known before the orders of
// the sources are chosen. Where positions hold units, they are not, and what is returned counts
// samples, or has the end of a stream without one. With a checkpoint they are those of its mix, or,
// with change, of the mix that continues from it.
func (f *File) Extent(data []Data, from *mix.Checkpoint, change bool) (epoch, end uint64, err error) {
	if from != nil && from.InUnits() {
		return from.Epoch, 1 << 63, nil
	}
	m, err := f.unordered(data, order.Choice{})
	if err != nil {
		return 0, 0, err
	}
	for i := range m.Sources { // any order will do
		if s := &m.Sources[i]; !f.known(s, &order.Choice{}, nil, from) {
			s.Lanes, s.RunBlocks, s.Delay, s.Head, s.Affinity = 1, 1, 1, 1, order.AffinityEpoch
		}
	}
	switch {
	case from == nil:
		if m.Epoch, err = f.Epoch(m); err != nil {
			return 0, 0, err
		}
	case change:
		m.Seed, m.Shuffle, m.Tail, m.Epoch = from.Seed, from.Shuffle, from.Tail, 0
		if m, err = from.Change(m); err != nil {
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

// unordered is the mix without the orders of its sources and, where the file gives no number, its
// epoch.
func (f *File) unordered(data []Data, c order.Choice) (mix.Mix, error) {
	sizes := make([]Size, len(data))
	m := mix.Mix{Seed: c.Seed, Shuffle: c.Shuffle, Tail: cmp.Or(c.Tail, order.DefaultTail(c.Epochs)), Epoch: f.Units}
	for i, d := range data {
		sizes[i].Units = d.stored()
		if d.Table.View != nil {
			sizes[i].Units = d.Table.View.Samples()
		}
		sizes[i].Tokens = d.Tokens
		if d.Units != nil {
			sizes[i] = d.Units.about(d.Tokens, f.Count)
		}
		s := &f.Sources[i]
		m.Sources = append(m.Sources, mix.Source{Name: s.Name, Digest: d.Digest, Tables: d.Tables, View: d.View, Units: sizes[i].Units, MaxEpochs: s.MaxEpochs})
	}
	var err error
	m.Segments, err = f.Weights(sizes)
	return m, err
}

// choose fills in the parameters of the sources' orders.
func (f *File) choose(m *mix.Mix, data []Data, c order.Choice, from *mix.Checkpoint) error {
	choices := make([]order.Choice, len(data))
	needs := make([]mix.Need, len(data))
	for i, d := range data {
		o := &f.Sources[i].Order
		choices[i] = order.Choice{
			Seed: c.Seed, Shuffle: c.Shuffle, Tail: m.Tail, GlobalBatch: c.GlobalBatch, World: c.World, Affinity: cmp.Or(o.Affinity, c.Affinity),
			WholeShards: o.WholeShards, Lanes: o.Lanes, RunBlocks: o.RunBlocks, Delay: o.Delay, Head: o.Head,
		}
		if d.Units != nil {
			choices[i].UnitBlocks = units.LeastBlocks(d.Table, d.Units.Params)
		}
		least, err := order.LeastMemory(d.Table, choices[i])
		if err != nil {
			return f.of(i, err)
		}
		needs[i] = mix.Need{Bytes: d.Table.Decoded, Units: d.stored(), Share: m.LargestShare(i), Least: least}
		if d.Units != nil {
			needs[i].Units = m.Sources[i].Units
		}
	}
	var parts []uint64
	if c.Shuffle {
		var err error
		if parts, err = mix.Divide(cmp.Or(c.Memory, order.DefaultMemory), needs); err != nil {
			return err
		}
	}
	for i := range choices {
		s := &m.Sources[i]
		if f.known(s, &choices[i], data[i].Units, from) {
			continue
		}
		if parts != nil {
			choices[i].Memory = parts[i]
		}
		var p order.Params
		var err error
		if u := data[i].Units; u != nil {
			p, s.Unit, err = units.Choose(data[i].Table, choices[i], u.Params)
		} else {
			p, err = order.Choose(data[i].Table, choices[i])
		}
		if err != nil {
			return f.of(i, err)
		}
		s.Lanes, s.RunBlocks, s.Delay, s.Head, s.Affinity = p.Lanes, p.RunBlocks, p.Delay, p.Head, p.Affinity
	}
	return nil
}

// known takes the parameters of a source from a checkpoint that has the same data set, but those
// that the file fixes.
func (f *File) known(s *mix.Source, c *order.Choice, u *Units, from *mix.Checkpoint) bool {
	if from == nil {
		return false
	}
	if u == nil {
		u = &Units{}
	}
	i := slices.IndexFunc(from.Sources, func(x mix.Source) bool {
		return x.Name == s.Name && x.Digest == s.Digest && x.View == s.View && x.Unit.Kind == u.Params.Kind && (u.Params.Kind != "" || x.Units == s.Units)
	})
	if i < 0 {
		return false
	}
	was := &from.Sources[i]
	s.Lanes, s.RunBlocks, s.Delay, s.Head = cmp.Or(c.Lanes, was.Lanes), cmp.Or(c.RunBlocks, was.RunBlocks), cmp.Or(c.Delay, was.Delay), cmp.Or(c.Head, was.Head)
	if c.WholeShards {
		s.RunBlocks = 0
	}
	s.Affinity = cmp.Or(c.Affinity, was.Affinity)
	if s.Unit = u.Params; s.Unit.Kind != "" {
		s.Unit.Window = cmp.Or(u.Params.Window, was.Unit.Window)
	}
	return true
}

// of is an error about a source.
func (f *File) of(i int, err error) error {
	return f.fail(f.Sources[i].Line, "sources."+f.Sources[i].Name, err)
}
