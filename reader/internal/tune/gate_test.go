package tune

import (
	"context"
	"sync"
	"testing"
	"time"
)

// TestGate checks that no more goroutines are inside than the limit, while the limit changes, and
// that none is left waiting.
func TestGate(t *testing.T) {
	g := NewGate(3)
	var wg sync.WaitGroup
	for range 40 {
		wg.Go(func() {
			for range 50 {
				if !g.Enter(t.Context()) {
					t.Error("the context has not ended")
					return
				}
				g.mu.Lock()
				if g.inside > 9 {
					t.Errorf("%d inside", g.inside)
				}
				g.mu.Unlock()
				g.Leave()
			}
		})
	}
	for i := range 100 {
		g.Set(1 + i%9)
		time.Sleep(10 * time.Microsecond)
	}
	wg.Wait()
	if g.inside != 0 || len(g.waiting) != 0 {
		t.Errorf("%d inside, %d wait", g.inside, len(g.waiting))
	}
	g.Set(1)
	g.Enter(t.Context())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if g.Enter(ctx) {
		t.Error("a second one entered, of one")
	}
	var none *Gate
	if !none.Enter(ctx) || none.Limit() != 0 {
		t.Error("a nil gate keeps somebody out")
	}
	none.Leave()
}

// TestAhead checks that the planner waits at the depth, and continues after a delivery or a new
// depth.
func TestAhead(t *testing.T) {
	a := NewAhead(2)
	planned := make(chan int)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer close(planned)
		for n := 1; a.Wait(ctx); n++ {
			a.Plan()
			planned <- n
		}
	}()
	for range 2 {
		<-planned
	}
	for !a.Kept() {
		time.Sleep(time.Millisecond)
	}
	if a.Batches() != 2 || a.Depth() != 2 {
		t.Errorf("%d batches ahead at a depth of %d", a.Batches(), a.Depth())
	}
	a.Deliver()
	<-planned
	a.SetDepth(3)
	<-planned
	cancel()
	if _, more := <-planned; more {
		t.Error("planned on after the context ended")
	}
}
