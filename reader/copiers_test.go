package reader

import (
	"context"
	"errors"
	"testing"

	"github.com/shardtool/shardtool/format/stacked"
)

// TestCopiersEnd: the rows of batches that lie ready when a stream is closed are not copied any more.
// Where a shard changes all the time, each copy takes seconds.
func TestCopiersEnd(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errStreamClosed)
	s := &Stream{rows: new(stacked.Layout), sizes: sizes{queue: 1}}
	s.opts.Rows, s.opts.Workers = RowsReady, 1
	c := s.copyAhead(ctx)
	defer c.end()
	b := &Batch{s: s, memory: &batchMemory{copied: make(chan error, 1)}}
	c.found <- b
	if err := <-b.memory.copied; !errors.Is(err, errStreamClosed) {
		t.Errorf("copied: %v", err)
	}
}
