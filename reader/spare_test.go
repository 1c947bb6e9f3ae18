package reader

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardtool/shardtool/internal/testset"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
)

// held is a store whose reads begin and then wait until they are let go.
type held struct {
	letGo chan struct{}

	mu     sync.Mutex
	inside int
}

func newHeld(h *hooked) *held {
	s := &held{letGo: make(chan struct{})}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.read = func(name string, _ []byte, _ int64) error {
		if !strings.Contains(name, ".tar") { // tables
			return nil
		}
		s.add(1)
		<-s.letGo
		s.add(-1)
		return nil
	}
	return s
}

func (s *held) add(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inside += n
}

// waiting returns how many reads wait once nothing else goes on.
func (s *held) waiting() int {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inside
}

// most lets n reads go, one by one, and returns the most that waited at a time.
func (s *held) most(n int) int {
	most := s.waiting()
	for range n {
		s.letGo <- struct{}{}
		most = max(most, s.waiting())
	}
	return most
}

// TestSpare: spare workers read and decode while Next waits, or while somebody does for whom
// batches are taken ahead, and at no other time.
func TestSpare(t *testing.T) {
	packed := mem.New()
	newStreamed(t, packed, mixed(3000), testset.Options{BlockSize: 4 << 10, ShardSize: 200 << 10})
	for _, told := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) { testSpare(t, packed, told) })
	}
}

func testSpare(t *testing.T, packed objstore.Store, told bool) {
	defer time.Sleep(time.Hour) // memory that is kept for the next stream has a timer of this bubble
	hooked := &hooked{Store: packed}
	set := open(t, hooked, Options{Workers: 2})
	defer set.Close()
	store := newHeld(hooked)
	s, err := set.Stream(t.Context(), StreamOptions{
		Shuffle: true, GlobalBatch: 64,
		Tuning: Tuning{Workers: 1, Spare: 2, NoAutotune: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	defer close(store.letGo)
	if told {
		s.Waits(false)
	}
	if n := store.most(3); n != 1 {
		t.Errorf("%d workers read while nobody waits, want 1", n)
	}
	next := make(chan error, 1)
	go func() {
		_, err := s.Next(t.Context())
		next <- err
	}()
	if told {
		s.Waits(true)
	}
	if n := store.waiting(); n != 3 {
		t.Errorf("told %v: %d workers read during the wait, want 3", told, n)
	}
	if told {
		s.Waits(false)
	} else {
		for len(next) == 0 { // Next has no batch yet
			store.most(1)
		}
		if err := <-next; err != nil {
			t.Fatal(err)
		}
	}
	for range 100 { // those at work finish what they are at
		if store.waiting() > 1 {
			store.most(1)
		}
	}
	if n := store.most(3); n != 1 {
		t.Errorf("told %v: %d workers read after the wait, want 1", told, n)
	}
}
