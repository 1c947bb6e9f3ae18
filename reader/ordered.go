package reader

import (
	"context"
	"fmt"

	"github.com/shardtool/shardtool/internal/order/uniformity"
	"github.com/shardtool/shardtool/reader/order"
)

// measuredSamples bounds what logOrder measures: some 50 ms of a processor, beside the first reads.
const measuredSamples = 1 << 18

// measuredView bounds the data sets whose views are measured: a pass over one takes some 50 ms.
const measuredView = 1 << 23

// logOrder describes the order to the log at the start: its parameters, how this rank's share of it
// is mixed by place in storage, and what the user should change.
func (s *Stream) logOrder(ctx context.Context, epoch uint64) {
	log := s.opts.Log
	s.WarnMixing(ctx, func(v uniformity.Verdict) {
		log.Warn("stream: "+v.Warning(uniformity.Spelling{Memory: "a ShuffleMemory of %s", Delay: "Delay",
			Shuffle: "pack in a random order"}), "vif", round3(v.VIF), "vif_accumulated", round3(v.Pooled),
			"global_batch", s.split.GlobalBatch)
	})
	plan, ok := s.run.Load().Plan().(*order.Plan)
	if !ok || !plan.Params().Shuffle {
		return
	}
	p := plan.Params()
	if s.split.World > int(p.Lanes) && !plan.Whole() {
		log.Warn("stream: there are more ranks than lanes, so ranks read the same blocks: raise ShuffleMemory or set Lanes, or share a cache",
			"ranks", s.split.World, "lanes", p.Lanes, "reads_of_a_block",
			round3(float64(s.split.World)/float64(p.Lanes)))
	}
	stored := plan.Stored()
	if plan.Viewed() && stored > measuredView {
		return // how the view covers storage is not known without a pass over it
	}
	labels := uniformity.Parts(stored).In(plan, min(epoch, lastEpoch))
	w, samples, err := uniformity.Rank(plan, labels, s.split, uniformity.Span{
		Epoch: min(epoch, lastEpoch), Most: measuredSamples, Stop: func() error { return context.Cause(ctx) },
	})
	if err != nil { // the stream was closed
		return
	}
	log.Info("stream: order", "rank", s.split.Rank, "ranks", s.split.World, "lanes", p.Lanes, "run_blocks", p.RunBlocks,
		"delay", p.Delay, "head", p.Head,
		"local_vif", round3(w.VIF), "parts_seen", fmt.Sprintf("%d of %d", w.LabelsLeast, labels.Len()), "same_block",
		round3(w.SameBlock),
		"samples_measured", samples)
}

// WarnMixing calls warn on rank 0 if the run of the stream mixes samples little. It takes some 50
// ms of a processor. Errors are left to Next.
func (s *Stream) WarnMixing(ctx context.Context, warn func(v uniformity.Verdict)) {
	if s.split.Rank > 0 {
		return
	}
	if v, err := s.run.Load().Mixing(ctx, s.split); err == nil && v.Little() {
		warn(v)
	}
}

// Mixing measures how well the run mixes the samples of a rank, by place in storage, from the
// middle of its first epoch on, where the shuffle has long begun. For a mix it returns the verdict
// on the source that is mixed least. Large views are not measured.
func (r *Run) Mixing(ctx context.Context, s order.Split) (uniformity.Verdict, error) {
	labels, plans, whole := make([]*uniformity.Labels, len(r.inputs)), make([]*order.Plan, len(r.inputs)), true
	for i, in := range r.inputs {
		plan := in.plan
		if plan == nil || in.share == 0 || !plan.Params().Shuffle || plan.Samples() == 0 || plan.Viewed() &&
			plan.Stored() > measuredView {
			continue
		}
		labels[i], plans[i] = uniformity.Parts(plan.Stored()).In(plan, 0), plan
		whole = whole && plan.Whole()
	}
	if whole { // uniform permutations, or nothing to measure
		return uniformity.Verdict{VIF: 1}, nil
	}
	at, err := r.middle(ctx, r.begin)
	if err != nil {
		return uniformity.Verdict{}, err
	}
	measure := func(s order.Split, together int) ([]float64, error) {
		c, err := r.seek(ctx, at)
		if err != nil {
			return nil, err
		}
		c.Until(at.Epoch + 1)
		return uniformity.MeasureParts(c, labels, s, together, measuredSamples, func() error { return context.Cause(ctx) })
	}
	vif, err := measure(s, 1)
	if err != nil {
		return uniformity.Verdict{}, err
	}
	worst := 0
	for i := range vif {
		if vif[i] > vif[worst] {
			worst = i
		}
	}
	v := r.Judge(vif[worst], r.inputs[worst].name, plans...)
	if !v.Little() { // nobody is told of it
		return v, nil
	}
	pooled, err := measure(order.Split{GlobalBatch: s.GlobalBatch, World: 1}, uniformity.Accumulated)
	if err != nil {
		return uniformity.Verdict{}, err
	}
	v.Pooled = pooled[worst]
	return v, nil
}

// Judge returns the verdict on the variance inflation of a source of the run. plans are as for
// uniformity.Judge.
func (r *Run) Judge(vif float64, source string, plans ...*order.Plan) uniformity.Verdict {
	v := uniformity.Judge(vif, source, plans...)
	for _, in := range r.inputs {
		v.Delayed = v.Delayed || in.name == source && in.delayed
	}
	return v
}

// round3 keeps three digits after the point.
func round3(v float64) float64 { return float64(int64(v*1000+0.5)) / 1000 }
