package reader

import (
	"strings"
	"sync"
	"testing"

	"github.com/shardtool/shardtool/internal/testset"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
)

// held is a store whose reads begin and then wait until they are let go.
type held struct {
	*hooked
	begun, letGo chan struct{}

	mu           sync.Mutex
	inside, most int
}

func newHeld(h *hooked) *held {
	s := &held{hooked: h, begun: make(chan struct{}, 1000), letGo: make(chan struct{})}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.read = func(name string, _ []byte, _ int64) error {
		if !strings.Contains(name, ".tar") { // tables
			return nil
		}
		s.mu.Lock()
		s.inside++
		s.most = max(s.most, s.inside)
		s.mu.Unlock()
		s.begun <- struct{}{}
		<-s.letGo
		s.mu.Lock()
		s.inside--
		s.mu.Unlock()
		return nil
	}
	return s
}

// one lets n reads go, one by one, and returns the most that waited at a time since the first.
func (s *held) one(n int) int {
	s.mu.Lock()
	s.most = s.inside
	s.mu.Unlock()
	for range n {
		s.letGo <- struct{}{}
		<-s.begun
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.most
}

// TestSpare: spare workers read and decode while Next waits, or while somebody does for whom
// batches are taken ahead, and at no other time.
func TestSpare(t *testing.T) {
	for _, told := range []bool{false, true} {
		watch(t)
		hooked := &hooked{Store: mem.New()}
		set := newStreamed(t, hooked, mixed(3000), testset.Options{BlockSize: 4 << 10, ShardSize: 200 << 10})
		store := newHeld(hooked)
		s, err := set.Stream(t.Context(), StreamOptions{
			Shuffle: true, GlobalBatch: 64,
			Tuning: Tuning{Workers: 1, Spare: 2, NoAutotune: true},
		})
		if err != nil {
			t.Fatal(err)
		}
		if told {
			s.Waits(false)
		}
		<-store.begun
		if n := store.one(3); n != 1 {
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
		<-store.begun // two more
		<-store.begun
		if told {
			s.Waits(false)
		} else {
			for done := false; !done; { // Next has its batch
				select {
				case store.letGo <- struct{}{}:
				case <-store.begun:
				case err := <-next:
					if done = true; err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		for { // those at work finish what they are at
			store.mu.Lock()
			n := store.inside
			store.mu.Unlock()
			if n <= 1 {
				break
			}
			store.letGo <- struct{}{}
		}
		if n := store.one(3); n > 1 {
			t.Errorf("told %v: %d workers read after the wait, want 1", told, n)
		}
		close(store.letGo)
		s.Close()
	}
}
