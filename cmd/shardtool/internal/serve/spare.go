package serve

import (
	"sync"
	"time"
)

// calm is how long a consumer that has not waited keeps the spare workers. A loop that only reads
// waits at nearly every batch, for less than it takes to stop them and start them again; a loop
// that computes for longer has its processors to itself.
const calm = 5 * time.Millisecond

// spare turns spare workers on when the consumer waits, and off when it has not waited for a while
// or nothing is left to do. It is safe for concurrent use.
type spare struct {
	set func(on bool)

	mu    sync.Mutex
	ready bool        // the consumer does not wait; it does before its first batch
	timer *time.Timer // of the time since it waited; nil before that
}

// waits says whether the consumer waits.
func (s *spare) waits(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case on:
		s.ready = false
		if s.timer != nil {
			s.timer.Stop()
		}
		s.set(true)
	case s.ready:
	case s.timer == nil:
		s.ready, s.timer = true, time.AfterFunc(calm, s.rest)
	default:
		s.ready = true
		s.timer.Reset(calm)
	}
}

// rest turns the workers off unless the consumer waits.
func (s *spare) rest() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ready {
		return
	}
	s.timer.Stop()
	s.set(false)
}
