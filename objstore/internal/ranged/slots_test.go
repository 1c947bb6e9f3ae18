package ranged

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shardtool/shardtool/objstore"
)

// free returns the number of slots that can be taken at once.
func free(s *slots) (n int) {
	for ; ; n++ {
		select {
		case s.taken <- struct{}{}:
			continue
		default:
		}
		break
	}
	for range n {
		s.release()
	}
	return n
}

// TestSlotsFollowTheLimit checks that the limit stays between the minimum and the maximum for any
// sum of reservations, and that slots in use when the limit falls are not given to others
// afterwards.
func TestSlotsFollowTheLimit(t *testing.T) {
	s := newSlots(4, 10)
	for _, c := range []struct{ delta, want int }{{0, 4}, {3, 7}, {30, 10}, {-29, 8}, {-4, 4}, {-9, 4}, {9, 4}, {1, 5}, {-1, 4}} {
		if s.allow(c.delta); free(s) != c.want {
			t.Fatalf("%+d: %d slots, want %d", c.delta, free(s), c.want)
		}
	}
	s.allow(6)
	for range 10 {
		s.taken <- struct{}{}
	}
	s.allow(-6)
	for i := range 10 {
		s.release()
		if n := free(s); n != max(i-5, 0) {
			t.Fatalf("%d of 10 have ended: %d slots", i+1, n)
		}
	}
	for range 4 {
		s.taken <- struct{}{}
	}
	s.allow(2)
	s.allow(-2)
	s.allow(2) // cancels what is owed
	if n := free(s); n != 2 {
		t.Fatalf("%d slots beside 4 in use, want 2", n)
	}
}

// TestSlotsUnderLoad checks that the requests in flight never exceed the maximum, and that the
// limit returns to its start.
func TestSlotsUnderLoad(t *testing.T) {
	r := New("test:", objstore.ReadOptions{Concurrency: 3, MostConcurrency: 8}, nil)
	var wg sync.WaitGroup
	var flying, most atomic.Int64
	for range 16 {
		wg.Go(func() {
			for range 200 {
				release, err := r.acquire(context.Background())
				if err != nil {
					t.Error(err)
					return
				}
				n := flying.Add(1)
				for was := most.Load(); n > was && !most.CompareAndSwap(was, n); was = most.Load() {
					continue
				}
				time.Sleep(time.Duration(rand.IntN(20)) * time.Microsecond)
				flying.Add(-1)
				release()
			}
		})
	}
	for range 2 {
		wg.Go(func() {
			for range 200 {
				d := rand.IntN(8)
				release := r.Traits().Reserve(d)
				time.Sleep(time.Duration(rand.IntN(20)) * time.Microsecond)
				release()
				release() // has no effect
			}
		})
	}
	wg.Wait()
	if most.Load() > 8 || free(r.slots) != 3 {
		t.Errorf("%d in flight of 8 at most, %d slots in the end of 3", most.Load(), free(r.slots))
	}
}

// TestConcurrencyDefaults checks the limits that follow from the options.
func TestConcurrencyDefaults(t *testing.T) {
	for _, c := range []struct{ given, most, wantLeast, wantMost int }{{0, 0, 64, 256}, {8, 0, 8, 8}, {8, 20, 8, 20}, {0, 100, 64, 100}, {300, 100, 300, 300}} {
		r := New("test:", objstore.ReadOptions{Concurrency: c.given, MostConcurrency: c.most}, nil)
		if traits := r.Traits(); traits.Requests != c.wantLeast || traits.MostRequests != c.wantMost {
			t.Errorf("%+v: %d to %d", c, traits.Requests, traits.MostRequests)
		}
	}
}
