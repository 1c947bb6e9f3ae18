package reader

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/shardtool/shardtool/internal/testset"
	httpstore "github.com/shardtool/shardtool/objstore/http"
)

// TestRankRequests has all ranks of a job open 200 shards in a far store at once, each by itself, and
// counts the requests for tables, the round trips until all have a batch, and the requests and bytes
// of an epoch. -v prints the table of bench/GOALS.md.
func TestRankRequests(t *testing.T) {
	near := build(t, incompressible(4000), testset.Options{BlockSize: 4 << 10, ShardSize: 18 << 10})
	d := open(t, near, Options{})
	if n := d.NumShards(); n < 200 {
		t.Fatalf("%d shards", n)
	}
	for _, c := range []struct {
		name  string
		order OrderOptions
		most  float64 // times the data, whatever the ranks
	}{
		{"lanes of ranks", OrderOptions{Lanes: 16, Delay: 2, RunBlocks: 1}, 1.15},
		{"held whole", OrderOptions{}, 2.1},
	} {
		for _, world := range []int{1, 4, 8, 16} {
			if testing.Short() && world > 4 {
				continue
			}
			far := &distant{store: near}
			synctest.Test(t, func(t *testing.T) {
				far.asked = map[string]int{}
				defer time.Sleep(time.Hour) // memory that is kept for the next stream has a timer of this bubble
				var sets, streams sync.Map
				began := time.Now()
				each(t, world, func(rank int) error {
					store, err := httpstore.New("http://far.example/", httpstore.Options{HTTPClient: &http.Client{Transport: far}})
					if err != nil {
						return err
					}
					d, err := Open(t.Context(), store, Options{Workers: 2})
					if err != nil {
						return err
					}
					sets.Store(rank, d)
					s, err := d.Stream(t.Context(), StreamOptions{Shuffle: true, GlobalBatch: 64, Epochs: 1, World: world, Rank: rank, Order: c.order, Tuning: Tuning{Workers: 2}})
					if err != nil {
						return err
					}
					streams.Store(rank, s)
					_, err = s.Next(t.Context())
					return err
				})
				trips := int(time.Since(began) / trip)
				each(t, world, func(rank int) (err error) {
					s, _ := streams.Load(rank)
					for err == nil {
						_, err = s.(*Stream).Next(t.Context())
					}
					if errors.Is(err, io.EOF) {
						err = nil
					}
					return err
				})
				tables, shards, size := far.asked["manifest"]+far.asked["tables"], far.asked["shard"], float64(far.bytes)
				times := size / float64(d.Info().Bytes)
				t.Logf("| %s | %d | %d | %d | %d | %.2f |", c.name, world, tables, trips, shards, times)
				if tables != 2*world || times > c.most {
					t.Errorf("%s, %d ranks: %d requests for tables, %.2f times the data was read", c.name, world, tables, times)
				}
				for rank := range world {
					s, _ := streams.Load(rank)
					s.(*Stream).Close()
					d, _ := sets.Load(rank)
					d.(*Dataset).Close()
				}
			})
		}
	}
}

// each runs something for all ranks at once.
func each(t *testing.T, world int, do func(rank int) error) {
	t.Helper()
	var g errgroup.Group
	for rank := range world {
		g.Go(func() error { return do(rank) })
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
}
