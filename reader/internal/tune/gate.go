package tune

import (
	"context"
	"sync"
)

// Gate admits a limited number of goroutines at a time, in the order of arrival. The limit may
// change. The methods Enter and Leave of a nil Gate admit everybody.
type Gate struct {
	mu      sync.Mutex
	limit   int
	inside  int
	waiting []chan struct{}
}

// NewGate returns a gate that admits limit goroutines at a time.
func NewGate(limit int) *Gate { return &Gate{limit: limit} }

// Enter waits until the caller is admitted; the caller must then call Leave. It returns false when
// ctx has ended. All users of a gate share one context, so a turn that is not taken blocks nobody.
func (g *Gate) Enter(ctx context.Context) bool {
	if g == nil {
		return true
	}
	g.mu.Lock()
	if g.inside < g.limit && len(g.waiting) == 0 {
		g.inside++
		g.mu.Unlock()
		return true
	}
	turn := make(chan struct{})
	g.waiting = append(g.waiting, turn)
	g.mu.Unlock()
	select {
	case <-turn:
		return true
	case <-ctx.Done():
		return false
	}
}

// Leave ends the stay of a goroutine that was admitted.
func (g *Gate) Leave() {
	if g == nil {
		return
	}
	g.mu.Lock()
	g.inside--
	g.admit()
	g.mu.Unlock()
}

// Set changes the limit. Goroutines beyond a lower limit stay until they leave.
func (g *Gate) Set(limit int) {
	g.mu.Lock()
	g.limit = limit
	g.admit()
	g.mu.Unlock()
}

// Limit returns how many goroutines may be inside; 0 for a nil Gate.
func (g *Gate) Limit() int {
	if g == nil {
		return 0
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.limit
}

// admit admits waiting goroutines as far as the limit allows; g.mu is held.
func (g *Gate) admit() {
	for g.inside < g.limit && len(g.waiting) > 0 {
		g.inside++
		close(g.waiting[0])
		g.waiting[0] = nil
		g.waiting = g.waiting[1:]
	}
}
