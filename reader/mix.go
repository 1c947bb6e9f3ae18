package reader

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/reader/order"
	"github.com/shardtool/shardtool/reader/order/mix"
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

// errMixed is what asks for one data set get from the stream of a mix.
var errMixed = errors.New("reader: the stream is that of a mix: its checkpoint is MixCheckpoint or AppendCheckpoint")

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
	orders, err := x.Orders(tables)
	if err != nil {
		return nil, optionsError{err}
	}
	for i := range in {
		in[i].plan = orders[i]
	}
	if m.Steps, err = x.Resize(m.Steps, m.Position, o.GlobalBatch); err != nil {
		return nil, optionsError{err}
	}
	s := &Stream{mix: &m, inputs: in, opts: o, split: order.Split{GlobalBatch: o.GlobalBatch, Rank: o.Rank, World: o.World}}
	if err := s.useRows(ctx); err != nil {
		return nil, err
	}
	for i := range in {
		s.count.sources = append(s.count.sources, SourceStats{Name: in[i].name})
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
	in := &input{Dataset: m.Sets[i], name: of.Name}
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
	if is := in.ViewID(); is != of.View {
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

// checkpoint is that of a position.
func (m *Mix) checkpoint(position uint64, skipped ledgerMark) (mix.Checkpoint, error) {
	c, err := m.Plan.Checkpoint(position)
	c.Steps, c.LeftOut = m.Steps, m.LeftOut
	c.SkipHash, c.Skipped = skipped.hash, skipped.samples
	return c, err
}

// mixOrder is one rank's part of a mix.
type mixOrder struct {
	*mix.Cursor
	split order.Split
}

func (o mixOrder) Next(refs []order.Ref) ([]order.Ref, order.Batch, error) {
	return o.NextBatch(refs, o.split)
}

// Mixed reports whether the stream is that of a mix.
func (s *Stream) Mixed() bool { return s.mix != nil }

// Source returns the data set of a source of a mix by its number in the plan, nil for one that was
// removed. Source 0 of a stream over one data set is that data set.
func (s *Stream) Source(number int) *Dataset { return s.inputs[number].Dataset }

// Tail returns what happens to the last batch of an epoch.
func (s *Stream) Tail() order.Tail {
	if s.mix == nil {
		return s.inputs[0].plan.Params().Tail
	}
	return s.mix.Plan.Mix().Tail
}

// MixPlan returns the plan of a mix; nil for one data set.
func (s *Stream) MixPlan() *mix.Plan {
	if s.mix == nil {
		return nil
	}
	return s.mix.Plan
}

// MixCheckpoint is Checkpoint for a mix.
func (s *Stream) MixCheckpoint() (mix.Checkpoint, error) {
	return s.mixCheckpoint(s.place.position, s.skippedMark())
}

// MixCheckpoint is Checkpoint for a mix.
func (b *Batch) MixCheckpoint() (mix.Checkpoint, error) {
	return b.s.mixCheckpoint(b.NextPosition, b.skipped)
}

func (s *Stream) mixCheckpoint(position uint64, skipped ledgerMark) (mix.Checkpoint, error) {
	if s.mix == nil {
		return mix.Checkpoint{}, errors.New("reader: the stream is that of one data set: its checkpoint is Checkpoint or AppendCheckpoint")
	}
	return s.mix.checkpoint(position, skipped)
}

// AppendCheckpoint appends the text of the checkpoint to dst, of a data set or a mix.
func (s *Stream) AppendCheckpoint(dst []byte) ([]byte, error) {
	return s.appendCheckpoint(dst, s.place.epoch, s.place.position, s.skippedMark())
}

// AppendCheckpoint appends the text of the checkpoint after this batch to dst, of a data set or a
// mix.
func (b *Batch) AppendCheckpoint(dst []byte) ([]byte, error) {
	return b.s.appendCheckpoint(dst, b.NextEpoch, b.NextPosition, b.skipped)
}

func (s *Stream) appendCheckpoint(dst []byte, epoch, position uint64, skipped ledgerMark) ([]byte, error) {
	if s.mix == nil {
		c, err := s.checkpoint(epoch, position, skipped)
		if err != nil {
			return dst, err
		}
		return order.AppendCheckpoint(dst, c)
	}
	c, err := s.mix.checkpoint(position, skipped)
	if err != nil {
		return dst, err
	}
	return mix.AppendCheckpoint(dst, c)
}
