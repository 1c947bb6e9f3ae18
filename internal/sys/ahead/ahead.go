// Package ahead calls functions ahead of a loop.
package ahead

import (
	"context"
	"iter"
	"sync"
)

// Each calls f for the values of all, for up to limit of them at a time and at least one, and yields
// what it returns in the order of all. When the loop ends early, the context of f ends. Each returns after all calls,
// and all, have ended.
func Each[A, B any](ctx context.Context, all iter.Seq[A], limit int, f func(ctx context.Context, of A) B) iter.Seq[B] {
	return func(yield func(B) bool) {
		ctx, cancel := context.WithCancel(ctx)
		var wg sync.WaitGroup
		defer wg.Wait()
		defer cancel()
		queue := make(chan chan B, max(limit, 1)-1)
		wg.Go(func() {
			defer close(queue)
			for of := range all {
				done := make(chan B, 1)
				select {
				case queue <- done:
				case <-ctx.Done():
					return
				}
				wg.Go(func() { done <- f(ctx, of) })
			}
		})
		for done := range queue {
			if !yield(<-done) {
				return
			}
		}
	}
}
