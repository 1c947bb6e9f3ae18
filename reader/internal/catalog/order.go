package catalog

import (
	"context"
	"fmt"
	"math/rand/v2"

	"golang.org/x/sync/errgroup"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/reader/internal/fetch"
	"github.com/shardtool/shardtool/reader/order"
)

// OrderTable reads the table for an order: the number of samples of every block. It is read once
// and shared, also by plans: do not write to it.
func (c *Catalog) OrderTable(ctx context.Context) (order.Table, error) {
	t, err := c.GroupTable(ctx)
	if err != nil || t.Groups == nil {
		return t, err
	}
	return c.blocks.get(ctx, struct{}{}, func(ctx context.Context) (order.Table, int64, error) {
		t, err := c.loadOrder(ctx)
		return t, 0, err
	})
}

// groups are the groups of the blocks of all shards.
type groups struct {
	order.Table
	grain   uint64
	samples []uint32
	first   []uint32 // group of each shard, and the number of groups
}

// check compares the rows of a shard with its groups.
func (g *groups) check(shard int, rows []format.Row) error {
	if !metadata.SameGroups(g.samples[g.first[shard]:g.first[shard+1]], metadata.AppendGroups(nil, rows, g.grain)) {
		return fmt.Errorf("%w: what the tables have for orders differs from the rows of its blocks", format.ErrCorrupt)
	}
	return nil
}

// OrderShard is Shard for an order that has the table: it compares the rows with the table, whose
// samples of blocks may be from another place.
func (c *Catalog) OrderShard(ctx context.Context, number int) (*fetch.Shard, error) {
	s, err := c.Shard(ctx, number)
	if err != nil || !c.Tables.Grouped() {
		return s, err
	}
	check, err := c.GroupsCheck(ctx)
	if err == nil {
		err = check(s)
	}
	return s, err
}

// GroupsCheck returns a function that compares the rows of a shard with what the tables have of it
// for orders, if they have that.
func (c *Catalog) GroupsCheck(ctx context.Context) (check func(s *fetch.Shard) error, err error) {
	if !c.Tables.Grouped() {
		return func(*fetch.Shard) error { return nil }, nil
	}
	g, err := c.groups(ctx)
	return func(s *fetch.Shard) error {
		return c.inTables(format.InShard(s.Name, g.check(s.Number, s.Rows)))
	}, err
}

// GroupTable is OrderTable where the tables have the samples of all blocks in one place, and in
// those of a small data set. Of a large one it reads the samples of groups of blocks, and those of
// blocks when an order wants them.
func (c *Catalog) GroupTable(ctx context.Context) (order.Table, error) {
	g, err := c.groups(ctx)
	if err != nil {
		return order.Table{}, err
	}
	return g.Table, nil
}

func (c *Catalog) groups(ctx context.Context) (*groups, error) {
	return c.order.get(ctx, struct{}{}, func(ctx context.Context) (g *groups, _ int64, err error) {
		if c.Tables.Grouped() {
			g, err = c.loadGroups(ctx)
			return g, 0, err
		}
		g = new(groups)
		g.Table, err = c.loadOrder(ctx)
		return g, 0, err
	})
}

// eachAtOnce calls f for 0 to n-1, concurrently where a request takes time.
func (c *Catalog) eachAtOnce(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(max(c.Source.Requests(), 1))
	from := 0
	if n > 0 {
		from = rand.IntN(n) // ranks that start together ask for other parts first
	}
	for i := range n {
		g.Go(func() error { return f(gctx, (from+i)%n) })
	}
	return g.Wait()
}

// loadGroups reads the groups of all parts.
func (c *Catalog) loadGroups(ctx context.Context) (*groups, error) {
	cuts := c.Tables.GroupRanges()
	loaded := make([][]metadata.Groups, len(cuts)-1)
	err := c.eachAtOnce(ctx, len(loaded), func(ctx context.Context, i int) (err error) {
		loaded[i], err = loadInBackground(ctx, c, func() ([]metadata.Groups, error) {
			return c.Tables.LoadGroups(cuts[i], cuts[i+1])
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	return c.joinGroups(loaded)
}

// joinGroups joins the groups of all parts.
func (c *Catalog) joinGroups(loaded [][]metadata.Groups) (*groups, error) {
	n := 0
	for _, parts := range loaded {
		for i := range parts {
			if n += len(parts[i].Samples); parts[i].Grain != loaded[0][0].Grain {
				return nil, c.inTables(fmt.Errorf("%w: parts have groups of %d and of %d blocks", format.ErrCorrupt,
					loaded[0][0].Grain, parts[i].Grain))
			}
		}
	}
	g := &groups{grain: loaded[0][0].Grain, samples: make([]uint32, 0, n), first: make([]uint32, 1, c.Tables.Shards+1)}
	g.Decoded, g.ShardFirst = c.Tables.Decoded, make([]int, 0, c.Tables.Shards)
	blocks := 0
	for i, parts := range loaded {
		for _, p := range parts {
			for _, n := range p.Blocks {
				g.ShardFirst = append(g.ShardFirst, blocks)
				blocks += int(n)
				g.first = append(g.first, g.first[len(g.first)-1]+uint32((n+g.grain-1)/g.grain))
			}
			g.samples = append(g.samples, p.Samples...)
		}
		loaded[i] = nil
	}
	if g.grain == 1 {
		g.Samples = g.samples
		return g, nil
	}
	g.Groups = &order.Groups{Blocks: blocks, Grain: uint32(g.grain), Samples: g.samples, Expect: c.expectShard}
	g.Groups.Load = func(ctx context.Context, shard int) ([]uint32, error) { return c.loadBlocks(ctx, g, shard) }
	return g, nil
}

// loadBlocks reads the samples of each block of a shard, and compares them with its groups.
func (c *Catalog) loadBlocks(ctx context.Context, g *groups, shard int) ([]uint32, error) {
	part, at, info, err := c.Find(ctx, shard)
	if err != nil {
		return nil, err
	}
	rows, err := c.rowsIn(ctx, shard, part, at, info)
	if err != nil {
		return nil, err
	}
	if err := g.check(shard, rows); err != nil {
		return nil, c.inTables(format.InShard(info.Shards[at].Name, err))
	}
	samples := make([]uint32, 0, info.Shards[at].Blocks)
	for _, r := range rows {
		if r.Samples > 0 { // a row without samples continues the block before
			samples = append(samples, r.Samples)
		}
	}
	return samples, nil
}

// expectShard loads the rows of a shard that is wanted soon. An error has no consequence: who wants
// the rows meets it again.
func (c *Catalog) expectShard(ctx context.Context, shard int) {
	if _, ok := c.own.peek(shard); ok {
		return
	}
	_ = c.background(func() {
		ctx, end := c.Scope(ctx)
		defer end()
		select {
		case c.soon <- struct{}{}:
		case <-ctx.Done():
			return
		}
		defer func() { <-c.soon }()
		if part, at, info, err := c.Find(ctx, shard); err == nil {
			_, _ = c.rowsIn(ctx, shard, part, at, info)
		}
	})
}

// loadOrder reads the samples of every block part by part.
func (c *Catalog) loadOrder(ctx context.Context) (order.Table, error) {
	parts := make([]order.Table, len(c.Tables.Parts))
	t := order.Table{Decoded: c.Tables.Decoded, Samples: make([]uint32, 0, c.Tables.Blocks),
		ShardFirst: make([]int, 0, c.Tables.Shards)}
	err := c.eachAtOnce(ctx, len(parts), func(ctx context.Context, i int) (err error) {
		parts[i], err = c.orderPart(ctx, i)
		return err
	})
	if err != nil {
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
