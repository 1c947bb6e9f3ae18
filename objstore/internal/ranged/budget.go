package ranged

import (
	"sync"
	"time"
)

// share lets a part of all requests do something dear. Every request adds part, up to most; taking costs 1.
type share struct {
	part, most float64

	mu     sync.Mutex
	tokens float64
}

// earn books one request.
func (s *share) earn() {
	s.mu.Lock()
	s.tokens = min(s.most, s.tokens+s.part)
	s.mu.Unlock()
}

// take reports whether the dear thing may be done, and books it.
func (s *share) take() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tokens < 1 {
		return false
	}
	s.tokens--
	return true
}

// budget bounds the retries of the whole store: a token each, refilled by successes and, slowly, by time. Who finds none
// waits for one that time will bring, in the order of asking, so that an outage sees perSecond retries and not a storm.
type budget struct {
	most, refund, perSecond float64

	mu     sync.Mutex
	tokens float64 // negative: so many are promised to those who wait
	last   time.Time
}

// take books one retry and says how long it has to wait.
func (b *budget) take(now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pass(now)
	b.tokens--
	if b.tokens >= 0 {
		return 0
	}
	return time.Duration(-b.tokens / b.perSecond * float64(time.Second))
}

// giveBack undoes a take whose retry does not come.
func (b *budget) giveBack() {
	b.mu.Lock()
	b.tokens = min(b.most, b.tokens+1)
	b.mu.Unlock()
}

func (b *budget) refill() {
	b.mu.Lock()
	b.tokens = min(b.most, b.tokens+b.refund)
	b.mu.Unlock()
}

func (b *budget) pass(now time.Time) {
	if !b.last.IsZero() {
		if gone := now.Sub(b.last).Seconds(); gone > 0 {
			b.tokens = min(b.most, b.tokens+gone*b.perSecond)
		}
	}
	b.last = now
}
