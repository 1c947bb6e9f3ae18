package reader

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/shardtool/shardtool/internal/testset"
)

// shared are the options of a rank of a host that shares all blocks.
func shared(world, rank int) StreamOptions {
	return StreamOptions{
		Shuffle: true, GlobalBatch: 8 * world, Epochs: 2, World: world, Rank: rank, Tuning: Tuning{Share: true},
		Order: OrderOptions{Host: true, ShuffleMemory: 4 << 20},
	}
}

// TestShare reads a data set that a host holds whole on 8 ranks at a time. Every byte is that of
// the order, each block is read once for all ranks and epochs, and a stream that begins after all
// have ended reads nothing.
func TestShare(t *testing.T) {
	watch(t)
	const world = 8
	samples := mixed(1500)
	for _, plain := range []bool{false, true} {
		set := newStreamed(t, inDir(t), samples, testset.Options{BlockSize: 2500, ShardSize: 60_000, Plain: plain})
		if d := set.Info().DecodedBytes; d > 4<<20 || 8*d <= 4<<20 || set.Info().Blocks < 50 {
			t.Fatalf("%d bytes in %d blocks", d, set.Info().Blocks)
		}
		var all sync.WaitGroup
		followers := make([]*follower, world)
		for rank := range world {
			followers[rank] = set.follow(t, shared(world, rank))
		}
		for _, f := range followers {
			all.Go(func() { f.rest(t) })
		}
		all.Wait()
		count := func(followers ...*follower) (blocks uint64) {
			for _, f := range followers {
				if !f.Info().Plans[0].Whole() {
					t.Fatalf("the order is %+v", f.Info().Plans[0].Params())
				}
				blocks += f.Stats().Blocks
				f.Close()
			}
			return blocks
		}
		if got := count(followers...); got != set.Info().Blocks {
			t.Errorf("%d blocks were read of %d", got, set.Info().Blocks)
		}
		if got, data := set.held().Bytes(), int64(set.Info().DecodedBytes); got > data*5/4 || got < data/4 {
			t.Errorf("%d bytes are held of %d", got, data)
		}
		late := set.follow(t, shared(1, 0))
		late.rest(t)
		if got := count(late); got != 0 {
			t.Errorf("%d blocks were read again", got)
		}
	}
}

// TestShareEnds ends streams at random places while others wait for blocks that these are reading,
// and begins others. Whatever goes on gets every byte.
func TestShareEnds(t *testing.T) {
	watch(t)
	samples := mixed(600)
	store := &hooked{Store: build(t, samples, testset.Options{BlockSize: 2500, ShardSize: 20_000})}
	set := &streamed{open(t, store, Options{Workers: 2}), samples}
	var ends sync.WaitGroup
	for i := range 40 {
		random := rand.New(rand.NewPCG(1, uint64(i)))
		f := set.follow(t, shared(4, random.IntN(4)))
		ends.Go(func() {
			for range random.IntN(30) {
				e := f.next(t)
				if e == nil {
					break
				}
				e.check(t)
				e.Release()
			}
			f.Close()
		})
		if i%8 == 7 {
			ends.Wait()
			set.Close()
			set = &streamed{open(t, store, Options{Workers: 2}), samples}
		}
	}
	ends.Wait()
	set.Close()
}

// TestShareFails breaks the store once for each block. The stream whose read failed ends with that
// error; the next one reads the block again, and no error is kept.
func TestShareFails(t *testing.T) {
	watch(t)
	samples := mixed(600)
	store := &hooked{Store: build(t, samples, testset.Options{BlockSize: 2500, ShardSize: 20_000})}
	set := &streamed{open(t, store, Options{Workers: 2}), samples}
	failed := map[string]bool{}
	store.read = func(name string, _ []byte, off int64) error {
		store.mu.Lock()
		defer store.mu.Unlock()
		if at := fmt.Sprint(name, off); strings.Contains(name, ".tar") && !failed[at] && len(failed) < 5 {
			failed[at] = true
			return errors.New("the cable was pulled")
		}
		return nil
	}
	errs := 0
	for range 20 {
		s := set.stream(t, shared(1, 0))
		_, err := s.Next(t.Context())
		for err == nil {
			_, err = s.Next(t.Context())
		}
		if strings.Contains(err.Error(), "cable") {
			errs++
		}
		s.Close()
	}
	f := set.follow(t, shared(1, 0))
	if f.rest(t) == 0 || errs == 0 || errs > 5 {
		t.Errorf("%d streams failed", errs)
	}
}

// TestShareSkips leaves damaged blocks out on every rank, which all see the same holes.
func TestShareSkips(t *testing.T) {
	watch(t)
	samples := mixed(300)
	store := build(t, samples, testset.Options{BlockSize: 2500, ShardSize: 20_000})
	clean := &streamed{open(t, store, Options{}), samples}
	all := blocksOf(t, clean.Dataset)
	bad := []located{all[0], all[7], all[8]}
	set := clean.flipped(t, store, bad...)
	var ranks sync.WaitGroup
	for rank := range 3 {
		o := shared(3, rank)
		o.Faults = Faults{SkipCorrupt: true, MaxSkippedShare: 1}
		f := set.follow(t, o)
		ranks.Go(func() {
			for e := f.next(t); e != nil; e = f.next(t) {
				e.skipped = func(n uint64) bool {
					return slices.ContainsFunc(bad, func(l located) bool { return l.has(n) })
				}
				e.check(t)
			}
		})
	}
	ranks.Wait()
}

// TestShareCloses closes the data set under streams that share it: they end, and batches in hand
// stay as they are.
func TestShareCloses(t *testing.T) {
	watch(t)
	set := newStreamed(t, inDir(t), mixed(600), testset.Options{BlockSize: 2500, ShardSize: 20_000})
	o := shared(1, 0)
	o.Hold = 100
	f := set.follow(t, o)
	var held []*expected
	for range 10 {
		held = append(held, f.next(t))
	}
	memory := set.held()
	set.Close()
	b, err := f.Next(context.Background())
	for err == nil {
		b.Release()
		b, err = f.Next(context.Background())
	}
	if !errors.Is(err, fs.ErrClosed) {
		t.Errorf("the stream ends with %v", err)
	}
	f.Close()
	for _, e := range held {
		if memory.Bytes() == 0 {
			t.Fatal("the memory of a batch in hand was given back")
		}
		e.check(t)
		e.Release()
	}
	if n := memory.Bytes(); n != 0 {
		t.Errorf("%d bytes are kept after the last batch", n)
	}
}
