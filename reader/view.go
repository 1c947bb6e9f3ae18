package reader

import (
	"context"
	"slices"

	"github.com/shardtool/shardtool/internal/curate/viewfile"
	"github.com/shardtool/shardtool/internal/curate/viewstore"
	"github.com/shardtool/shardtool/reader/order"
)

// UseView makes d a view: its orders and streams have only the samples of the view, as often as it
// has each. Everything else, such as Samples and Get, still reads the whole data set. Call it right
// after Open. The view must be of the content of d: the error wraps viewstore.ErrGeneration
// otherwise.
func (d *Dataset) UseView(v *viewfile.View) error {
	s, err := viewstore.Select(v, d.content())
	if err != nil {
		return err
	}
	d.selection = s
	return nil
}

func (d *Dataset) content() viewstore.Content {
	return viewstore.Content{Digest: d.Digest(), Samples: d.NumSamples()}
}

// Selection returns the samples that orders and streams have: the samples of the view in use, or
// all.
func (d *Dataset) Selection() *viewstore.Selection { return d.selection }

// OrderTable reads the table for an order: the number of samples of every block, and the view in
// use.
func (d *Dataset) OrderTable(ctx context.Context) (order.Table, error) {
	t, err := d.catalog.OrderTable(ctx)
	if err != nil {
		return t, err
	}
	d.sized(&t)
	t.View, err = d.selection.Order(t.Samples)
	return t, err
}

// groupTable is OrderTable for an order of samples, for which it reads less of a large data set. A
// view, layers and units need the samples of every block.
func (d *Dataset) groupTable(ctx context.Context, s *Spec, from *Checkpoint) (order.Table, error) {
	units := s.Units.Kind != "" || from != nil && from.Dataset.Units != nil
	if units || d.selection.ID() != "" || len(d.all) > 1 {
		return d.OrderTable(ctx)
	}
	t, err := d.catalog.GroupTable(ctx)
	d.sized(&t)
	return t, err
}

// pieces returns how many blocks a piece of a view may have, of at most n, and which blocks of a
// piece are read; nil means all. Blocks without samples are never read. If the draws of an epoch
// cannot be foreseen, pieces are therefore single blocks.
func (in *input) pieces(n int) (blocks int, wanted func(block int) bool) {
	v := in.table.View
	if v == nil || n == 1 {
		return n, nil
	}
	counts := v.Chosen(in.plan.Params().Seed, 0).Counts()
	if !v.Fixed() {
		if slices.Min(counts) <= v.Slack() { // another epoch may have no draw of a block
			return 1, nil
		}
		return n, nil
	}
	for i, first := range in.table.ShardFirst {
		end := len(counts)
		if i+1 < len(in.table.ShardFirst) {
			end = in.table.ShardFirst[i+1]
		}
		for ; first < end; first += n {
			if gap(counts[first:min(first+n, end)]) {
				return 1, nil
			}
		}
	}
	return n, func(block int) bool { return counts[block] > 0 }
}

// gap reports whether a block without samples lies between two that have some.
func gap(counts []uint32) bool {
	runs := 0
	for i, n := range counts {
		if n > 0 && (i == 0 || counts[i-1] == 0) {
			runs++
		}
	}
	return runs > 1
}
