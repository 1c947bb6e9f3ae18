package reader

import (
	"cmp"
	"context"

	"github.com/shardtool/shardtool/internal/order/epochplan"
	"github.com/shardtool/shardtool/internal/order/mix"
	"github.com/shardtool/shardtool/internal/order/units"
	"github.com/shardtool/shardtool/reader/order"
)

// unitMaker makes units of the samples of a source of a mix. The order of a source is chosen
// between its lengths, which it depends on, and its units.
type unitMaker struct {
	params   units.Params // as asked for; a Window of 0 is chosen
	lengths  []uint32     // of the samples
	summary  units.Summary
	set      *Dataset
	planning epochplan.Options
	made     *epochplan.Order
}

// newUnitMaker reads the lengths of the samples, and counts what their units have. For a view with
// weights the count is approximately that for any epoch.
func newUnitMaker(ctx context.Context, d *Dataset, table order.Table, p units.Params, planning Planning,
	source string) (*unitMaker, error) {
	checked := p
	checked.Window = max(p.Window, 1)
	if err := checked.Check(); err != nil {
		return nil, optionsError{err}
	}
	u := &unitMaker{params: p, set: d, planning: planning.of(source, 0)}
	var err error
	if u.lengths, err = d.lengths(ctx, p.By, &planning); err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx) // a store may report the end of the context without its cause
		}
		return nil, err
	}
	var drawn func(yield func(uint64))
	if table.View != nil { // the samples that an epoch draws depend on the key, but little
		any, err := order.New(table, "", order.Params{Lanes: 1, RunBlocks: 1, Delay: 1, Head: 1,
			Affinity: order.AffinityRun, Tail: order.TailWrap})
		if err != nil {
			return nil, optionsError{err}
		}
		drawn = func(yield func(uint64)) { any.Drawn(0, yield) }
	}
	if u.summary, err = units.Summarize(u.lengths, drawn, p); err != nil {
		return nil, d.lengthsError(ctx, err)
	}
	return u, nil
}

// lays reports whether positions of a source hold units.
func (u *unitMaker) lays(s *mix.Source) bool { return u != nil && s.Units > 0 }

// line makes the units of an order over the source. They plan until the maker is closed, or until
// the context ends.
func (u *unitMaker) line(ctx context.Context, table order.Table, params order.Params,
	p units.Params) (*units.Line, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	plan, err := order.New(table, u.set.orderDigest(), params)
	if err != nil {
		return nil, optionsError{err}
	}
	if u.made, err = epochplan.New(ctx, plan, u.lengths, p, u.planning); err != nil {
		return nil, u.set.lengthsError(ctx, err)
	}
	return u.made.Line(), nil
}

// about returns the size of a source: of samples, if u is nil, or of units before they are known:
// as many as have room for its tokens. It is used to divide the memory, on which the units depend.
// The attribute count, of which tokens is the sum, may be another than the attribute with the
// lengths.
func (u *unitMaker) about(d *sourceData, count string) sourceSize {
	tokens := d.tokens
	if u == nil && d.table.View != nil {
		return sourceSize{d.table.View.Samples(), tokens}
	}
	if u == nil {
		return sourceSize{d.stored(), tokens}
	}
	left, size := u.summary.Tokens, uint64(u.params.Size)
	if u.params.By == count {
		tokens = left
	}
	return sourceSize{units: left/size + min(left%size, 1), tokens: tokens}
}

// least returns the fewest blocks that a unit needs at a time, and what positions hold of a source:
// the number of its units, or all its samples if u is nil.
func (u *unitMaker) least(d *sourceData, made uint64) (blocks, count uint64) {
	if u == nil {
		return 0, d.stored()
	}
	return units.LeastBlocks(d.table, u.params), made
}

// asked returns the parameters as asked for. They have no Kind if u is nil.
func (u *unitMaker) asked() units.Params {
	if u == nil {
		return units.Params{}
	}
	return u.params
}

