package simulate

import (
	"context"

	"github.com/shardtool/shardtool/internal/order/mix"
	"github.com/shardtool/shardtool/internal/order/uniformity"
	"github.com/shardtool/shardtool/internal/order/units"
	"github.com/shardtool/shardtool/reader/order"
)

// MixUnitReport has the figures that MixUnits counted.
type MixUnitReport struct {
	Position uint64 `json:"position"`
	End      uint64 `json:"end"`
	Units    uint64 `json:"units"`
	UnitSteps
	Sources []UnitSourceReport `json:"sources"`
	Verdict uniformity.Verdict `json:"-"` // on the source that is mixed least
}

// UnitSourceReport describes what a source gave. The Summary describes one of its epochs. Epochs is
// the number of epochs that it has given since the beginning of the run when the walk ends.
type UnitSourceReport struct {
	Name string `json:"name"`
	units.Summary
	Units      uint64  `json:"units"`
	Share      float64 `json:"share"` // of the units
	Delivered  uint64  `json:"tokens_delivered"`
	TokenShare float64 `json:"token_share"`
	Fill       float64 `json:"fill"`
	Epochs     float64 `json:"epochs"`
	VIF        float64 `json:"vif"` // by place in storage

	room uint64
}

// MixUnits walks through steps of a mix whose positions hold units, from a position on. Padding of
// the last batch is not counted. It takes as long as listing the units.
func MixUnits(ctx context.Context, plan *mix.Plan, position uint64, o Options) (*MixUnitReport, error) {
	m := plan.Mix()
	r := &MixUnitReport{Position: position, End: position, UnitSteps: newUnitSteps(o.Worlds)}
	labels, orders, params := make([]*uniformity.Labels, len(m.Sources)), make([]*order.Plan, len(m.Sources)),
		make([]units.Params, len(m.Sources))
	for i := range m.Sources {
		s := UnitSourceReport{Name: m.Sources[i].Name}
		if line := mix.LineOf(&m.Sources[i]); line != nil {
			s.Summary, orders[i] = line.Units().Summary(), line.Units().Order()
			labels[i] = uniformity.Parts(orders[i].Stored()).In(orders[i], 0)
		}
		r.Sources, params[i] = append(r.Sources, s), m.Sources[i].Unit
	}
	cursor, err := plan.Seek(position, nil)
	if err == nil {
		err = cursor.LeaveOut(o.LeftOut)
	}
	if err != nil {
		return nil, err
	}
	vif, err := r.walk(ctx, cursor, &o, params, labels, func(b *order.Batch, units []unitCost) {
		r.End, r.Units = b.NextPosition, r.Units+uint64(len(units))
		for i := range units {
			s := &r.Sources[units[i].source]
			s.Units, s.Delivered, s.room = s.Units+1, s.Delivered+units[i].tokens, s.room+units[i].room
		}
	})
	if err != nil {
		return nil, err
	}
	for i := range vif {
		r.Sources[i].VIF = vif[i]
		if vif[i] > r.Verdict.VIF && m.Shuffle {
			r.Verdict = uniformity.Judge(vif[i], r.Sources[i].Name, orders...)
		}
	}
	return r, r.finish(plan, &m)
}

// finish turns sums into shares.
func (r *MixUnitReport) finish(plan *mix.Plan, m *mix.Mix) error {
	counts, err := plan.Counts(nil, r.End)
	if err != nil {
		return err
	}
	for i := range r.Sources {
		s := &r.Sources[i]
		s.Share, s.TokenShare = float64(s.Units)/float64(max(r.Units, 1)), float64(s.Delivered)/float64(max(r.Delivered,
			1))
		s.Fill = float64(s.Delivered) / float64(max(s.room, 1))
		if s.Epochs, err = epochs(&m.Sources[i], counts[i]); err != nil {
			return err
		}
	}
	return nil
}
