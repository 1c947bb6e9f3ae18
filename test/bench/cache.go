package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"time"

	"github.com/shardtool/shardtool/bench/table"
	diskcache "github.com/shardtool/shardtool/objstore/cache"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/test/bench/peak"
)

// cached streams epochs over the throttled network through a cache on local disk, of the size of
// the data set and of half that size.
func (b *bench) cached() error {
	if err := b.distant(); err != nil {
		return err
	}
	whole, err := b.throughCache(2, 2)
	if err != nil {
		return err
	}
	b.AtMost("cache", "second epoch, cache of the whole data set: requests to the store",
		table.One(float64(whole[1].requests)), "", 0,
		fmt.Sprintf("%d in the first; %s, then %s", whole[0].requests, mbs(whole[0].rate), mbs(whole[1].rate)))
	half, err := b.throughCache(0.5, 4)
	if err != nil {
		return err
	}
	var rates table.Sample
	for _, e := range half[1:] {
		rates = append(rates, e.hitRate)
	}
	b.AtLeast("cache", "hit rate of a later epoch, cache of half the data set, affinity run", rates, "", 0.45,
		fmt.Sprintf("epochs 2 to %d; %.2f in the first", len(half), half[0].hitRate))
	return nil
}

// cachedEpoch is the cost of an epoch through a cache.
type cachedEpoch struct {
	requests int64
	hitRate  float64
	rate     float64 // bytes a second
}

// throughCache streams epochs with a cache of a multiple of the data set's size.
func (b *bench) throughCache(share float64, epochs int) (out []cachedEpoch, err error) {
	dir, err := os.MkdirTemp(b.dir, "cache-*")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	store, err := b.far()
	if err != nil {
		return nil, err
	}
	plain, err := reader.Open(b.ctx, store, reader.Options{})
	if err != nil {
		return nil, err
	}
	size := int64(share * float64(plain.Info().Bytes))
	if err := plain.Close(); err != nil {
		return nil, err
	}
	c, err := diskcache.New(dir, diskcache.Options{Size: size})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	ds, err := reader.Open(b.ctx, c.Wrap(store), reader.Options{})
	if err != nil {
		return nil, err
	}
	defer ds.Close()
	for epoch := range epochs {
		b.proxy.ResetCounts()
		before, begin := c.Stats(), time.Now()
		opt := shuffled
		opt.Epoch, opt.Epochs, opt.Order.Affinity = uint64(epoch), 1, "run"
		bytes, err := drain(b, ds, opt)
		if err != nil {
			return nil, err
		}
		after := c.Stats()
		hits, misses := after.Hits+after.Shared-before.Hits-before.Shared, after.Misses-before.Misses
		out = append(out, cachedEpoch{
			requests: b.proxy.Counts().Methods[http.MethodGet].Requests +
				b.proxy.Counts().Methods[http.MethodHead].Requests,
			hitRate: float64(hits) / float64(max(hits+misses, 1)), rate: float64(bytes) / time.Since(begin).Seconds(),
		})
	}
	return out, nil
}

// drain streams to the end, and counts.
func drain(b *bench, ds *reader.Dataset, opt reader.StreamOptions) (bytes int64, err error) {
	s, err := ds.Stream(b.ctx, opt)
	if err != nil {
		return 0, err
	}
	defer s.Close()
	for {
		batch, err := s.Next(b.ctx)
		if errors.Is(err, io.EOF) {
			return bytes, nil
		}
		if err != nil {
			return bytes, err
		}
		for i := range batch.Samples {
			for _, f := range batch.Samples[i].Fields {
				bytes += int64(len(f.Data))
			}
		}
	}
}

// memory measures the peak resident memory of a process that reads from the store with all its
// requests in flight.
func (b *bench) memory() error {
	if err := b.distant(); err != nil {
		return err
	}
	bin, err := b.program()
	if err != nil {
		return err
	}
	const budget = 64 // MiB
	for _, order := range []string{"in storage order", "shuffled"} {
		args := []string{"cat", b.address(), "--memory", fmt.Sprintf("%dMiB", budget)}
		if order == "shuffled" {
			args = append(args, "--shuffle", "--shuffle-memory", "48MiB")
		}
		b.proxy.ResetCounts()
		cat := exec.CommandContext(b.ctx, bin, args...)
		cat.Stderr = os.Stderr
		most, err := peak.Memory(cat)
		if err != nil {
			return err
		}
		b.AtMost("memory", "cat "+order+": peak resident memory less the budget", table.One(most-budget), "MiB", 64,
			fmt.Sprintf("%.0f MiB with --memory %dMiB; %d requests in flight at most", most, budget,
				b.proxy.Counts().MaxInFlight))
	}
	return nil
}
