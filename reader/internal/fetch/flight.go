package fetch

import "context"

// Flight is shared by the goroutines that wait for a remote store. There are as many of them as
// requests, and they cost little while they wait. The bytes that they have fetched take memory of a
// budget, and only as many of them decode at a time as there are workers.
type Flight struct {
	buffers *Buffers // bytes that were asked for and are not decoded
	turns   chan *Scratch
	pool    *ScratchPool
}

// NewFlight returns a flight with room for that number of decoding workers and stored bytes.
func NewFlight(pool *ScratchPool, workers int, limit int64) *Flight {
	f := &Flight{buffers: NewBuffers(limit), turns: make(chan *Scratch, workers), pool: pool}
	for range workers {
		f.turns <- pool.Get()
	}
	return f
}

// Land gives the decoders back. All goroutines of the flight must have ended. Land of nil does
// nothing.
func (f *Flight) Land() {
	if f == nil {
		return
	}
	close(f.turns)
	for s := range f.turns {
		f.pool.Put(s)
	}
}

// turn waits until the caller may decode; done ends that.
func (f *Flight) turn(ctx context.Context) (*Scratch, error) {
	select {
	case s := <-f.turns:
		return s, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (f *Flight) done(s *Scratch) { f.turns <- s }
