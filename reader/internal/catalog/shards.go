package catalog

import (
	"context"
	"fmt"
	"io/fs"
	"slices"
	"sort"
	"strings"
	"unsafe"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/reader/internal/block"
	"github.com/shardtool/shardtool/reader/internal/fetch"
)

// Part is a part of the tables: its shards without their rows, with sums that make it searchable.
type Part struct {
	Shards []metadata.ShardInfo
	// FirstSample and firstRow have one more element than Shards: where each shard begins, in the data
	// set and in the part's rows.
	FirstSample []uint64
	firstRow    []int
}

// loadInBackground runs load in a goroutine of the catalog and waits for it as long as ctx lasts.
// The tables are read under the catalog's context, because all callers share what is loaded.
func loadInBackground[V any](ctx context.Context, c *Catalog, load func() (V, error)) (v V, err error) {
	done := make(chan struct{})
	var got V
	var failed error
	if err := c.background(func() {
		defer close(done)
		failed = c.Source.Twice(c.ctx, fetch.Key{Name: c.Name}, func(anew bool) (err error) {
			if anew {
				c.anew.Add(1)
				defer c.anew.Add(-1)
			}
			got, err = load()
			return err
		})
	}); err != nil {
		return v, err
	}
	select {
	case <-done:
	case <-ctx.Done():
		return v, context.Cause(ctx)
	}
	if failed != nil && c.ctx.Err() != nil {
		return v, fetch.ErrClosed
	}
	return got, c.inTables(failed)
}

// Part loads a part of the tables. It is shared: do not write to it.
func (c *Catalog) Part(ctx context.Context, part int) (*Part, error) {
	return c.infos.get(ctx, part, func(ctx context.Context) (*Part, int64, error) {
		shards, err := loadInBackground(ctx, c,
			func() ([]metadata.ShardInfo, error) { return c.Tables.LoadShards(part) })
		if err != nil {
			return nil, 0, err
		}
		p := &Part{Shards: shards}
		sample, row := c.Tables.Parts[part].FirstSample, 0
		cost := int64(0)
		for i := range shards {
			s := &shards[i]
			p.FirstSample, p.firstRow = append(p.FirstSample, sample), append(p.firstRow, row)
			sample, row = sample+s.Samples, row+int(s.Rows)
			cost += int64(unsafe.Sizeof(*s)) + int64(len(s.Name)+len(s.FirstKey)+len(s.LastKey)) + 16
		}
		p.FirstSample, p.firstRow = append(p.FirstSample, sample), append(p.firstRow, row)
		return p, cost, nil
	})
}

func (c *Catalog) rowsOf(ctx context.Context, part int, info *Part) ([]format.Row, error) {
	return c.rows.get(ctx, part, func(ctx context.Context) ([]format.Row, int64, error) {
		rows, err := loadInBackground(ctx, c,
			func() ([]format.Row, error) { return c.Tables.LoadRows(part, info.Shards) })
		return rows, rowsCost(len(rows)), err
	})
}

// rowsIn returns the rows of a shard. Where the rows of all parts do not fit into the cache, a
// shuffled order comes to another part for every run: the rows of its shards are then kept apart,
// and do not keep those of the part.
func (c *Catalog) rowsIn(ctx context.Context, number, part, at int, info *Part) ([]format.Row, error) {
	from, to := info.firstRow[at], info.firstRow[at+1]
	of := func(ctx context.Context) ([]format.Row, error) {
		rows, err := c.rowsOf(ctx, part, info)
		if err != nil {
			return nil, err
		}
		return rows[from:to:to], nil
	}
	if c.fits {
		return of(ctx)
	}
	return c.own.get(ctx, number, func(ctx context.Context) ([]format.Row, int64, error) {
		rows, err := of(ctx)
		return slices.Clone(rows), rowsCost(to - from), err
	})
}

// rowsCost is the memory of that many rows.
func rowsCost(n int) int64 { return int64(n) * int64(unsafe.Sizeof(format.Row{})) }

