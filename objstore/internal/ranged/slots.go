package ranged

import (
	"sync"
	"sync/atomic"
)

// slots are what requests in flight hold. There are as many as may ever be; those beyond the limit of the moment are taken by nobody in
// particular. Where all are in use when the limit falls, it owes: the next requests that end leave theirs taken.
type slots struct {
	taken chan struct{}
	owed  atomic.Int64

	mu    sync.Mutex
	least int
	asked int // by all users together, beyond least
	limit int
}

func newSlots(least, most int) *slots {
	s := &slots{taken: make(chan struct{}, most), least: least, limit: least}
	for range most - least {
		s.taken <- struct{}{}
	}
	return s
}

// release gives a slot back.
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

// allow changes the limit.
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
