// Package inspect describes data sets and checkpoints beyond what their manifests state: histograms
// of field sizes, the first difference of two data sets, and where the lanes of a checkpoint are.
package inspect

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"math/bits"
	"slices"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/order"
)

// Histogram counts sizes by powers of two: entry 0 counts sizes of 0 bytes, and entry i sizes from
// 2^(i−1) up to, but not including, 2^i. The last entry has no upper bound.
type Histogram [64]int

// Sizes returns the histogram of each field's sizes, by name. It reads the indexes of at most this
// many shards, spread evenly over the data set, and returns how many it read.
func Sizes(ctx context.Context, d *reader.Dataset, shards int) (fields map[string]*Histogram, read int, err error) {
	n := d.NumShards()
	read = min(n, shards)
	fields = map[string]*Histogram{}
	for i := range read {
		ix, err := d.Index(ctx, i*n/read)
		if err != nil {
			return nil, 0, err
		}
		for f := range ix.Sizes {
			h := fields[ix.Fields[f]]
			if h == nil {
				h = new(Histogram)
				fields[ix.Fields[f]] = h
			}
			for k := range ix.Sizes[f].Len() {
				h[min(bits.Len64(ix.Sizes[f].At(k)), len(h)-1)]++
			}
		}
	}
	return fields, read, nil
}

// Difference describes the first difference of two data sets, and is empty when both have the same
// samples in the same blocks, and the same ones are removed.
func Difference(ctx context.Context, a, b *reader.Dataset) (string, error) {
	if a.Digest() == b.Digest() {
		return removed(a.Info().Removed, b.Info().Removed), nil
	}
	for i := range min(a.NumShards(), b.NumShards()) {
		x, err := a.Shard(ctx, i)
		if err != nil {
			return "", err
		}
		y, err := b.Shard(ctx, i)
		if err != nil {
			return "", err
		}
		if x.Hash != y.Hash || x.Samples != y.Samples {
			return fmt.Sprintf("shard %d differs: %s has %d samples, %s has %d", i, x.Name, x.Samples, y.Name,
				y.Samples), nil
		}
	}
	if a.NumShards() != b.NumShards() {
		return fmt.Sprintf("shard %d is in one of them only", min(a.NumShards(), b.NumShards())), nil
	}
	return "the digests differ, though all shards are the same", nil
}

// SameContent reports whether two data sets of different layouts have the same samples in storage
// order: keys and fields, byte for byte. It reads both, unless their totals differ, or both have
// the same layouts, so that it can compare their digests.
func SameContent(ctx context.Context, a, b *reader.Dataset) (bool, error) {
	if a.Info().Format == b.Info().Format || a.NumSamples() != b.NumSamples() ||
		!slices.Equal(a.Info().Fields, b.Info().Fields) ||
		!slices.Equal(a.Info().Removed, b.Info().Removed) {
		return false, nil
	}
	next, stop := iter.Pull2(b.Samples(ctx, reader.Range{}))
	defer stop()
	for x, err := range a.Samples(ctx, reader.Range{}) {
		if err != nil {
			return false, err
		}
		y, err, ok := next()
		if err != nil || !ok || !sameSample(x, y) {
			return false, err
		}
	}
	return true, nil
}

func sameSample(x, y *reader.Sample) bool {
	return bytes.Equal(x.Key, y.Key) && slices.EqualFunc(x.Fields, y.Fields, func(p, q format.FieldView) bool {
		return bytes.Equal(p.Name, q.Name) && bytes.Equal(p.Data, q.Data)
	})
}

// removed is the difference of two lists of removed samples.
func removed(a, b []uint64) string {
	if slices.Equal(a, b) {
		return ""
	}
	i := 0
	for i < min(len(a), len(b)) && a[i] == b[i] {
		i++
	}
	first := slices.Min(append(slices.Clone(a[i:min(i+1, len(a))]), b[i:min(i+1, len(b))]...))
	return fmt.Sprintf("%d samples are removed from the first, %d from the second; sample %d is removed from one of them only", len(a), len(b), first)
}

// Lane is the place of a lane: how many of its samples are done, and where the next one is.
type Lane struct {
	Lane   int    `json:"lane"`
	Done   uint64 `json:"done"` // samples
	Length uint64 `json:"length"`
	// The next sample. Shard is empty when the lane is done.
	Shard  string `json:"shard,omitempty"`
	Block  int    `json:"block"`
	Offset int64  `json:"offset"` // where the block begins
	Index  uint32 `json:"index"`  // the place in the block
	Number uint64 `json:"number"` // in storage order
}

// Lanes returns the places of all lanes at a position of an epoch. The plan must be a plan of d.
func Lanes(ctx context.Context, d *reader.Dataset, plan *order.Plan, epoch, position uint64) ([]Lane, error) {
	heads, err := plan.LaneHeads(epoch, position)
	if err != nil {
		return nil, err
	}
	lanes := make([]Lane, 0, len(heads))
	for _, h := range heads {
		l := Lane{Lane: h.Lane, Done: h.Done, Length: h.Length}
		if h.Done < h.Length {
			l.Index, l.Number = h.Next.Index, h.Next.Number
			if err := l.locate(ctx, d, h.Shard); err != nil {
				return nil, err
			}
		}
		lanes = append(lanes, l)
	}
	return lanes, nil
}

// locate fills in the shard and block of the next sample.
func (l *Lane) locate(ctx context.Context, d *reader.Dataset, shard int) error {
	info, err := d.Shard(ctx, shard)
	if err != nil {
		return err
	}
	rows, err := d.Rows(ctx, shard)
	if err != nil {
		return err
	}
	at, err := d.Locate(ctx, l.Number)
	if err != nil {
		return err
	}
	l.Shard, l.Block = info.Name, at.Block
	l.Offset, _ = Block(rows, at.Block)
	return nil
}

// Block returns where a block's stored bytes begin in its shard, and how many decoded bytes it has.
// Rows without samples continue the block before them.
func Block(rows []format.Row, block int) (offset, decoded int64) {
	n := -1
	for _, r := range rows {
		if r.Samples > 0 {
			n++
		}
		switch {
		case n < block:
			offset += int64(r.Stored)
		case n == block:
			decoded += int64(r.Decoded)
		}
	}
	return offset, decoded
}
