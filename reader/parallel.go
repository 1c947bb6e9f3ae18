package reader

import (
	"context"

	"golang.org/x/sync/errgroup"
)

// parallel calls f for the numbers 0 to n-1, up to limit of them at a time. The first error ends
// the context of the others, and is returned when all have ended.
func parallel(ctx context.Context, n, limit int, f func(ctx context.Context, i int) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(limit)
	for i := range n {
		g.Go(func() error { return f(ctx, i) })
	}
	return g.Wait()
}
