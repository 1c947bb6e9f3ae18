package cache

import (
	"context"
	"sync"
)

// flights are the reads in progress. Goroutines that want the same range share one of them.
type flights struct {
	mu    sync.Mutex
	byKey map[key]*flight
}

// flight is one read in progress. The leader's buffer serves the others: it is copied to theirs
// while the leader still owns it, so no further memory is needed.
type flight struct {
	leader  *object
	settled chan struct{} // closed when the result is known

	mu      sync.Mutex
	waiting map[*byte][]byte // buffers to fill, keyed by their first byte
	data    []byte           // the leader's buffer, from settle to end
	err     error
	shared  bool // err concerns the range and not only the leader
}

// join returns the read of k in progress and adds p to the buffers it fills. If there is none, join
// begins one, which the caller leads: it must call settle, then flights.end. p is not empty.
func (all *flights) join(k key, p []byte, o *object) (f *flight, first bool) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if f := all.byKey[k]; f != nil {
		f.add(p)
		return f, false
	}
	f = &flight{leader: o, settled: make(chan struct{})}
	if all.byKey == nil {
		all.byKey = map[key]*flight{}
	}
	all.byKey[k] = f
	return f, true
}

// add fills p if the bytes are known, and otherwise leaves it to settle.
func (f *flight) add(p []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.data != nil {
		copy(p, f.data)
		return
	}
	if f.waiting == nil {
		f.waiting = map[*byte][]byte{}
	}
	f.waiting[&p[0]] = p
}

// settle fills the buffers of all that joined, or records the error.
func (f *flight) settle(data []byte, err error, shared bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.waiting {
		copy(p, data)
	}
	f.waiting, f.data, f.err, f.shared = nil, data, err, shared
	close(f.settled)
}

// end removes the flight and returns the buffer to the leader.
func (all *flights) end(k key, f *flight) {
	all.mu.Lock()
	delete(all.byKey, k)
	all.mu.Unlock()
	f.mu.Lock()
	f.data = nil
	f.mu.Unlock()
}

// wait waits for the result. done is false if there is none for this caller: its context ended, or
// the leader failed for its own reasons. In every case p belongs to the caller again.
func (f *flight) wait(ctx context.Context, p []byte, o *object) (done bool, err error) {
	select {
	case <-f.settled:
	case <-ctx.Done():
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.waiting, &p[0])
		return false, nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		return true, nil
	}
	// The failure of another handle may be that it was closed, or that it reads another version.
	return f.shared && f.leader == o, f.err
}
