package cache

import (
	"sync"
	"time"
)

const (
	// sampleMost is the number of misses of a data set that are remembered, to learn how soon they
	// repeat.
	sampleMost = 1024

	// enough is the number of repeated ranges after which the learned time is used.
	enough = 8

	// leastDead prevents the reads at a start, when each shard's index is read twice, from looking
	// like an epoch.
	leastDead = 30 * time.Second
)

// reuse learns how long the ranges of a data set take to repeat: about an epoch in the same order,
// up to two if the order changes. For hits the time on the file shows it. A cache full of ranges
// out of use has no hits, so a sample of the misses is remembered too: those whose hash ends in a
// number of zeros that grows with the number of misses.
type reuse struct {
	mu      sync.Mutex
	seen    map[uint64]time.Time
	mask    uint64
	longest float64 // nanoseconds; a maximum that fades slowly
	count   int
}

// hit records the time between two hits.
func (r *reuse) hit(interval time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.note(interval)
}

// missed records a miss.
func (r *reuse) missed(key key, now time.Time) {
	h := key.hash()
	r.mu.Lock()
	defer r.mu.Unlock()
	if h&r.mask != 0 {
		return
	}
	if last, ok := r.seen[h]; ok {
		r.note(now.Sub(last))
	}
	if r.seen == nil {
		r.seen = map[uint64]time.Time{}
	}
	r.seen[h] = now
	for len(r.seen) > sampleMost {
		r.mask = 2*r.mask + 1
		for h := range r.seen {
			if h&r.mask != 0 {
				delete(r.seen, h)
			}
		}
	}
}

func (r *reuse) note(interval time.Duration) {
	if interval <= 0 {
		return
	}
	r.longest = max(float64(interval), r.longest-(r.longest-float64(interval))/1024)
	r.count++
}

// dead returns the time without a read after which a range is out of use, if that is known.
func (r *reuse) dead() (after time.Duration, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return max(leastDead, time.Duration(1.5*r.longest)), r.count >= enough
}

// hint remembers for a while that there is no room, so that most ranges are refused without taking
// the folder's lock.
type hint struct {
	mu    sync.Mutex
	least int64
	until time.Time
}

func (h *hint) set(least int64, until time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.least, h.until = least, until
}

func (h *hint) hopeless(need int64, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return need >= h.least && now.Before(h.until)
}
