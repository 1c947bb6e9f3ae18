package reader

import (
	"context"
	"fmt"

	"github.com/shardtool/shardtool/reader/order/mixing"
)

// measuredSamples bounds what logOrder measures: some 50 ms of a processor, beside the first reads.
const measuredSamples = 1 << 18

// measuredView bounds the data sets whose views are measured: a pass over one takes some 50 ms.
const measuredView = 1 << 23

// logOrder describes the order to the log at the start: its parameters, how this rank's share of it
// is mixed by place in storage, and what the user should change.
func (s *Stream) logOrder(ctx context.Context, epoch uint64) {
	if s.mix != nil || s.inputs[0].units != nil {
		return
	}
	log, plan := s.opts.Log, s.inputs[0].plan
	p := plan.Params()
	if !p.Shuffle {
		return
	}
	if p.MixesLittle(s.split.GlobalBatch) {
		remedy := "raise ShuffleMemory, or pack with smaller blocks or in a random order"
		if p.RunBlocks > 1 { // smaller blocks would be joined again
			remedy = "raise ShuffleMemory, or set RunBlocks to 1 for a new run, or pack in a random order"
		}
		log.Warn("stream: the window is small for the global batch: of data that is stored class by class, the class mix of batches varies more "+
			"than at random; "+remedy,
			"lanes", p.Lanes, "delay", p.Delay, "window", p.Window(), "global_batch", s.split.GlobalBatch)
	}
	if s.split.World > int(p.Lanes) {
		log.Warn("stream: there are more ranks than lanes, so ranks read the same blocks: raise ShuffleMemory or set Lanes, or share a cache",
			"ranks", s.split.World, "lanes", p.Lanes, "reads_of_a_block", round3(float64(s.split.World)/float64(p.Lanes)))
	}
	stored := plan.Stored()
	if plan.Viewed() && stored > measuredView {
		return // what the view has of each part of storage is not known without a pass over it
	}
	labels := mixing.Parts(stored).In(plan, min(epoch, lastEpoch))
	w, samples, err := mixing.Rank(plan, labels, s.split, mixing.Span{
		Epoch: min(epoch, lastEpoch), Most: measuredSamples, Stop: func() error { return context.Cause(ctx) },
	})
	if err != nil { // the stream was closed
		return
	}
	log.Info("stream: order", "rank", s.split.Rank, "ranks", s.split.World, "lanes", p.Lanes, "run_blocks", p.RunBlocks, "delay", p.Delay, "head", p.Head,
		"local_vif", round3(w.VIF), "parts_seen", fmt.Sprintf("%d of %d", w.LabelsLeast, labels.Len()), "same_block", round3(w.SameBlock),
		"samples_measured", samples)
}

// lastEpoch is the last one there is.
const lastEpoch = 1<<32 - 1

// round3 keeps three digits after the point.
func round3(v float64) float64 { return float64(int64(v*1000+0.5)) / 1000 }
