package simulate

import (
	"context"
	"fmt"

	"github.com/shardtool/shardtool/internal/mix"
	"github.com/shardtool/shardtool/internal/mixing"
	"github.com/shardtool/shardtool/internal/units"
	"github.com/shardtool/shardtool/reader/order"
)

// MixUnitOptions describe a walk through a mix of units.
type MixUnitOptions struct {
	UnitOptions // without Epoch
	// Steps is the number of global batches to walk.
	Steps uint64
	// End, when not 0, ends the walk before the batch that begins at this position or later.
	End uint64
	// LeftOut are positions to skip.
	LeftOut []mix.Range
}

// MixUnitReport has the figures that MixUnits counted.
type MixUnitReport struct {
	// Position is where the walk began, NextPosition where it ended.
	Position uint64 `json:"position"`
	End      uint64 `json:"end"`
	Units    uint64 `json:"units"`
	UnitSteps
	Sources []UnitSourceReport `json:"sources"`
	Verdict mixing.Verdict     `json:"-"` // on the source that is mixed least
}

// UnitSourceReport describes what a source gave. The Summary describes one of its epochs.
type UnitSourceReport struct {
	Name string `json:"name"`
	units.Summary
	Units      uint64  `json:"units"`
	Share      float64 `json:"share"` // of the units
	Delivered  uint64  `json:"tokens_delivered"`
	TokenShare float64 `json:"token_share"`
	Fill       float64 `json:"fill"`
	// Epochs is the number of epochs that the source has given since the beginning of the run when the
	// walk ends.
	Epochs float64 `json:"epochs"`
	// VIF is the variance inflation of the source's samples in batches, with their place in storage as
	// label.
	VIF float64 `json:"vif"`

	room uint64
}

// MixUnits walks through steps of a mix whose positions hold units, from a position on. Padding of
// the last batch is not counted. It takes as long as listing the units.
func MixUnits(ctx context.Context, plan *mix.Plan, position uint64, o MixUnitOptions) (*MixUnitReport, error) {
	m := plan.Mix()
	r := &MixUnitReport{Position: position, End: position, UnitSteps: newUnitSteps(o.Worlds)}
	labels, orders := make([]*mixing.Labels, len(m.Sources)), make([]*order.Plan, len(m.Sources))
	for i := range m.Sources {
		s := UnitSourceReport{Name: m.Sources[i].Name}
		if line := m.Sources[i].Line; line != nil {
			s.Summary, orders[i] = line.Units().Summary(), line.Units().Order()
			labels[i] = mixing.Parts(orders[i].Stored()).In(orders[i], 0)
		}
		r.Sources = append(r.Sources, s)
	}
	cursor, err := plan.Seek(position, nil)
	if err == nil {
		err = cursor.LeaveOut(o.LeftOut)
	}
	if err != nil {
		return nil, fmt.Errorf("simulate: %w", err)
	}
	meter := mixing.NewBySource(labels)
	if err := r.walk(ctx, cursor, &m, &o, meter); err != nil {
		return nil, fmt.Errorf("simulate: %w", err)
	}
	for i, vif := range meter.VIF() {
		r.Sources[i].VIF = vif
		if vif > r.Verdict.VIF && m.Shuffle {
			r.Verdict = mixing.Judge(vif, r.Sources[i].Name, orders...)
		}
	}
	return r, r.finish(plan, &m)
}

func (r *MixUnitReport) walk(ctx context.Context, cursor *mix.Cursor, m *mix.Mix, o *MixUnitOptions, meter *mixing.BySource) error {
	params := func(source uint16) units.Params { return m.Sources[source].Unit }
	var steps []unitCost
	return each(ctx, cursor, o.GlobalBatch, func(refs []order.Ref, b *order.Batch) bool {
		if r.Batches >= o.Steps || o.End > 0 && b.Position >= o.End {
			return false
		}
		steps = unitCosts(steps[:0], refs, b, params, o.Square)
		r.add(steps)
		meter.Add(refs)
		r.End, r.Units = b.NextPosition, r.Units+uint64(len(steps))
		for i := range steps {
			s := &r.Sources[steps[i].source]
			s.Units, s.Delivered, s.room = s.Units+1, s.Delivered+steps[i].tokens, s.room+steps[i].room
		}
		return r.Batches < o.Steps
	})
}

// finish turns sums into shares.
func (r *MixUnitReport) finish(plan *mix.Plan, m *mix.Mix) error {
	r.end()
	counts, err := plan.Counts(nil, r.End)
	if err != nil {
		return fmt.Errorf("simulate: %w", err)
	}
	for i := range r.Sources {
		s := &r.Sources[i]
		s.Share, s.TokenShare = float64(s.Units)/float64(max(r.Units, 1)), float64(s.Delivered)/float64(max(r.Delivered, 1))
		s.Fill = float64(s.Delivered) / float64(max(s.room, 1))
		if s.Epochs, err = epochs(&m.Sources[i], counts[i]); err != nil {
			return fmt.Errorf("simulate: %w", err)
		}
	}
	return nil
}
