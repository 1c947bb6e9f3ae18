package reader

import (
	"context"
	"errors"

	"github.com/shardtool/shardtool/reader/order"
	"github.com/shardtool/shardtool/reader/order/units"
	"github.com/shardtool/shardtool/reader/unitplan"
)

// chooseUnits chooses the parameters of the order and of its units. A checkpoint has both.
func (o *StreamOptions) chooseUnits(table order.Table) (order.Params, units.Params, error) {
	if cp := o.Checkpoint; cp != nil {
		if cp.Units == nil {
			return cp.Params, o.Units, &order.MismatchError{Field: "units", Checkpoint: "none", Given: string(o.Units.Kind)}
		}
		return cp.Params, units.ParamsOf(cp.Units), nil
	}
	p := o.Units
	if p.Long == "" {
		p.Long = units.LongError
	}
	params, p, err := units.Choose(table, o.Choice(), p)
	if err != nil {
		err = optionsError{err}
	}
	return params, p, err
}

func (d *Dataset) unitOrder(ctx context.Context, table order.Table, o *StreamOptions) (*unitplan.Order, error) {
	params, p, err := o.chooseUnits(table)
	if err != nil {
		return nil, err
	}
	plan, err := order.New([]order.Source{{Table: table, Digest: d.orderDigest()}}, params)
	if err != nil {
		return nil, optionsError{err}
	}
	if cp := o.Checkpoint; cp != nil { // before lengths are compared with those of another data set
		samples := *cp
		samples.Units = nil
		if err := samples.Fits(plan); err != nil {
			return nil, err
		}
	}
	lengths, err := d.lengths(ctx, p.By, o)
	if err != nil {
		return nil, err
	}
	until := uint64(0)
	if o.Epochs > 0 {
		until = o.End()
	}
	u, err := unitplan.New(context.WithoutCancel(ctx), plan, lengths, p, o.planning(until))
	if err != nil {
		return nil, d.lengthsError(ctx, err)
	}
	if cp := o.Checkpoint; cp != nil {
		if err := u.Fits(cp); err != nil {
			u.Close()
			return nil, err
		}
	}
	return u, nil
}

// planning are the options of the planner of units, which ends before an epoch unless that is 0.
func (o *StreamOptions) planning(until uint64) unitplan.Options {
	return unitplan.Options{Folder: o.Plans, Log: o.Log, Progress: o.PlanProgress, Until: until}
}

// lengthsError is an ErrOptions with the place of the first sample that is too long.
func (d *Dataset) lengthsError(ctx context.Context, err error) error {
	var long *units.TooLongError
	if errors.As(err, &long) {
		err = d.placed(ctx, long.First, err)
	}
	return optionsError{err}
}
