package writer

import (
	"context"

	"golang.org/x/sync/semaphore"
)

// budget bounds the bytes in flight. Only the layout takes from it, in order, and only the emitter
// gives back, in order, so the block that is needed next always has its share.
type budget struct {
	sem *semaphore.Weighted
	max int64
}

func newBudget(max int64) *budget { return &budget{sem: semaphore.NewWeighted(max), max: max} }

// take waits for n bytes and returns how many it took: at most the whole budget, so that a larger
// block is written on its own.
func (b *budget) take(ctx context.Context, n int64) (int64, error) {
	n = min(n, b.max)
	return n, b.sem.Acquire(ctx, n)
}

func (b *budget) give(n int64) { b.sem.Release(n) }
