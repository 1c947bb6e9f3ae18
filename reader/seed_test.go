package reader

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/shardtool/shardtool/internal/testset"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/reader/order"
)

// TestSeedOfOneDataset: Map of a stream over one data set sees the epoch and the seed of each
// sample, also in a batch that wraps. The key of the seeds is the seed of the order.
func TestSeedOfOneDataset(t *testing.T) {
	set := newStreamed(t, mem.New(), mixed(150), testset.Options{BlockSize: 9000, ShardSize: 100_000})
	var mapped atomic.Int64
	s := set.stream(t, StreamOptions{
		Shuffle: true, Seed: 1 << 63, GlobalBatch: 40, Tail: order.TailWrap, Epochs: 2, Map: func(_ context.Context, s *Sample) error {
			if want := order.SampleSeed(1<<63, uint64(s.Epoch), s.Number, 0); s.Seed() != want || s.Source() != "" {
				t.Errorf("sample %d of epoch %d has seed %x and source %q, want %x", s.Number, s.Epoch, s.Seed(), s.Source(), want)
			}
			mapped.Add(1)
			return nil
		},
		Order: OrderOptions{Lanes: 4, Delay: 3},
	})
	epochs := map[uint32]int{}
	for b, err := range s.Batches(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		for i := range b.Samples {
			epochs[b.Samples[i].Epoch]++
		}
	}
	if epochs[0] != 150 || epochs[1] != 150 || epochs[2] != 20 || mapped.Load() != 320 {
		t.Errorf("samples of epochs %v, Map called %d times", epochs, mapped.Load())
	}
}
