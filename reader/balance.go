package reader

import (
	"context"
	"errors"
	"io"
	"slices"

	"github.com/shardtool/shardtool/internal/order/cost"
	"github.com/shardtool/shardtool/reader/order"
)

// Spread is how far the costliest rank of a step is above the mean of its ranks, as their ratio:
// the mean over steps, and the largest.
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
	Steps uint64 `json:"steps"`
	// Without is for ranks that get consecutive entries, as they do without costs, and With is for the
	// ranks of the run. No division comes below Bound: the rank that has the costliest entry has at
	// least the cheapest ones beside it.
	Without Spread `json:"without"`
	With    Spread `json:"with"`
	Bound   Spread `json:"bound"`
}

// Balance measures the balance of the steps of an epoch, from where the run begins, or of fewer
// that have about most samples or units. It returns nil without costs.
func (r *Run) Balance(ctx context.Context, globalBatch, world int, most uint64) (*Balance, error) {
	if r.costs == nil {
		return nil, nil
	}
	group, err := r.costs.ranks(world)
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
	for _, s := range []*Spread{&out.Without, &out.With, &out.Bound} {
		s.Mean /= float64(max(out.Steps, 1))
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
	var all cost.Sum
	with, without := make([]cost.Sum, world), make([]cost.Sum, world)
	rank := 0
	for i, x := range d.spent {
		for uint64(i) >= order.Share(uint64(b.Global), rank+1, world) {
			rank++
		}
		all.Add(x)
		with[ranks[i]].Add(x)
		without[rank].Add(x)
	}
	mean := all.Float() / float64(world)
	if mean == 0 {
		return nil
	}
	bound := 1.
	for first := 0; first < world; first += group {
		from, to := order.Share(uint64(b.Global), first, world), order.Share(uint64(b.Global), first+group, world)
		if part := d.spent[from:to]; len(part) > 0 {
			rest := float64((to - from) / uint64(group))
			var sum cost.Sum
			for _, x := range part {
				sum.Add(x)
			}
			least := float64(slices.Max(part)) + max(rest-1, 0)*float64(slices.Min(part))
			bound = max(bound, sum.Float()/float64(group)/mean, least/cost.One/mean)
		}
	}
	out.Steps++
	out.With.add(slices.MaxFunc(with, cost.Sum.Compare).Float() / mean)
	out.Without.add(slices.MaxFunc(without, cost.Sum.Compare).Float() / mean)
	out.Bound.add(bound)
	return nil
}
