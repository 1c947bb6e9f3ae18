package ranged

import (
	"sync"
	"sync/atomic"
)

// slots limits the requests in flight. The channel has a place for every request that may ever be
// allowed; the places beyond the current limit are filled without a request. If all places are in
// use when the limit falls, owed counts the requests that must leave their place filled when they
// end.
type slots struct {
	taken chan struct{}
	owed  atomic.Int64

	mu    sync.Mutex
	least int
	asked int // sum of all reservations
	limit int
}

func newSlots(least, most int) *slots {
	s := &slots{taken: make(chan struct{}, most), least: least, limit: least}
	for range most - least {
		s.taken <- struct{}{}
	}
	return s
}

// release frees a slot.
func (s *slots) release() {
	for owed := s.owed.Load(); owed > 0; owed = s.owed.Load() {
		if s.owed.CompareAndSwap(owed, owed-1) {
			return
		}
	}
	<-s.taken
}

// reserve raises the limit by n until release is called; a second release does nothing.
func (s *slots) reserve(n int) (release func()) {
	n = max(n, 0)
	s.allow(n)
	return sync.OnceFunc(func() { s.allow(-n) })
}

// allow adds delta to the sum of reservations and adjusts the limit.
func (s *slots) allow(delta int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked += delta
	want := min(max(s.least+s.asked, s.least), cap(s.taken))
	for ; s.limit < want; s.limit++ {
		s.release()
	}
	for ; s.limit > want; s.limit-- {
		select {
		case s.taken <- struct{}{}:
		default:
			s.owed.Add(1)
		}
	}
}
