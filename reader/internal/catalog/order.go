package catalog

import (
	"context"
	"fmt"
	"math/rand/v2"

	"golang.org/x/sync/errgroup"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/reader/order"
)

// OrderTable reads the table for an order: the number of samples of every block. It is read once
// and shared, also by plans: do not write to it.
func (c *Catalog) OrderTable(ctx context.Context) (order.Table, error) {
	return c.order.get(ctx, struct{}{}, func(ctx context.Context) (order.Table, int64, error) {
		t, err := c.loadOrder(ctx)
		return t, 0, err
	})
}

// loadOrder reads the parts of the tables, concurrently where a request takes time.
func (c *Catalog) loadOrder(ctx context.Context) (order.Table, error) {
	parts := make([]order.Table, len(c.Tables.Parts))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(max(c.Source.Requests(), 1))
	from := 0
	if len(parts) > 0 {
		from = rand.IntN(len(parts)) // ranks that start together ask for other parts first
	}
	for i := range parts {
		part := (from + i) % len(parts)
		g.Go(func() (err error) {
			parts[part], err = c.orderPart(gctx, part)
			return err
		})
	}
	t := order.Table{Decoded: c.Tables.Decoded, Samples: make([]uint32, 0, c.Tables.Blocks),
		ShardFirst: make([]int, 0, c.Tables.Shards)}
	if err := g.Wait(); err != nil {
		return t, err
	}
	for i := range parts {
		for _, first := range parts[i].ShardFirst {
			t.ShardFirst = append(t.ShardFirst, len(t.Samples)+first)
		}
		t.Samples = append(t.Samples, parts[i].Samples...)
		parts[i] = order.Table{}
	}
	return t, nil
}

// orderPart is OrderTable for the shards of one part, numbered from 0.
func (c *Catalog) orderPart(ctx context.Context, part int) (t order.Table, err error) {
	var info *Part
	var samples []uint64
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) {
		info, err = c.Part(ctx, part)
		return err
	})
	g.Go(func() (err error) {
		samples, err = loadInBackground(ctx, c, func() ([]uint64, error) { return c.Tables.LoadSamples(part) })
		return err
	})
	if err := g.Wait(); err != nil {
		return t, err
	}
	for i := range info.Shards {
		t.ShardFirst = append(t.ShardFirst, len(t.Samples))
		before := len(t.Samples)
		for _, n := range samples[info.firstRow[i]:info.firstRow[i+1]] {
			if n > 0 { // a row without samples continues the block before
				t.Samples = append(t.Samples, uint32(n))
			}
		}
		if uint64(len(t.Samples)-before) != info.Shards[i].Blocks {
			return t, c.inTables(fmt.Errorf("%w: %s has %d blocks with samples, %d are stated", format.ErrCorrupt,
				info.Shards[i].Name, len(t.Samples)-before, info.Shards[i].Blocks))
		}
	}
	return t, nil
}
