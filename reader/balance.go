package reader

import (
	"context"
	"errors"
	"io"
	"slices"

	"github.com/shardtool/shardtool/internal/order/cost"
	"github.com/shardtool/shardtool/reader/order"
)

// Spread is the cost of the costliest rank of a step over the mean of its ranks: the mean over
// steps, and the largest.
type Spread struct {
	Mean float64 `json:"mean"`
	Most float64 `json:"most"`
}

func (s *Spread) add(x float64) {
	s.Mean, s.Most = s.Mean+x, max(s.Most, x)
}

// Balance is how the costs of steps are divided among ranks.
type Balance struct {
	Cost  string `json:"cost"` // the expression
	World int    `json:"world_size"`
	Group int    `json:"cost_group"` // ranks that share their entries
	Steps uint64 `json:"steps"`      // measured
	Division
	// MicroBatches is the same of the micro-batches of all ranks. It is nil where a rank has one.
	MicroBatches *MicroBalance `json:"micro_batches,omitempty"`
}

// Division is how costs are divided among ranks, or among micro-batches.
type Division struct {
	// The cost of the costliest rank of a step over the mean of its ranks: without costs, with them,
	// and what no division comes below. Without is for ranks that get consecutive entries. Bound holds
	// because the rank that has the costliest entry has at least the cheapest ones beside it.
	Without Spread `json:"without"`
	With    Spread `json:"with"`
	Bound   Spread `json:"bound"`
}

// MicroBalance is how costs are divided among micro-batches, Count of each rank.
type MicroBalance struct {
	Count int `json:"count"` // of a rank
	Division
}

// mean turns sums over steps into means.
func (d *Division) mean(steps uint64) {
	for _, s := range []*Spread{&d.Without, &d.With, &d.Bound} {
		s.Mean /= float64(max(steps, 1))
	}
}

// Balance measures the balance of the steps of an epoch, from where the run begins, or of fewer
// that have about most samples or units. It returns nil without costs.
func (r *Run) Balance(ctx context.Context, globalBatch, world int, most uint64) (*Balance, error) {
	if r.costs == nil {
		return nil, nil
	}
	group, err := r.costs.ranks(world, globalBatch)
	if err != nil {
		return nil, err
	}
	c, err := r.seek(ctx, r.begin)
	if err != nil {
		return nil, optionsError{err}
	}
	epoch, err := r.length(ctx, r.begin.Epoch)
	if err != nil {
		return nil, err
	}
	if r.end > 0 {
		c.Until(r.end)
	}
	out := &Balance{Cost: r.costs.expr.Text, World: world, Group: group}
	if r.costs.micro > 1 {
		out.MicroBatches = &MicroBalance{Count: r.costs.micro}
	}
	var refs []order.Ref
	for done := uint64(0); done < min(most, epoch); done += uint64(globalBatch) {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		var b order.Batch
		refs, b, err = c.NextBatch(refs[:0], order.Split{GlobalBatch: globalBatch, World: 1})
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = r.weigh(out, refs, &b, world, group)
		}
		if err != nil {
			return nil, err
		}
	}
	out.mean(out.Steps)
	if out.MicroBatches != nil {
		out.MicroBatches.mean(out.Steps)
	}
	return out, nil
}

// weigh adds a batch to the balance.
func (r *Run) weigh(out *Balance, refs []order.Ref, b *order.Batch, world, group int) error {
	ranks, err := r.Ranks(refs, b, world)
	if err != nil {
		return err
	}
	var d dealing
	if _, err := r.costs.deal(&d, refs, b, b.Cuts, 1, 0, 1); err != nil { // for the costs of all entries
		return err
	}
	if !out.Division.add(d.spent, ranks, group, world) {
		return nil
	}
	out.Steps++
	if m := out.MicroBatches; m != nil {
		m.add(d.spent, microOf(&d, ranks, world, m.Count), group*m.Count, world*m.Count)
	}
	return nil
}

// microOf returns the micro-batch of each entry of a batch, of k of each rank, counted rank by rank.
func microOf(d *dealing, ranks []int32, world, k int) []int32 {
	own := make([][]int, world)
	for i, rank := range ranks {
		own[rank] = append(own[rank], i)
	}
	out := make([]int32, len(ranks))
	var parts divider
	for rank, places := range own {
		for _, i := range places {
			parts.add(d.spent[i], i >= d.real)
		}
		for i, m := range parts.divide(len(ranks), rank, world, k) {
			out[places[i]] = int32(rank*k) + m
		}
	}
	return out
}

// add adds a batch: the costs of its entries, and which of all parts has each. group is how many
// parts share their entries. It reports whether anything has a cost.
func (d *Division) add(spent []uint64, parts []int32, group, all int) bool {
	var sum cost.Sum
	with, without := make([]cost.Sum, all), make([]cost.Sum, all)
	part := 0
	for i, x := range spent {
		for uint64(i) >= order.Share(uint64(len(spent)), part+1, all) {
			part++
		}
		sum.Add(x)
		with[parts[i]].Add(x)
		without[part].Add(x)
	}
	mean := sum.Float() / float64(all)
	if mean == 0 {
		return false
	}
	bound := 1.
	for first := 0; first < all; first += group {
		from, to := order.Share(uint64(len(spent)), first, all), order.Share(uint64(len(spent)), first+group, all)
		if part := spent[from:to]; len(part) > 0 {
			rest := float64((to - from) / uint64(group))
			var sum cost.Sum
			for _, x := range part {
				sum.Add(x)
			}
			least := float64(slices.Max(part)) + max(rest-1, 0)*float64(slices.Min(part))
			bound = max(bound, sum.Float()/float64(group)/mean, least/cost.One/mean)
		}
	}
	d.With.add(slices.MaxFunc(with, cost.Sum.Compare).Float() / mean)
	d.Without.add(slices.MaxFunc(without, cost.Sum.Compare).Float() / mean)
	d.Bound.add(bound)
	return true
}
