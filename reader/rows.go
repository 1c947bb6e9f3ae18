package reader

import (
	"context"
	"errors"
	"fmt"

	"github.com/shardtool/shardtool/internal/format/stacked"
)

// useRows makes the stream deliver rows if its options ask for them.
func (s *Stream) useRows(ctx context.Context) error {
	o := &s.opts
	switch {
	case !o.Rows:
		return nil
	case o.Map != nil:
		return optionsError{errors.New("option Map gets samples, and with Rows a stream delivers none: leave out one of them")}
	case s.run.Load().info().Units.Kind != "":
		if o.Tuning.RowsIf != nil {
			o.Rows = false
			return nil
		}
		return optionsError{errors.New("units are made of samples, and with Rows a stream delivers none: leave out one of them")}
	}
	l, err := s.layout(ctx)
	if o.Tuning.RowsIf != nil && (errors.Is(err, ErrFields) || err == nil && !o.Tuning.RowsIf(rowFields(l))) {
		o.Rows = false
		return nil
	}
	s.rows = l
	return err
}

// layout returns the layout of the shards of all sources.
func (s *Stream) layout(ctx context.Context) (*stacked.Layout, error) {
	all := &stacked.Layout{} // where there are no samples
	for _, in := range s.inputs {
		if in.Dataset == nil {
			continue
		}
		l, err := in.layout(ctx)
		if err == nil && l != nil && all.Fields != nil && !l.Equal(all) {
			err = fmt.Errorf("%w: its rows differ from the rows of the sources before it: stream samples", ErrFields)
		}
		if err != nil {
			return nil, in.failed(err)
		}
		if l != nil {
			all = l
		}
	}
	return all, nil
}

// layout returns the layout that all shards have, or nil if there are no samples.
func (in *input) layout(ctx context.Context) (l *stacked.Layout, err error) {
	only, err := in.only()
	if err != nil {
		return nil, err
	}
	for part := range only.tables.Parts {
		p, err := only.catalog.Part(ctx, part)
		if err != nil {
			return nil, err
		}
		for i := range p.Shards {
			of := &p.Shards[i]
			switch {
			case of.Samples == 0:
			case of.Layout == nil:
				return nil, fmt.Errorf("%w: shard %s is not stacked, so it has no rows: stream samples", ErrFields,
					of.Name)
			case l != nil && !l.Equal(of.Layout):
				return nil, fmt.Errorf("%w: the rows of shard %s differ from the rows of the shards before it: stream samples", ErrFields, of.Name)
			default:
				l = of.Layout
			}
		}
	}
	return l, nil
}
