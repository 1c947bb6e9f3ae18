// Package uniformity measures how well an order mixes a data set, without reading a sample: how far
// the labels of batches stray from the counts of a uniform permutation, over all ranks and within
// one, how many labels a rank sees, and how often neighbours come from one block. It is pure, as
// package order is: the same plan and labels give the same figures.
//
// A variance inflation (VIF) is the variance of the label counts of batches, divided by the
// variance of samples drawn from the whole data set without replacement. 1 is a uniform
// permutation; 16 mixes as if a batch had a sixteenth of its samples. Figures report the mean over
// the batches after the first ten, in which the shuffle begins, or over all batches if there are no
// more.
package uniformity

import (
	"math"

	"github.com/shardtool/shardtool/reader/order"
)

// Figures are the results of a Meter.
type Figures struct {
	// Samples is the number of samples measured.
	Samples uint64
	// VIF is the variance inflation of global batches; First has the inflation of each of the first
	// ten.
	VIF   float64
	First []float64
	// Pooled is the variance inflation of Accumulated batches together.
	Pooled float64
	// Adjacent is the share of neighbours in the sequence of global batches that have the same
	// label; Expected is the figure of a uniform permutation.
	Adjacent, Expected float64
	// Worlds has what ranks see, for each world size asked for.
	Worlds []World
}

// World describes what the ranks of a world size see.
type World struct {
	Size int
	// Ranks is the number of ranks measured: all, or 256 at equal distances.
	Ranks int
	// VIF is the local variance inflation: of the parts of batches that ranks get, each against a
	// uniform draw of its size.
	VIF float64
	// LabelsLeast and LabelsMean are how many labels a rank sees, the one that sees fewest and the
	// mean.
	LabelsLeast int
	LabelsMean  float64
	// SameBlock is the share of neighbours in a rank's samples that come from the same block.
	SameBlock float64
}

// Span is the stretch of an order to measure.
type Span struct {
	Epoch uint64
	// Most bounds the samples that are measured; 0 sets no bound. An epoch with more of them is
	// measured from its middle on, where the shuffle has long begun, and Figures.First is empty.
	Most uint64
	// Stop, when not nil, is called before each batch; its error ends the measurement.
	Stop func() error
}

// Measure measures the global batches of a plan, and their parts for these world sizes. The time is
// proportional to the samples measured and to the order's window.
func Measure(plan *order.Plan, labels *Labels, globalBatch int, worlds []int, span Span) (Figures, error) {
	m := NewMeter(labels, worlds...)
	sampled, err := span.walk(plan, order.Split{GlobalBatch: globalBatch, World: 1}, plan.Samples(), m.Batch)
	f := m.Figures()
	if sampled {
		f.First = nil
	}
	return f, err
}

// Rank measures one rank's parts of the global batches, and only them: its time and memory
// depend on the lanes the rank reads. It returns how many samples were measured, too.
func Rank(plan *order.Plan, labels *Labels, s order.Split, span Span) (World, uint64, error) {
	w := newWorld(labels, s.World, []int{s.Rank})
	var samples uint64
	_, err := span.walk(plan, s, plan.Samples()/uint64(max(s.World, 1)), func(refs []order.Ref, own int) {
		if own > 0 {
			w.part(labels, &w.ranks[0], refs[:own])
			samples += uint64(own)
		}
		w.local.next()
	})
	return w.figures(), samples, err
}

// walk calls batch with the part of each global batch, and how many samples of it belong to the
// epoch. share is about how many samples there are in the epoch; sampled reports that not all of
// them were gone through.
func (span Span) walk(plan *order.Plan, s order.Split, share uint64,
	batch func(refs []order.Ref, own int)) (sampled bool, err error) {
	var position uint64
	if sampled = span.Most > 0 && share > span.Most; sampled {
		g := uint64(max(s.GlobalBatch, 1))
		position = plan.Samples() / 2 / g * g
	}
	c, err := plan.Seek(span.Epoch, position)
	if err != nil {
		return sampled, err
	}
	c.Until(span.Epoch + 1)
	most := span.Most
	if !sampled {
		most = math.MaxUint64
	}
	return sampled, each(c, s, most, span.Stop, func(refs []order.Ref, b *order.Batch) uint64 {
		whole := min(uint64(b.Global), plan.Samples()-b.Position) // of the batch, in this epoch
		own := min(uint64(len(refs)), whole-min(whole, uint64(b.First)))
		batch(refs, int(own))
		return own
	})
}
