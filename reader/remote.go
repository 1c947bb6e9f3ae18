package reader

import (
	"context"
	"sync"

	"golang.org/x/sync/semaphore"

	"github.com/shardtool/shardtool/objstore"
)

// remoteMost is the most stored bytes that are asked of a remote store at once: a run of eight blocks, also of ones that do not
// compress. A request costs time and, at many stores, money.
const remoteMost = 16 << 20

// requests is how many requests are kept in flight; 0 where reading is a matter of the processor.
func (d *Dataset) requests() int {
	if r, ok := d.store.(objstore.Remote); ok {
		return max(r.Requests(), 1)
	}
	return 0
}

// joined is the most stored bytes of one read.
func (d *Dataset) joined() int {
	if d.objects.remote {
		return remoteMost
	}
	return fetchMost
}

// flight is what the goroutines share that wait for a remote store. There are as many of them as requests, which cost next to
// nothing while they wait; what they have fetched takes memory of a budget, and decoding is left to as many at a time as there are
// workers.
type flight struct {
	turns chan *scratch // a worker's each
	limit int64         // bytes that have been asked for and are not decoded
	room  *semaphore.Weighted

	mu   sync.Mutex
	free [][]byte
}

func (d *Dataset) newFlight(workers int, limit int64) *flight {
	f := &flight{turns: make(chan *scratch, workers), limit: limit, room: semaphore.NewWeighted(limit)}
	for range workers {
		f.turns <- d.scratch.get()
	}
	return f
}

// land gives the decoders back. All goroutines of the flight have ended.
func (f *flight) land(d *Dataset) {
	close(f.turns)
	for s := range f.turns {
		d.scratch.put(s)
	}
}

// take returns a buffer of n bytes once there is room; more than the limit is granted to one that is alone.
func (f *flight) take(ctx context.Context, n int) ([]byte, error) {
	if err := f.room.Acquire(ctx, min(int64(n), f.limit)); err != nil {
		return nil, context.Cause(ctx)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := len(f.free) - 1; i >= 0; i-- {
		if c := cap(f.free[i]); c >= n && c <= 2*n+64<<10 {
			buf := f.free[i]
			f.free = append(f.free[:i], f.free[i+1:]...)
			return buf[:n], nil
		}
	}
	if len(f.free) > 0 { // of another size: what is kept and not used is never much
		f.free = f.free[1:]
	}
	return make([]byte, n, n+n/8), nil
}

func (f *flight) give(buf []byte) {
	f.mu.Lock()
	f.free = append(f.free, buf)
	f.mu.Unlock()
	f.room.Release(min(int64(len(buf)), f.limit))
}

// decode waits for a worker's turn and its scratch; call done with it.
func (f *flight) decode(ctx context.Context) (*scratch, error) {
	select {
	case s := <-f.turns:
		return s, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (f *flight) done(s *scratch) { f.turns <- s }
