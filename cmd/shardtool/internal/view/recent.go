package view

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"

	"golang.org/x/sync/semaphore"

	"github.com/shardtool/shardtool/cmd/shardtool/internal/inspect"
	"github.com/shardtool/shardtool/reader"
)

const (
	// readBytes bounds the blocks that are decoded at a time, over all requests.
	readBytes = 64 << 20
	// recentBytes bounds the samples that are kept.
	recentBytes = 32 << 20
)

// recent reads samples, and keeps the last ones: a browser asks for the images of a page after the
// page, and each would cost another read of its block.
type recent struct {
	room *semaphore.Weighted

	mu      sync.Mutex
	samples map[sampleID]*reader.Sample
	order   []sampleID // as they were read
	bytes   int
}

type sampleID struct {
	set    *reader.Dataset
	number uint64
}

func newRecent() *recent {
	return &recent{room: semaphore.NewWeighted(readBytes), samples: map[sampleID]*reader.Sample{}}
}

func sizeOf(s *reader.Sample) (n int) {
	for i := range s.Fields {
		n += len(s.Fields[i].Name) + len(s.Fields[i].Data)
	}
	return n + len(s.Key)
}

func (r *recent) get(set *reader.Dataset, number uint64) *reader.Sample {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.samples[sampleID{set, number}]
}

func (r *recent) put(set *reader.Dataset, s *reader.Sample) {
	r.mu.Lock()
	defer r.mu.Unlock()
	id := sampleID{set, s.Number}
	if r.samples[id] != nil {
		return
	}
	r.samples[id], r.order, r.bytes = s, append(r.order, id), r.bytes+sizeOf(s)
	for r.bytes > recentBytes {
		old := r.order[0]
		r.order, r.bytes = r.order[1:], r.bytes-sizeOf(r.samples[old])
		delete(r.samples, old)
	}
}

// read returns samples of one block, which is read once. There are none if the block is large.
func (r *recent) read(ctx context.Context, set *reader.Dataset, numbers []uint64) (map[uint64]*reader.Sample, error) {
	all := map[uint64]*reader.Sample{}
	for _, n := range numbers {
		if s := r.get(set, n); s != nil {
			all[n] = s
		}
	}
	if len(all) == len(numbers) {
		return all, nil
	}
	size, err := decoded(ctx, set, numbers[0])
	if err != nil {
		return nil, err
	}
	if err := r.room.Acquire(ctx, min(size, readBytes)); err != nil {
		return nil, err
	}
	defer r.room.Release(min(size, readBytes))
	for b, err := range set.Blocks(ctx, reader.BlockOptions{From: numbers[0], To: numbers[0] + 1}) {
		if err != nil {
			return nil, err
		}
		if b.Large {
			return nil, nil
		}
		for {
			s, err := b.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return nil, err
			}
			if all[s.Number] == nil && slices.Contains(numbers, s.Number) {
				own := s.Clone()
				all[s.Number] = &own
				r.put(set, &own)
			}
		}
	}
	return all, nil
}

// decoded returns the size of the block of a sample.
func decoded(ctx context.Context, set *reader.Dataset, number uint64) (size int64, err error) {
	at, err := set.Locate(ctx, number)
	if err != nil {
		return 0, err
	}
	rows, err := set.Rows(ctx, at.Shard)
	_, size = inspect.Block(rows, at.Block)
	return size, err
}
