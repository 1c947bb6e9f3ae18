package reader

import (
	"context"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/metadata"
)

// Shard returns what the tables tell about shard number i, counted from 0 in storage order.
func (d *Dataset) Shard(ctx context.Context, i int) (metadata.ShardInfo, error) {
	_, at, part, err := d.catalog.Find(ctx, i)
	if err != nil {
		return metadata.ShardInfo{}, err
	}
	return part.Shards[at], nil
}

// FirstSample returns the number of the first sample of shard i.
func (d *Dataset) FirstSample(ctx context.Context, i int) (uint64, error) {
	_, at, part, err := d.catalog.Find(ctx, i)
	if err != nil {
		return 0, err
	}
	return part.FirstSample[at], nil
}

// Rows returns the rows of shard i. They are shared: do not write to them.
func (d *Dataset) Rows(ctx context.Context, i int) ([]format.Row, error) {
	s, err := d.catalog.Shard(ctx, i)
	if err != nil {
		return nil, err
	}
	return s.Rows, nil
}

// Location is where a sample is stored.
type Location struct {
	// Shard is the shard's number in the data set, Block the block's number in the shard, Index the
	// sample's number in the block.
	Shard, Block, Index int
}

// Locate returns the place of a sample, given its number in storage order. A number that no sample
// has is an error that wraps fs.ErrNotExist.
func (d *Dataset) Locate(ctx context.Context, number uint64) (Location, error) {
	j, index, err := d.catalog.Locate(ctx, number)
	if err != nil {
		return Location{}, err
	}
	return Location{Shard: j.Shard.Number, Block: j.Block, Index: index}, nil
}
