package catalog

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestCache(t *testing.T) {
	c := cache[int, int]{limit: 100}
	loads := 0
	get := func(key int, cost int64) int {
		v, err := c.get(t.Context(), key, func(context.Context) (int, int64, error) {
			loads++
			return 10 * key, cost, nil
		})
		if err != nil || v != 10*key {
			t.Fatalf("%d: %d, %v", key, v, err)
		}
		return loads
	}
	get(1, 40)
	get(2, 40)
	if get(1, 40) != 2 {
		t.Fatal("1 was loaded again")
	}
	get(3, 40) // drops 2, which was used longest ago
	if _, ok := c.peek(2); ok || c.used != 80 {
		t.Fatalf("2 is there: %v; %d used", ok, c.used)
	}
	if get(1, 40) != 3 || get(2, 40) != 4 {
		t.Fatalf("%d loads", loads)
	}
	get(4, 1000) // larger than all: it is there until the next one
	if v, ok := c.peek(4); !ok || v != 40 || len(c.loaded) != 1 {
		t.Fatalf("%d, %v, %d entries", v, ok, len(c.loaded))
	}
	get(5, 1)
	if _, ok := c.peek(4); ok || c.used != 1 {
		t.Fatalf("%d used", c.used)
	}
}

func TestCacheOnce(t *testing.T) {
	c := cache[string, int]{limit: 100}
	var loads atomic.Int64
	fail := errors.New("no")
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			// The first load fails: that is for its caller alone, and the next one tries.
			v, err := c.get(t.Context(), "k", func(context.Context) (int, int64, error) {
				if loads.Add(1) == 1 {
					return 0, 0, fail
				}
				time.Sleep(time.Millisecond)
				return 7, 1, nil
			})
			if !errors.Is(err, fail) && (err != nil || v != 7) {
				t.Error(v, err)
			}
		})
	}
	wg.Wait()
	if loads.Load() != 2 {
		t.Fatalf("%d loads", loads.Load())
	}
	if _, err := c.get(t.Context(), "other", func(context.Context) (int, int64, error) { return 0, 0, fail }); !errors.Is(err, fail) || len(c.loaded) != 1 {
		t.Fatalf("%v; %d entries", err, len(c.loaded))
	}
	// One who waits can be called off.
	inside, ctx := make(chan struct{}), t.Context()
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		<-inside
		cancel()
	}()
	release := make(chan struct{})
	wg.Go(func() {
		_, _ = c.get(t.Context(), "slow", func(context.Context) (int, int64, error) {
			close(inside)
			<-release
			return 1, 1, nil
		})
	})
	<-inside
	if _, err := c.get(ctx, "slow", nil); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	close(release)
	wg.Wait()
}
