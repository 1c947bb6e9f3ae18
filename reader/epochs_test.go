package reader

import (
	"errors"
	"math"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/shardtool/shardtool/internal/testset"
	"github.com/shardtool/shardtool/objstore"
)

// taken is what a process has of the system and of its heap.
type taken struct {
	goroutines, files int
	heap              int64
}

// usage collects garbage. It gives goroutines that are about to end ten seconds, while there are more
// than most.
func usage(t *testing.T, most int) taken {
	t.Helper()
	for range 5000 {
		if runtime.NumGoroutine() <= most {
			break
		}
		time.Sleep(2 * time.Millisecond)
	}
	runtime.GC()
	runtime.GC() // what finalizers and pools held
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil && runtime.GOOS == "linux" {
		t.Fatal(err)
	}
	return taken{runtime.NumGoroutine(), len(files), int64(m.HeapAlloc)}
}

// TestHundredEpochs: a stream that goes through a hundred epochs takes in the last of them what it
// took in the tenth, and nothing when all is closed. Every byte and the order of every epoch are
// compared on the way.
func TestHundredEpochs(t *testing.T) {
	const budget = 1 << 20
	samples := incompressible(300)
	options := testset.Options{BlockSize: 16 << 10, ShardSize: 200 << 10}
	plain := options
	plain.Plain = true
	for name, stored := range map[string]func(t *testing.T) (store objstore.Store, done func() error){
		"compressed": func(t *testing.T) (objstore.Store, func() error) {
			store := inDir(t)
			buildIn(t, store, slices.Values(samples), options)
			return store, func() error { return nil }
		},
		"plain": func(t *testing.T) (objstore.Store, func() error) {
			store := inDir(t)
			buildIn(t, store, slices.Values(samples), plain)
			return store, func() error { return nil }
		},
		"cached": func(t *testing.T) (objstore.Store, func() error) {
			c := newCache(t, 500_000)
			return c.Wrap(&far{Store: build(t, samples, options), requests: 8}), c.Close
		},
	} {
		t.Run(name, func(t *testing.T) {
			watch(t)
			before := usage(t, math.MaxInt)
			store, done := stored(t)
			set := &streamed{open(t, store, Options{Workers: 2}), samples}
			f := set.follow(t, StreamOptions{Shuffle: true, GlobalBatch: 64, Epochs: 100, Order: OrderOptions{Lanes: 4, Delay: 2}, Tuning: Tuning{Workers: 2, Memory: budget}})
			var early, late taken
			batches := 0
			for {
				b := f.next(t)
				if b == nil {
					break
				}
				b.check(t)
				if batches++; b.Epoch == 10 && early == (taken{}) {
					early = usage(t, math.MaxInt)
				}
				if b.Epoch == 99 && late == (taken{}) {
					late = usage(t, early.goroutines)
				}
			}
			if batches < 100*300/64 || early == (taken{}) || late == (taken{}) ||
				late.goroutines > early.goroutines || late.files > early.files || late.heap > early.heap+budget { // buffers are kept for the next blocks, up to the budget
				t.Errorf("%d batches; %+v in epoch 99, %+v in epoch 10", batches, late, early)
			}
			if err := f.Close(); err != nil {
				t.Error(err)
			}
			if err := errors.Join(set.Close(), done()); err != nil {
				t.Error(err)
			}
			if after := usage(t, before.goroutines); after.goroutines > before.goroutines || after.files > before.files {
				t.Errorf("%+v when it is closed, %+v before", after, before)
			}
		})
	}
}