// order returns the order that line made last, or nil.
func (u *unitMaker) order() *epochplan.Order {
	if u == nil {
		return nil
	}
	return u.made
}

// closeUnits ends the planning of all sources that have units.
func closeUnits(data []sourceData) {
	for i := range data {
		if u := data[i].units.order(); u != nil {
			u.Close()
		}
	}
}

// makeUnits makes the positions of the mix hold units, if the spec or the checkpoint asks for them.
// It reads the lengths of the samples of all sources. It returns the error of the first source that
// has one.
func (s *Spec) makeUnits(ctx context.Context, sets []*Dataset, data []sourceData, from *mix.Checkpoint,
	p Planning) (made bool, err error) {
	params := make([]units.Params, len(data))
	for i := range params {
		params[i] = s.unitsOf(s.Sources[i].Name, from)
		made = made || params[i].Kind != ""
	}
	if !made {
		return false, nil
	}
	return true, s.each(atOnce, "sources.", func(i int) (err error) {
		if sets[i].NumSamples() == 0 {
			return nil // the source has no attributes, and can only have weight 0
		}
		data[i].units, err = newUnitMaker(ctx, sets[i], data[i].table, params[i], p, s.Sources[i].Name)
		return err
	})
}

// unitsOf returns the parameters of a source's units: what the user said, and for the rest the
// checkpoint's parameters of this source or else of another. Without a Kind its positions hold
// samples.
func (s *Spec) unitsOf(name string, from *mix.Checkpoint) units.Params {
	if from != nil {
		if p := from.UnitsOf(name); p != nil {
			return s.unitsOver(*p)
		}
	}
	asked := s.Units
	asked.Long = cmp.Or(asked.Long, units.LongError)
	return asked
}

// lay makes the units of the sources, counts the units of epoch 0, and computes the weights from
// the counts. If a checkpoint has a source with the same units, it also has their number, and epoch
// 0 is not planned.
func (s *Spec) lay(ctx context.Context, m *mix.Mix, data []sourceData, from *mix.Checkpoint) error {
	sizes, laid := make([]sourceSize, len(data)), false
	for i, d := range data {
		x := &m.Sources[i]
		if sizes[i] = (sourceSize{x.Units, d.tokens}); !d.units.lays(x) {
			continue
		}
		laid = true
		line, err := d.units.line(ctx, d.table, m.Params(i), x.Unit)
		if err != nil {
			return s.of(i, err)
		}
		mix.SetLine(x, line)
		if x.Units, err = unitsInEpoch(x, line, from); err != nil {
			return s.of(i, err)
		}
		sizes[i] = sourceSize{x.Units, d.tokens}
		if d.units.params.By == s.Count {
			sizes[i].tokens = line.Units().Summary().Tokens
		}
	}
	if !laid {
		return nil
	}
	var err error
	m.Segments, err = s.weights(sizes)
	return err
}

// unitsInEpoch returns U(0) of a source with this line.
func unitsInEpoch(s *mix.Source, line *units.Line, from *mix.Checkpoint) (uint64, error) {
	if from != nil {
		if x := from.Same(s, s.Unit.Kind); x != nil && x.Lengths == s.Lengths {
			was := x.Unit
			if was.By = s.Unit.By; was == s.Unit {
				return x.Units, nil
			}
		}
	}
	return line.Len(0)
}

// sourceData describes a source for the plan of a mix, from its tables.
type sourceData struct {
	table  order.Table
	digest string     // of the data set
	tables string     // the object of its generation
	view   string     // the ID of the view in use; empty for all samples
	tokens uint64     // sum of Spec.Count over all samples; only shares of tokens need it
	units  *unitMaker // nil where positions hold samples
}

// stored returns the number of samples of the data set, in the view or not.
func (d *sourceData) stored() (n uint64) {
	for _, samples := range d.table.Samples {
		n += uint64(samples)
	}
	return n
}
