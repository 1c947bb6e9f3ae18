package simulate

import (
	"context"
	"fmt"

	"github.com/shardtool/shardtool/internal/order/mix"
	"github.com/shardtool/shardtool/internal/order/uniformity"
	"github.com/shardtool/shardtool/reader/order"
)

// MixReport has the figures that Mix counted.
type MixReport struct {
	// What was enumerated. Position is where the walk began and End where it ended.
	Position uint64 `json:"position"`
	End      uint64 `json:"end"`
	Samples  uint64 `json:"samples"`
	Batches  uint64 `json:"batches"`
	// ExactlyOnce reports that no epoch of a source has a sample twice, and each that ended has all.
	ExactlyOnce bool `json:"exactly_once"`

	Padding  uint64             `json:"padding"`
	Sources  []SourceReport     `json:"sources"`
	Worlds   []Reading          `json:"worlds"`
	Verdict  uniformity.Verdict `json:"-"` // on the source that is mixed least
	Weighted bool               `json:"-"` // a view draws samples several times
}

// Mix walks through the steps of a mix from a position on, without reading samples. orders and
// sources are by source number, as for mix.Plan.Seek. It takes as much time and memory as Epoch.
// Where a new epoch of a source begins, blocks are read again.
func Mix(ctx context.Context, plan *mix.Plan, position uint64, orders []*order.Plan, sources []Source,
	o Options) (*MixReport, error) {
	m := plan.Mix()
	if len(sources) != len(m.Sources) {
		return nil, fmt.Errorf("%d sources for the %d of a mix: give one for each", len(sources), len(m.Sources))
	}
	w, err := newWalk(orders, sources, o.Worlds)
	if err != nil {
		return nil, err
	}
	for i := range w.sources {
		s := &w.sources[i]
		s.Name, s.whole = m.Sources[i].Name, position == 0 // else an epoch had some samples already
		if of := sources[i].Labels; of != nil {
			s.meter, s.Labels = uniformity.NewMeter(of.In(orders[i], 0)), of.Len()
		}
	}
	r := &MixReport{Position: position, End: position}
	cursor, err := plan.Seek(position, orders)
	if err == nil {
		err = cursor.LeaveOut(o.LeftOut)
	}
	if err == nil {
		err = each(ctx, cursor, &o, func(refs []order.Ref, b *order.Batch) error {
			r.End = b.NextPosition
			n := w.batches + 1
			err := w.add(refs, len(refs), b, n > 1 && n&(n-1) == 0, &o) // a few batches, spread over the steps
			for i := range w.sources {
				if s := &w.sources[i]; s.meter != nil && len(s.own) > 0 {
					s.meter.Batch(s.own, len(s.own))
				}
			}
			return err
		})
	}
	if err != nil {
		return nil, err
	}
	r.finish(w, orders, o.Job)
	return r, nil
}

// finish fills in what the walk counted.
func (r *MixReport) finish(w *walk, orders []*order.Plan, job Job) {
	r.Batches, r.Padding, r.ExactlyOnce = w.batches, w.padding, true
	for i := range w.sources {
		r.Samples += w.sources[i].Samples
	}
	for i := range w.sources {
		s := &w.sources[i]
		s.Share = float64(s.Samples) / float64(max(r.Samples, 1))
		if s.Samples > 0 {
			s.Epochs = float64(s.Samples) / float64(s.plan.Samples())
		}
		if s.meter != nil && s.Samples > 0 {
			s.Mixing = mixingOf(s.meter.Figures(), s.Labels)
		}
		if len(w.worlds) > 0 {
			s.ReadBytes = uint64(w.worlds[0].read(i))
		}
		r.ExactlyOnce = r.ExactlyOnce && s.Repeated == 0 && s.Missing == 0
		r.Sources = append(r.Sources, s.SourceReport)
		if s.VIF > r.Verdict.VIF && s.plan.Params().Shuffle {
			r.Verdict = uniformity.Judge(s.VIF, s.Name, orders...)
		}
	}
	for i := range w.worlds {
		r.Worlds = append(r.Worlds, w.worlds[i].figures(r.Samples, r.Batches, job))
	}
}
