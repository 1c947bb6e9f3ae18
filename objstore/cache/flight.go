package cache

import (
	"context"
	"sync"
)

// flights are the reads under way, so that several goroutines that want one range cause one read.
type flights struct {
	mu    sync.Mutex
	byKey map[key]*flight
}

// flight is one read under way. Its leader's buffer serves the others: they are copied to while the leader still owns it,
// so that no memory is needed beyond what the callers brought.
type flight struct {
	leader  *object
	settled chan struct{} // closed when the outcome is known

	mu      sync.Mutex
	waiting map[*byte][]byte // buffers to fill, by their first byte
	data    []byte           // the leader's buffer, from settle to end
	err     error
	shared  bool // err is the range's and not the leader's own
}

// join returns the read of k that is under way, with p among those to be filled; or else begins one, which the caller
// leads: it must call settle, then flights.end. p is not empty.
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

// add fills p at once if the bytes are there, and otherwise notes it for settle.
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

// settle fills the buffers of all who joined, or notes why there is nothing to fill them with.
func (f *flight) settle(data []byte, err error, shared bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.waiting {
		copy(p, data)
	}
	f.waiting, f.data, f.err, f.shared = nil, data, err, shared
	close(f.settled)
}

// end forgets the flight: the leader takes its buffer back.
func (all *flights) end(k key, f *flight) {
	all.mu.Lock()
	delete(all.byKey, k)
	all.mu.Unlock()
	f.mu.Lock()
	f.data = nil
	f.mu.Unlock()
}

// wait waits for the outcome. done is false if there is none for this caller, whose context ended, or whose leader failed
// for reasons of its own. p is the caller's again in every case.
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
	// Another handle's failure may be that it was closed, or that it reads another version.
	return f.shared && f.leader == o, f.err
}
