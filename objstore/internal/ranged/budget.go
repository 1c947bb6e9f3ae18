package ranged

import (
	"sync"
	"time"
)

// share permits an expensive action for a part of the requests. Every request adds part, up to
// most; an action costs 1.
type share struct {
	part, most float64

	mu     sync.Mutex
	tokens float64
}

// earn records one request.
func (s *share) earn() {
	s.mu.Lock()
	s.tokens = min(s.most, s.tokens+s.part)
	s.mu.Unlock()
}

// take reports whether the action is permitted, and pays for it.
func (s *share) take() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tokens < 1 {
		return false
	}
	s.tokens--
	return true
}

// budget bounds the retries of a store. A retry costs a token; successes and, slowly, time refill
// them. A retry without a token waits for the one that time will bring, in order of arrival, so an
// outage sees perSecond retries and not a storm.
type budget struct {
	most, refund, perSecond float64

	mu     sync.Mutex
	tokens float64 // negative if retries wait for tokens
	last   time.Time
}

// take pays for one retry and returns how long it must wait.
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

// giveBack undoes take for a retry that does not wait for its token.
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
