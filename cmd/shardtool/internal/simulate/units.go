package simulate

import (
	"context"

	"github.com/shardtool/shardtool/internal/order/epochplan"
	"github.com/shardtool/shardtool/internal/order/uniformity"
	"github.com/shardtool/shardtool/internal/order/units"
	"github.com/shardtool/shardtool/reader/order"
)

// UnitReport has the figures that Units counted. Padding is the room in a batch that has no tokens.
// A sequence has room for Size tokens, a micro-batch for its number of samples times the longest.
// VIF is the variance inflation of the labels of the samples in a batch, see package uniformity.
type UnitReport struct {
	units.Summary
	Epoch uint64  `json:"epoch"`
	Units uint64  `json:"units"`
	VIF   float64 `json:"vif"`
	UnitSteps
}

// UnitSteps has the figures of the steps of a walk through units. Items are samples and pieces, and
// Delivered their tokens, in whole batches.
type UnitSteps struct {
	Batches   uint64      `json:"batches"`
	Items     uint64      `json:"items"`
	Delivered uint64      `json:"tokens_delivered"`
	Fill      float64     `json:"fill"`
	Padding   float64     `json:"padding"`
	Step      Range       `json:"tokens_per_step"` // over all ranks
	Worlds    []UnitWorld `json:"worlds"`

	room uint64 // for tokens
}

// Range is the least, the mean and the most of some figures.
type Range struct {
	Least uint64  `json:"least"`
	Mean  float64 `json:"mean"`
	Most  uint64  `json:"most"`
}

// UnitWorld describes what the ranks of one world size get. Rank are the tokens of a rank in a
// step.
type UnitWorld struct {
	Size int   `json:"world_size"`
	Rank Range `json:"tokens_per_rank"`
	// Spread is the share by which the costliest rank exceeds the mean. It is averaged over all steps:
	// the share of time that the others wait for it.
	Spread float64 `json:"cost_spread"`
}

// Units walks through one epoch of an order of units. Padding of the last batch is not counted.
// labels are the labels of the samples in the units. If they are nil, mixing is not measured.
func Units(ctx context.Context, u *epochplan.Order, labels *uniformity.Labels, o Options) (*UnitReport, error) {
	r := &UnitReport{Summary: u.Summary(), Epoch: o.Epoch, UnitSteps: newUnitSteps(o.Worlds)}
	cursor, err := u.Seek(o.Epoch, 0, u.Plans(ctx))
	if err != nil {
		return nil, err
	}
	cursor.Until(o.Epoch + 1)
	vif, err := r.walk(ctx, cursor, &o, []units.Params{u.Units.Params()}, []*uniformity.Labels{labels},
		func(b *order.Batch, _ []unitCost) { r.Units = b.Of })
	if err != nil {
		return nil, err
	}
	r.VIF = vif[0]
	return r, nil
}

// walk counts the steps that c lists, and calls step with each. params and labels are by source
// number. It returns the variance inflation of each source's samples.
func (r *UnitSteps) walk(ctx context.Context, c uniformity.Batches, o *Options, params []units.Params,
	labels []*uniformity.Labels, step func(b *order.Batch, units []unitCost)) ([]float64, error) {
	meter := uniformity.NewBySource(labels, 1)
	var costs []unitCost
	err := each(ctx, c, o, func(refs []order.Ref, b *order.Batch) error {
		costs = unitCosts(costs[:0], refs, b, params, o.Square)
		r.add(costs)
		meter.Add(refs, b.Cuts)
		step(b, costs)
		return nil
	})
	r.end()
	return meter.VIF(), err
}

// newUnitSteps returns steps with nothing counted yet.
func newUnitSteps(worlds []int) UnitSteps {
	r := UnitSteps{Step: noRange}
	for _, size := range worlds {
		r.Worlds = append(r.Worlds, UnitWorld{Size: size, Rank: noRange})
	}
	return r
}

// add counts a step.
func (r *UnitSteps) add(steps []unitCost) {
	step := sumCosts(steps)
	r.Batches, r.Items = r.Batches+1, r.Items+step.items
	r.Delivered, r.room = r.Delivered+step.tokens, r.room+step.room
	r.Step.add(step.tokens)
	for i := range r.Worlds {
		r.Worlds[i].add(steps)
	}
}

// end turns sums into means.
func (r *UnitSteps) end() {
	if r.room > 0 {
		r.Fill = float64(r.Delivered) / float64(r.room)
		r.Padding = 1 - r.Fill
	}
	r.Step.end(r.Batches)
	for i := range r.Worlds {
		w := &r.Worlds[i]
		w.Rank.end(r.Batches * uint64(w.Size))
		w.Spread /= float64(max(r.Batches, 1))
	}
}

// unitCost is the content of a unit and its cost.
type unitCost struct {
	source              uint16
	items, tokens, room uint64
	cost                float64
}

// unitCosts appends the costs of the units of a batch.
func unitCosts(dst []unitCost, refs []order.Ref, b *order.Batch, params []units.Params, square float64) []unitCost {
	for i := 0; i < len(refs); {
		if refs[i].Padding {
			break
		}
		unit, longest := b.Cuts[i].Unit, uint64(0)
		c := unitCost{source: refs[i].Source}
		p := &params[c.source]
		for ; i < len(refs) && b.Cuts[i].Unit == unit; i++ {
			n := uint64(b.Cuts[i].Length)
			c.items, c.tokens, longest = c.items+1, c.tokens+n, max(longest, n)
			c.cost += square * float64(n) * float64(n)
		}
		if c.room = uint64(p.Size); p.Kind == units.Bucket {
			c.room = c.items * longest
			c.cost = square * float64(c.items) * float64(longest) * float64(longest) // padded ones cost as much
		}
		c.cost += float64(c.room)
		dst = append(dst, c)
	}
	return dst
}

func sumCosts(of []unitCost) (sum unitCost) {
	for i := range of {
		c := &of[i]
		sum.items, sum.tokens, sum.room, sum.cost = sum.items+c.items, sum.tokens+c.tokens, sum.room+c.room,
			sum.cost+c.cost
	}
	return sum
}

// add counts a step.
func (w *UnitWorld) add(steps []unitCost) {
	most, all := 0.0, 0.0
	for rank := range w.Size {
		from, to := order.Share(uint64(len(steps)), rank, w.Size), order.Share(uint64(len(steps)), rank+1, w.Size)
		c := sumCosts(steps[from:to])
		w.Rank.add(c.tokens)
		most, all = max(most, c.cost), all+c.cost
	}
	if all > 0 {
		w.Spread += most*float64(w.Size)/all - 1
	}
}

var noRange = Range{Least: 1<<64 - 1}

func (r *Range) add(n uint64) {
	r.Least, r.Most, r.Mean = min(r.Least, n), max(r.Most, n), r.Mean+float64(n)
}

// end turns the sum of count figures into their mean.
func (r *Range) end(count uint64) {
	if count == 0 {
		r.Least = 0
	}
	r.Mean /= float64(max(count, 1))
}
