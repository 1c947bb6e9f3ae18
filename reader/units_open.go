package reader

import (
	"context"

	"github.com/shardtool/shardtool/reader/order"
	"github.com/shardtool/shardtool/reader/order/units"
	"github.com/shardtool/shardtool/reader/unitplan"
)

// UnitOrder makes the order of the units that the options ask for, or their checkpoint has. The
// caller must Close it. Errors are those of Stream. A sample without a length, or with one that
// units cannot have, is an error with its shard, block and key.
func (d *Dataset) UnitOrder(ctx context.Context, o StreamOptions) (*unitplan.Order, error) {
	o, err := o.filled([]*input{{Dataset: d, share: 1}})
	if err != nil {
		return nil, optionsError{err}
	}
	table, err := d.OrderTable(ctx)
	if err != nil {
		return nil, err
	}
	return d.unitOrder(ctx, table, &o)
}

// openUnits starts a stream of units.
func (s *Stream) openUnits(ctx context.Context, in *input) (err error) {
	o := &s.opts
	if in.units, err = in.unitOrder(ctx, in.table, o); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			in.units.Close()
		}
	}()
	in.plan = in.units.Order()
	s.place.epoch = o.Epoch
	if cp := o.Checkpoint; cp != nil {
		s.place.epoch, s.place.position = cp.Epoch, cp.Position
	}
	if err := s.split.Check(); err != nil {
		return optionsError{err}
	}
	cursor, err := in.units.Seek(s.place.epoch, s.place.position, in.units.Plans(context.WithoutCancel(ctx)))
	if err != nil {
		return optionsError{err}
	}
	if o.Epochs > 0 {
		cursor.Until(o.End())
	}
	s.start(ctx, unitCursor{cursor, s.split})
	return nil
}

// unitCursor is one rank's part of an order of units.
type unitCursor struct {
	*units.Cursor
	split order.Split
}

func (o unitCursor) Next(refs []order.Ref) ([]order.Ref, order.Batch, error) {
	return o.NextBatch(refs, o.split)
}