// Find returns the part of a shard, and the shard's place in it.
func (c *Catalog) Find(ctx context.Context, number int) (part, at int, info *Part, err error) {
	if number < 0 || uint64(number) >= c.Tables.Shards {
		return 0, 0, nil, fmt.Errorf("shard %d of %d: %w", number, c.Tables.Shards, fs.ErrNotExist)
	}
	parts := c.Tables.Parts
	part = sort.Search(len(parts), func(i int) bool { return parts[i].FirstShard+parts[i].Shards > uint64(number) })
	info, err = c.Part(ctx, part)
	return part, number - int(parts[part].FirstShard), info, err
}

// Shard loads a shard with its rows. The rows are shared: do not write to them.
func (c *Catalog) Shard(ctx context.Context, number int) (*fetch.Shard, error) {
	part, at, info, err := c.Find(ctx, number)
	if err != nil {
		return nil, err
	}
	rows, err := c.rowsIn(ctx, number, part, at, info)
	if err != nil {
		return nil, err
	}
	of := info.Shards[at]
	if !c.fits { // a copy does not keep what the part has of its other shards
		of.Name, of.FirstKey, of.LastKey = strings.Clone(of.Name), strings.Clone(of.FirstKey), strings.Clone(of.LastKey)
	}
	s := &fetch.Shard{ShardInfo: &of, Object: fetch.Object{Source: c.Source}, Number: number,
		First: info.FirstSample[at], Rows: rows, Headers: int(c.Headers())}
	s.Removed = metadata.Within(c.Tables.Removed, s.First, s.First+s.Samples)
	c.Source.Identify(s)
	return s, nil
}

// Headers returns how many bytes of a decoded sample block.Packed leaves out, counting its key: the
// mean of all samples.
func (c *Catalog) Headers() float64 {
	t, fields := c.Tables, 0.
	for i := range t.Fields {
		f := &t.Fields[i]
		fields += float64(f.Bytes) + block.SizeBytes*float64(f.Samples)
	}
	samples := float64(max(t.Samples, 1))
	return max(float64(t.Decoded)-fields, 0)/samples + block.SizeBytes // the last field has no size
}

// ShardOf returns the shard of a sample, and the number of the sample after its last one. It loads
// no rows. If no sample has the number, the error wraps fs.ErrNotExist.
func (c *Catalog) ShardOf(ctx context.Context, number uint64) (shard int, end uint64, err error) {
	if number >= c.Tables.Samples {
		return 0, 0, fmt.Errorf("sample number %d of %d: %w", number, c.Tables.Samples, fs.ErrNotExist)
	}
	parts := c.Tables.Parts
	part := sort.Search(len(parts), func(i int) bool { return parts[i].FirstSample+parts[i].Samples > number })
	info, err := c.Part(ctx, part)
	if err != nil {
		return 0, 0, err
	}
	at := sort.Search(len(info.Shards), func(i int) bool { return info.FirstSample[i+1] > number })
	return int(parts[part].FirstShard) + at, info.FirstSample[at+1], nil
}

// Locate returns the job that reads the block of a sample, and the sample's number in the block. A
// number that no sample has is an error that wraps fs.ErrNotExist.
func (c *Catalog) Locate(ctx context.Context, number uint64) (j fetch.Job, index int, err error) {
	shard, _, err := c.ShardOf(ctx, number)
	if err != nil {
		return j, 0, err
	}
	s, err := c.Shard(ctx, shard)
	if err != nil {
		return j, 0, err
	}
	// A shard has some 256 rows: a sum over them costs less than keeping it.
	j = fetch.Job{Shard: s, First: s.First, Block: -1}
	for i, r := range s.Rows {
		if r.Samples > 0 {
			j.Block++
			if number-j.First < uint64(r.Samples) {
				j.From, j.To = i, i+1
				break
			}
			j.First += uint64(r.Samples)
		}
		j.Offset += int64(r.Stored)
	}
	for j.To < len(s.Rows) && s.Rows[j.To].Samples == 0 {
		j.To++
	}
	return j, int(number - j.First), nil
}
