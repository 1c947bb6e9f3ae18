package reader

import (
	"errors"
	"io"
	"math"
	"testing"

	"github.com/shardtool/shardtool/internal/testset"
)

// TestFetches compares the estimate with what the streams of all ranks fetch in an epoch.
func TestFetches(t *testing.T) {
	samples := incompressible(4000)
	near := build(t, samples, testset.Options{BlockSize: 16 << 10, ShardSize: 200 << 10})
	for name, c := range map[string]struct {
		ranks    int
		shuffle  bool
		order    OrderOptions
		requests int // of the store; 0 for a local one
		cached   bool
		share    bool
		want     float64
	}{
		"one rank":        {ranks: 1, shuffle: true, requests: 8, want: 1},
		"held whole":      {ranks: 8, shuffle: true, requests: 8, want: 4},
		"enough lanes":    {ranks: 4, shuffle: true, order: OrderOptions{Lanes: 8, Delay: 3}, requests: 8, want: 1},
		"too few lanes":   {ranks: 8, shuffle: true, order: OrderOptions{Lanes: 2, Delay: 40}, requests: 8, want: 3},
		"in order":        {ranks: 4, requests: 8, want: 1.3},
		"local":           {ranks: 8, shuffle: true, want: 1},
		"through a cache": {ranks: 8, shuffle: true, requests: 8, cached: true, want: 1},
		"shared":          {ranks: 8, shuffle: true, requests: 8, share: true, want: 1},
	} {
		t.Run(name, func(t *testing.T) {
			source := &far{Store: near, requests: c.requests}
			store := source.Store
			if c.requests > 0 {
				store = source
			}
			if c.cached {
				store = newCache(t, 64<<20).Wrap(store)
			}
			d := open(t, store, Options{Workers: 2})
			fetched, times := int64(0), 0.
			for rank := range c.ranks {
				source.reads.Store(0)
				s, err := d.Stream(t.Context(), StreamOptions{Shuffle: c.shuffle, GlobalBatch: 64, Epochs: 1, World: c.ranks, Rank: rank,
					Order: c.order, Tuning: Tuning{Workers: 2, Share: c.share}})
				if err != nil {
					t.Fatal(err)
				}
				var more uint64
				times, more = s.Fetches()
				if want := (times - 1) * float64(d.Info().Bytes); math.Abs(float64(more)-want) > float64(d.Info().Bytes)/50 {
					t.Errorf("%d bytes again, want %.0f", more, want)
				}
				for err == nil {
					_, err = s.Next(t.Context())
				}
				if !errors.Is(err, io.EOF) {
					t.Fatal(err)
				}
				s.Close()
				fetched += source.reads.Load()
			}
			t.Logf("estimated %.2f, %d reads of %d blocks", times, fetched, d.Info().Blocks)
			measured := float64(fetched) / float64(d.Info().Blocks)
			if c.requests > 0 && c.shuffle && math.Abs(measured/times-1) > 0.25 || math.Abs(times/c.want-1) > 0.3 {
				t.Errorf("estimated %.2f, want about %.2f, measured %.2f", times, c.want, measured)
			}
		})
	}
}
