package fetch

import (
	"context"

	"github.com/shardtool/shardtool/reader/internal/tune"
)

// Turns lends scratch to the goroutines that decode: to as many at a time as the gate admits.
type Turns struct {
	Gate *tune.Gate
	Pool *ScratchPool
}

// Take waits until the caller may decode, and returns scratch for that; Done ends it.
func (t *Turns) Take(ctx context.Context) (*Scratch, error) {
	if !t.Gate.Enter(ctx) {
		return nil, context.Cause(ctx)
	}
	return t.Pool.Get(), nil
}

// Done ends a turn.
func (t *Turns) Done(s *Scratch) {
	t.Pool.Put(s)
	t.Gate.Leave()
}

// Flight is shared by the goroutines that wait for a remote store. There are as many of them as
// requests, and they cost little while they wait. The bytes that they have fetched take memory of a
// budget, and they take turns at decoding.
type Flight struct {
	*Turns
	buffers *Buffers // bytes that were asked for and are not decoded
}

// NewFlight returns a flight with room for that number of stored bytes.
func NewFlight(turns *Turns, limit int64) *Flight { return &Flight{turns, NewBuffers(limit)} }
