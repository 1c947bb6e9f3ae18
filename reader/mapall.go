package reader

import (
	"context"
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
)

// mapFunc is StreamOptions.Map.
type mapFunc func(ctx context.Context, s *Sample) error

// all calls the function for every sample of a batch, on a number of goroutines. It returns the
// error of the first sample that has one.
func (f mapFunc) all(ctx context.Context, samples []Sample, workers int) error {
	var next atomic.Int64
	failed := make([]error, len(samples))
	var g errgroup.Group
	for range min(workers, len(samples)) {
		g.Go(func() error {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(samples) {
					return nil
				}
				if failed[i] = f.call(ctx, &samples[i]); failed[i] != nil {
					return nil
				}
			}
		})
	}
	_ = g.Wait() // errors are in failed
	for i, err := range failed {
		if s := &samples[i]; err != nil {
			return s.of.failed(fmt.Errorf("map: sample %q (number %d): %w", s.Key, s.Number, err))
		}
	}
	return nil
}

// call turns a panic of the user's function into an error.
func (f mapFunc) call(ctx context.Context, s *Sample) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return f(ctx, s)
}
