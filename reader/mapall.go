package reader

import (
	"context"
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
)

// mapAll calls the user's function for every sample of a batch, on as many goroutines as there are
// workers. The first error in the order of samples is the one that counts.
func (s *Stream) mapAll(ctx context.Context, b *Batch) error {
	var next atomic.Int64
	failed := make([]error, len(b.Samples))
	var g errgroup.Group
	for range min(s.opts.Workers, len(b.Samples)) {
		g.Go(func() error {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(b.Samples) {
					return nil
				}
				smp := &b.Samples[i]
				if smp.Padding {
					continue
				}
				if failed[i] = s.callMap(ctx, smp); failed[i] != nil {
					return nil
				}
			}
		})
	}
	_ = g.Wait() // errors are in failed
	for i, err := range failed {
		if err != nil {
			return b.Samples[i].of.failed(fmt.Errorf("reader: map: sample %q (number %d): %w", b.Samples[i].Key, b.Samples[i].Number, err))
		}
	}
	return nil
}

// callMap turns a panic of the user's function into an error.
func (s *Stream) callMap(ctx context.Context, smp *Sample) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return s.opts.Map(ctx, smp)
}
