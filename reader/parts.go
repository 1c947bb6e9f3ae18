package reader

import (
	"context"
	"fmt"
	"io/fs"
	"sort"
	"unsafe"

	"github.com/shardtool/shardtool/format"
)

// partInfo is what the tables say of a part's shards, rows apart, with sums that make it searchable.
type partInfo struct {
	shards []format.ShardInfo
	// firstSample and firstRow have one more element than shards: where each shard begins, in the data set and in the
	// part's rows.
	firstSample []uint64
	firstRow    []int
}

// shard is a shard with its place and its rows.
type shard struct {
	*format.ShardInfo
	number int
	first  uint64 // number of its first sample
	rows   []format.Row
	// identity is what its blocks are, see identify.
	identity string
	check    *shardCheck // of Verify
}

// loadInBackground runs load in a goroutine of the data set and waits for it as long as ctx lasts: the tables read under
// the data set's context, since what they load is for all.
func loadInBackground[V any](ctx context.Context, d *Dataset, load func() (V, error)) (v V, err error) {
	done := make(chan struct{})
	var got V
	var failed error
	if err := d.background(func() {
		defer close(done)
		failed = d.twice(d.ctx, handleKey{name: d.name}, func(anew bool) (err error) {
			if anew {
				d.anew.Add(1)
				defer d.anew.Add(-1)
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
	if failed != nil && d.ctx.Err() != nil {
		return v, errClosed
	}
	return got, d.inTables(failed)
}

func (d *Dataset) partInfo(ctx context.Context, part int) (*partInfo, error) {
	return d.infos.get(ctx, part, func(ctx context.Context) (*partInfo, int64, error) {
		shards, err := loadInBackground(ctx, d, func() ([]format.ShardInfo, error) { return d.tables.LoadShards(part) })
		if err != nil {
			return nil, 0, err
		}
		p := &partInfo{shards: shards}
		sample, row := d.tables.Parts[part].FirstSample, 0
		cost := int64(0)
		for i := range shards {
			s := &shards[i]
			p.firstSample, p.firstRow = append(p.firstSample, sample), append(p.firstRow, row)
			sample, row = sample+s.Samples, row+int(s.Rows)
			cost += int64(unsafe.Sizeof(*s)) + int64(len(s.Name)+len(s.FirstKey)+len(s.LastKey)) + 16
		}
		p.firstSample, p.firstRow = append(p.firstSample, sample), append(p.firstRow, row)
		return p, cost, nil
	})
}

func (d *Dataset) partRows(ctx context.Context, part int, info *partInfo) ([]format.Row, error) {
	return d.rows.get(ctx, part, func(ctx context.Context) ([]format.Row, int64, error) {
		rows, err := loadInBackground(ctx, d, func() ([]format.Row, error) { return d.tables.LoadRows(part, info.shards) })
		return rows, int64(len(rows)) * int64(unsafe.Sizeof(format.Row{})), err
	})
}

// find returns a shard's part and its place there.
func (d *Dataset) find(ctx context.Context, number int) (part, at int, info *partInfo, err error) {
	if number < 0 || number >= d.NumShards() {
		return 0, 0, nil, fmt.Errorf("reader: shard %d of %d: %w", number, d.NumShards(), fs.ErrNotExist)
	}
	parts := d.tables.Parts
	part = sort.Search(len(parts), func(i int) bool { return parts[i].FirstShard+parts[i].Shards > uint64(number) })
	info, err = d.partInfo(ctx, part)
	return part, number - int(parts[part].FirstShard), info, err
}

// shard loads a shard's rows.
func (d *Dataset) shard(ctx context.Context, number int) (*shard, error) {
	part, at, info, err := d.find(ctx, number)
	if err != nil {
		return nil, err
	}
	rows, err := d.partRows(ctx, part, info)
	if err != nil {
		return nil, err
	}
	from, to := info.firstRow[at], info.firstRow[at+1]
	s := &shard{ShardInfo: &info.shards[at], number: number, first: info.firstSample[at], rows: rows[from:to:to]}
	s.identity = d.identify(s)
	return s, nil
}

// Shard returns what the tables say of shard number i, counted from 0 in storage order.
func (d *Dataset) Shard(ctx context.Context, i int) (format.ShardInfo, error) {
	_, at, info, err := d.find(ctx, i)
	if err != nil {
		return format.ShardInfo{}, err
	}
	return info.shards[at], nil
}

// FirstSample returns the number of the first sample of shard i.
func (d *Dataset) FirstSample(ctx context.Context, i int) (uint64, error) {
	_, at, info, err := d.find(ctx, i)
	if err != nil {
		return 0, err
	}
	return info.firstSample[at], nil
}

// Rows returns the rows of shard i. They are shared: do not write to them.
func (d *Dataset) Rows(ctx context.Context, i int) ([]format.Row, error) {
	s, err := d.shard(ctx, i)
	if err != nil {
		return nil, err
	}
	return s.rows, nil
}

// Place says where a sample is.
type Place struct {
	// Shard is the shard's number in the data set, Block the block's number in the shard, Index the sample's number in
	// the block.
	Shard, Block, Index int
}

// Locate returns the place of the sample of that number in storage order. A number that no sample has wraps
// fs.ErrNotExist.
func (d *Dataset) Locate(ctx context.Context, number uint64) (Place, error) {
	j, index, err := d.locate(ctx, number)
	if err != nil {
		return Place{}, err
	}
	return Place{Shard: j.shard.number, Block: j.block, Index: index}, nil
}

// locate returns the job that reads a sample's block, and the sample's number in it.
func (d *Dataset) locate(ctx context.Context, number uint64) (j job, index int, err error) {
	if number >= d.tables.Samples {
		return j, 0, fmt.Errorf("reader: sample number %d of %d: %w", number, d.tables.Samples, fs.ErrNotExist)
	}
	parts := d.tables.Parts
	part := sort.Search(len(parts), func(i int) bool { return parts[i].FirstSample+parts[i].Samples > number })
	info, err := d.partInfo(ctx, part)
	if err != nil {
		return j, 0, err
	}
	at := sort.Search(len(info.shards), func(i int) bool { return info.firstSample[i+1] > number })
	s, err := d.shard(ctx, int(parts[part].FirstShard)+at)
	if err != nil {
		return j, 0, err
	}
	// A shard has some 256 rows: a sum over them costs less than keeping it.
	j = job{shard: s, first: s.first, block: -1}
	for i, r := range s.rows {
		if r.Samples > 0 {
			j.block++
			if number-j.first < uint64(r.Samples) {
				j.from, j.to = i, i+1
				break
			}
			j.first += uint64(r.Samples)
		}
		j.offset += int64(r.Stored)
	}
	for j.to < len(s.rows) && s.rows[j.to].Samples == 0 {
		j.to++
	}
	return j, int(number - j.first), nil
}
