package reader

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/mix"
	"github.com/shardtool/shardtool/internal/unitplan"
	"github.com/shardtool/shardtool/reader/order"
)

// Mix is several data sets to be read as one stream, see OpenMix. Package mixfile makes the plan
// from a mix file; Checkpoint.Fits and Change of package mix make the one that continues a
// checkpoint.
type Mix struct {
	Plan *mix.Plan
	// Sets are the data sets, by the number of the source in the plan. A source that was removed, and
	// has weight 0, has none: nil.
	Sets []*Dataset
	// Tables are the OrderTables of Sets where the caller has them; nil: OpenMix reads them.
	Tables []order.Table
	// Units are the orders of units of the sources, where positions hold units: the Lines of their
	// sources are those of Plan. The stream closes them; the caller does if OpenMix fails.
	Units []*unitplan.Order
	// Position, Steps and LeftOut are those of the checkpoint that the stream continues. Without one,
	// Position is where the stream begins, usually 0.
	Position uint64
	Steps    mix.Steps
	LeftOut  []mix.Range
}

// Continue sets the place of a checkpoint.
func (m *Mix) Continue(c *mix.Checkpoint) {
	m.Position, m.Steps, m.LeftOut = c.Position, c.Steps, c.LeftOut
}

// atOnce is how many data sets are asked for their tables at a time.
const atOnce = 16

// inputs are the sources. The error is that of the first one that has one.
func (m *Mix) inputs(ctx context.Context, x *mix.Mix) ([]*input, error) {
	in, failed := make([]*input, len(m.Sets)), make([]error, len(m.Sets))
	var g errgroup.Group
	g.SetLimit(atOnce)
	for i := range in {
		g.Go(func() error {
			in[i], failed[i] = m.input(ctx, x, i)
			return nil
		})
	}
	_ = g.Wait() // errors are in failed
	for i, err := range failed {
		if err != nil {
			return nil, (&input{name: x.Sources[i].Name}).failed(err)
		}
	}
	return in, nil
}

// input is source i, whose data set must be the one that the plan is made for.
func (m *Mix) input(ctx context.Context, x *mix.Mix, i int) (*input, error) {
	of := &x.Sources[i]
	in := &input{Dataset: m.Sets[i], name: of.Name, unit: unitSize{samples: 1}}
	in.share, _ = x.LargestShare(i).Float64()
	if in.Dataset == nil {
		if in.share > 0 {
			return nil, optionsError{errors.New("reader: it has weight, but no data set was given")}
		}
		return in, nil
	}
	in.source.OneOf(len(m.Sets))
	if is := format.DigestString(in.Digest()); is != of.Digest {
		return nil, &mix.MismatchError{Difference: mix.Difference{Field: "digest", Checkpoint: of.Digest, Given: is}}
	}
	if is := in.Selection().ID(); is != of.View {
		return nil, &mix.MismatchError{Difference: mix.Difference{Field: "view", Checkpoint: of.View, Given: is}}
	}
	if m.Tables != nil {
		in.table = m.Tables[i]
		return in, nil
	}
	var err error
	in.table, err = in.OrderTable(ctx)
	return in, err
}
