package reader

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/shardtool/shardtool/internal/testset"
	diskcache "github.com/shardtool/shardtool/objstore/cache"
	"github.com/shardtool/shardtool/reader/order"
)

func newCache(t testing.TB, size int64) *diskcache.Cache {
	t.Helper()
	c, err := diskcache.New(t.TempDir(), diskcache.Options{Size: size})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// incompressible samples of 3,000 bytes.
func incompressible(n int) (samples []testset.Sample) {
	noise := rand.NewChaCha8([32]byte{9})
	for i := range n {
		data := make([]byte, 3000)
		_, _ = noise.Read(data)
		samples = append(samples, testset.Sample{Key: fmt.Sprintf("%05d", i), Fields: []testset.Field{{Name: "x", Data: data}}})
	}
	return samples
}

// TestCachedEpochs: what an epoch has read costs the source no request in the next, in whatever
// order; nor in another process, but for the manifest and the tables.
func TestCachedEpochs(t *testing.T) {
	watch(t)
	samples := incompressible(900)
	source := &far{Store: build(t, samples, testset.Options{BlockSize: 16 << 10, ShardSize: 200 << 10}), requests: 8}
	c := newCache(t, 64<<20)
	for round := range 2 {
		set := &streamed{open(t, c.Wrap(source), Options{Workers: 2}), samples}
		source.reads.Store(0)
		for epoch := range uint64(3) {
			f := set.follow(t, StreamOptions{Shuffle: true, GlobalBatch: 64, Epoch: epoch, Epochs: 1, Order: OrderOptions{Lanes: 8, Delay: 2}, Tuning: Tuning{Workers: 2}})
			f.rest(t)
			n := uint64(source.reads.Swap(0))
			if first := round == 0 && epoch == 0; (n > 0) != first || n > set.Info().Blocks+4 { // and the rows
				t.Errorf("round %d, epoch %d: %d requests to the source for %d blocks", round, epoch, n, set.Info().Blocks)
			}
			f.Close()
		}
		if n := source.infos.Swap(0); n >= int64(set.NumShards()) { // of the tables and the summary, not of shards
			t.Errorf("round %d: %d requests for sizes", round, n)
		}
		set.Close()
	}
}

// TestCachedOrders: what was read in one order, as `stage` does before a job, costs the source no
// request in any other: the cache keeps blocks, however many of them a request has.
func TestCachedOrders(t *testing.T) {
	watch(t)
	samples := incompressible(900)
	near := build(t, samples, testset.Options{BlockSize: 16 << 10, ShardSize: 200 << 10})
	shuffled := func(o OrderOptions) StreamOptions {
		return StreamOptions{Shuffle: true, GlobalBatch: 64, Epochs: 1, Order: o, Tuning: Tuning{Workers: 2}}
	}
	orders := map[string]StreamOptions{
		"storage": {GlobalBatch: 64, Epochs: 1}, "blocks": shuffled(OrderOptions{Lanes: 8, Delay: 2, RunBlocks: 1}),
		"runs of 3": shuffled(OrderOptions{Lanes: 8, Delay: 2, RunBlocks: 3}), "runs of 8": shuffled(OrderOptions{Lanes: 2, Delay: 2, RunBlocks: 8}),
		"whole shards": shuffled(OrderOptions{WholeShards: true, Lanes: 2}),
	}
	for first, fill := range orders {
		t.Run(first, func(t *testing.T) {
			source := &far{Store: near, requests: 8}
			set := &streamed{open(t, newCache(t, 64<<20).Wrap(source), Options{Workers: 2}), samples}
			f := set.follow(t, fill)
			f.rest(t)
			f.Close()
			if n := source.reads.Swap(0); n == 0 || n > int64(set.Info().Blocks)+8 {
				t.Errorf("%d requests for %d blocks", n, set.Info().Blocks)
			}
			for next, o := range orders {
				f := set.follow(t, o)
				f.rest(t)
				f.Close()
				if n := source.reads.Swap(0); n > 0 {
					t.Errorf("then %s: %d requests to the source", next, n)
				}
			}
			for _, err := range set.Samples(t.Context(), Range{}) {
				if err != nil {
					t.Fatal(err)
				}
			}
			if _, err := set.Get(t.Context(), 500); err != nil {
				t.Fatal(err)
			}
			if n := source.reads.Swap(0); n > 0 {
				t.Errorf("then all samples and one: %d requests to the source", n)
			}
		})
	}
}

// TestCachedHalf: a cache of half the data set finds nearly half of it in every later epoch. The
// stream has little memory.
func TestCachedHalf(t *testing.T) {
	watch(t)
	samples := incompressible(3000)
	source := &far{Store: build(t, samples, testset.Options{BlockSize: 16 << 10, ShardSize: 200 << 10}), requests: 8}
	for _, affinity := range []order.Affinity{order.AffinityRun, order.AffinityEpoch} {
		for rank := range 2 {
			c := newCache(t, 3000*3600/2/2) // a host each, with half of its half
			set := &streamed{open(t, c.Wrap(source), Options{Workers: 2}), samples}
			f := set.follow(t, StreamOptions{Shuffle: true, GlobalBatch: 64, Epochs: 4, World: 2, Rank: rank, Order: OrderOptions{Lanes: 8, Delay: 2, Affinity: affinity}, Tuning: Tuning{Workers: 2, Memory: 1 << 20}})
			f.rest(t)
			st := c.Stats()
			if st.Used > st.Size {
				t.Errorf("%d bytes in a cache of %d", st.Used, st.Size)
			}
			rate := float64(st.Hits+st.Shared) / float64(st.Hits+st.Shared+st.Misses)
			// The first epoch of four finds nothing: 0.45 in the three others is 0.34 of all.
			if least := 0.34; affinity == order.AffinityRun && rate < least {
				t.Errorf("rank %d: hit rate %.2f over four epochs, want %.2f: %+v", rank, rate, least, st)
			}
			t.Logf("affinity %s, rank %d: hit rate %.2f over four epochs", affinity, rank, rate)
			f.Close()
			set.Close()
		}
	}
}

// TestCachedDamage: a source once returned bad bytes, which the cache stored. The stream detects
// them, reads from the source again and continues; so do the next process, and reading in storage
// order.
func TestCachedDamage(t *testing.T) {
	watch(t)
	samples := incompressible(300)
	for kind, read := range map[string]func(t *testing.T, set *streamed){
		"stream": func(t *testing.T, set *streamed) {
			f := set.follow(t, StreamOptions{Shuffle: true, GlobalBatch: 16, Epochs: 2, Order: OrderOptions{Lanes: 4}, Tuning: Tuning{Workers: 2}})
			f.rest(t)
		},
		"storage order": func(t *testing.T, set *streamed) {
			n := 0
			for s, err := range set.Samples(t.Context(), Range{}) {
				if err != nil {
					t.Fatal(err)
				}
				if err := equal(s, n, samples[n]); err != nil {
					t.Fatal(err)
				}
				n++
			}
		},
		"random": func(t *testing.T, set *streamed) {
			for i := range samples {
				s, err := set.Get(t.Context(), uint64(i))
				if err != nil {
					t.Fatal(err)
				}
				if err := equal(s, i, samples[i]); err != nil {
					t.Fatal(err)
				}
			}
		},
	} {
		t.Run(kind, func(t *testing.T) {
			var bad atomic.Int64
			good := build(t, samples, testset.Options{BlockSize: 16 << 10, ShardSize: 200 << 10})
			source := &hooked{Store: good}
			c := newCache(t, 64<<20)
			set := &streamed{open(t, c.Wrap(source), Options{Workers: 2}), samples}
			source.mu.Lock()
			source.read = func(name string, p []byte, off int64) error {
				if off == 0 && bad.Add(1) == 1 { // the first block of a shard, once
					p[len(p)/2] ^= 4
				}
				return nil
			}
			source.mu.Unlock()
			read(t, set)
			if bad.Load() < 2 {
				t.Fatal("the damaged block was not read again")
			}
		})
	}
}
