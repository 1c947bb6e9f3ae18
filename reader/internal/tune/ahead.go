package tune

import (
	"context"
	"sync"
)

// Ahead counts the batches that are planned and not delivered, and keeps the planner from going
// further ahead than the depth.
type Ahead struct {
	wake chan struct{} // holds a token when the planner should look again

	mu      sync.Mutex
	depth   int
	batches int  // planned and not delivered
	kept    bool // the planner waits because of the depth
}

// NewAhead returns a counter with the given depth.
func NewAhead(depth int) *Ahead { return &Ahead{depth: depth, wake: make(chan struct{}, 1)} }

// Wait waits until fewer batches than the depth are ahead. It returns false when ctx has ended.
func (a *Ahead) Wait(ctx context.Context) bool {
	for {
		a.mu.Lock()
		a.kept = a.batches >= max(a.depth, 1)
		kept := a.kept
		a.mu.Unlock()
		if !kept {
			return true
		}
		select {
		case <-a.wake:
		case <-ctx.Done():
			return false
		}
	}
}

// Plan counts a batch that was planned.
func (a *Ahead) Plan() {
	a.mu.Lock()
	a.batches++
	a.mu.Unlock()
}

// Deliver counts a batch that was delivered.
func (a *Ahead) Deliver() {
	a.mu.Lock()
	a.batches--
	a.mu.Unlock()
	Signal(a.wake)
}

// Batches returns how many batches are planned and not delivered.
func (a *Ahead) Batches() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.batches
}

// Kept reports whether the planner waits because of the depth.
func (a *Ahead) Kept() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.kept
}

// Depth returns how many batches may be ahead.
func (a *Ahead) Depth() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.depth
}

// SetDepth changes how many batches may be ahead.
func (a *Ahead) SetDepth(depth int) {
	a.mu.Lock()
	a.depth = depth
	a.mu.Unlock()
	Signal(a.wake)
}

// Signal leaves a token in the channel unless one is there.
func Signal(token chan struct{}) {
	select {
	case token <- struct{}{}:
	default:
	}
}
