package cache

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/shardtool/shardtool/objstore"
)

const (
	simBlocks = 200
	simBlock  = grain - headerSize // so that each counts one grain
)

// clock is a time that the test sets.
type clock struct{ time.Time }

func (c *clock) now() time.Time { return c.Time }

// simulation reads a data set of simBlocks blocks epoch by epoch, one block per second.
type simulation struct {
	clock *clock
	cache *Cache
	p     [simBlock]byte
}

func newSimulation(t *testing.T, blocks int) *simulation {
	clock := &clock{time.Now()}
	c := newCacheWith(t, t.TempDir(), Options{Size: int64(blocks) * grain, now: clock.now})
	return &simulation{clock: clock, cache: c}
}

func (s *simulation) open(t *testing.T, address, identity string) objstore.Object {
	source, _ := dataset(t, address, 1, simBlocks*simBlock)
	return open(t, s.cache.Wrap(source), "shard", identity)
}

// epoch reads the blocks in the given order and returns the hit rate.
func (s *simulation) epoch(t *testing.T, object objstore.Object, order []int) float64 {
	t.Helper()
	before := s.cache.Stats()
	for _, block := range order {
		s.clock.Time = s.clock.Add(time.Second)
		if err := object.ReadAt(t.Context(), s.p[:], int64(block)*simBlock); err != nil {
			t.Fatal(err)
		}
	}
	after := s.cache.Stats()
	if after.Errors != 0 || after.Used > after.Size {
		t.Fatalf("%+v", after)
	}
	return float64(after.Hits-before.Hits) / float64(len(order))
}

func inOrder() []int {
	order := make([]int, simBlocks)
	for i := range order {
		order[i] = i
	}
	return order
}

// TestHitRate reads ten epochs through caches of half and of a tenth of the data set, in the same
// and in new random orders: from the second epoch on the hit rate is approximately the share that
// fits.
func TestHitRate(t *testing.T) {
	for _, share := range []float64{0.5, 0.1} {
		for _, shuffled := range []bool{false, true} {
			t.Run(fmt.Sprintf("share=%v/shuffled=%v", share, shuffled), func(t *testing.T) {
				random := rand.New(rand.NewPCG(1, 2))
				s := newSimulation(t, int(share*simBlocks))
				object := s.open(t, "far:", "hash")
				for epoch := range 10 {
					order := inOrder()
					if shuffled {
						order = random.Perm(simBlocks)
					}
					rate := s.epoch(t, object, order)
					t.Logf("epoch %d: %.3f", epoch, rate)
					if epoch > 0 && rate < 0.9*share {
						t.Errorf("epoch %d: hit rate %.3f", epoch, rate)
					}
				}
			})
		}
	}
}

// TestHitRateWindow has two readers at different places of the same order, like the ranks of a
// host.
func TestHitRateWindow(t *testing.T) {
	s := newSimulation(t, simBlocks/2)
	object := s.open(t, "far:", "hash")
	for epoch := range 5 {
		order := make([]int, 0, simBlocks)
		for i := range simBlocks / 2 {
			order = append(order, i, simBlocks/2+i)
		}
		if rate := s.epoch(t, object, order); epoch > 0 && rate < 0.45 {
			t.Errorf("epoch %d: hit rate %.3f", epoch, rate)
		}
	}
}

// TestHitRateInTurn reads two data sets in turn, three epochs each in a separate process: the one
// in use takes over the space of the other.
func TestHitRateInTurn(t *testing.T) {
	clock := &clock{time.Now()}
	dir := t.TempDir()
	for round := range 4 {
		c := newCacheWith(t, dir, Options{Size: simBlocks / 2 * grain, now: clock.now})
		s := &simulation{clock: clock, cache: c}
		object := s.open(t, fmt.Sprintf("far:%d", round%2), "hash")
		for epoch := range 3 {
			if rate := s.epoch(t, object, inOrder()); epoch > 0 && rate < 0.45 {
				t.Errorf("round %d, epoch %d: hit rate %.3f", round, epoch, rate)
			}
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestHitRateOneAfterOther reads data sets one after the other in one process, two epochs each: a
// data set makes room when its objects have been closed for a while.
func TestHitRateOneAfterOther(t *testing.T) {
	s := newSimulation(t, simBlocks/2)
	for i := range 3 {
		object := s.open(t, fmt.Sprintf("far:%d", i), "hash")
		s.epoch(t, object, inOrder())
		if rate := s.epoch(t, object, inOrder()); rate < 0.45 {
			t.Errorf("data set %d: hit rate %.3f", i, rate)
		}
		if err := object.Close(); err != nil {
			t.Fatal(err)
		}
		s.clock.Time = s.clock.Add(2 * unusedAfter)
	}
}

// TestReopened closes all objects of a data set for a while and opens them again after another took
// its place: it counts as in use again.
func TestReopened(t *testing.T) {
	s := newSimulation(t, 10)
	first := s.open(t, "far:1", "hash")
	s.epoch(t, first, inOrder()[:10])
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	s.clock.Time = s.clock.Add(2 * unusedAfter)
	second := s.open(t, "far:2", "hash")
	s.epoch(t, second, inOrder()[:4])
	first = s.open(t, "far:1", "hash")
	if rate := s.epoch(t, second, inOrder()[:20]); rate != 0.2 {
		t.Errorf("hit rate %.3f: room was made where none was", rate)
	}
	if rate := s.epoch(t, first, inOrder()[:10]); rate != 0.6 {
		t.Errorf("hit rate %.3f", rate)
	}
}

// TestHitRateBoth reads a small data set, as for evaluation, between the epochs of a large one in
// one process: neither evicts the other.
func TestHitRateBoth(t *testing.T) {
	s := newSimulation(t, simBlocks/2+20)
	small, large := s.open(t, "far:small", "small"), s.open(t, "far:large", "large")
	for epoch := range 6 {
		few := s.epoch(t, small, inOrder()[:20])
		many := s.epoch(t, large, inOrder())
		if epoch > 0 && (few < 1 || many < 0.45) {
			t.Errorf("epoch %d: hit rates %.3f and %.3f", epoch, few, many)
		}
	}
}

// TestHitRateReplaced replaces the objects of a data set that stays in use: the ranges of the old
// version, which fill the cache, are evicted within a few epochs.
func TestHitRateReplaced(t *testing.T) {
	s := newSimulation(t, simBlocks/2)
	old := s.open(t, "far:", "old")
	for range 2 {
		s.epoch(t, old, inOrder())
	}
	fresh := s.open(t, "far:", "new")
	rate := 0.0
	for epoch := range 6 {
		rate = s.epoch(t, fresh, inOrder())
		t.Logf("epoch %d: %.3f", epoch, rate)
	}
	if rate < 0.45 {
		t.Errorf("hit rate %.3f", rate)
	}
}

// TestSmaller opens a folder with a smaller size: it is reduced at once.
func TestSmaller(t *testing.T) {
	dir := t.TempDir()
	source, data := dataset(t, "far:", 1, 1<<20)
	for _, size := range []int64{2 << 20, 1 << 20, 300_000, 5000, 1} {
		c := newCache(t, dir, size)
		if disk := onDisk(t, dir); disk > size {
			t.Fatalf("%d bytes, limit %d", disk, size)
		}
		object := open(t, c.Wrap(source), "shard", "hash")
		for off := 0; off < len(data); off += 10_000 {
			expect(t, object, off, min(10_000, len(data)-off), data)
		}
		if disk := onDisk(t, dir); disk > size || c.Stats().Used != disk {
			t.Fatalf("%d bytes, %d counted, limit %d", disk, c.Stats().Used, size)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
