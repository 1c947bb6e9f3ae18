package ranged

import (
	"slices"
	"sync"
	"time"
)

const (
	// window is how many of the last requests count.
	window = 256
	// enough is how many there must be before anything is concluded from them.
	enough = 32
	// refresh is after how many new ones the quantiles are computed again: sorting 256 numbers takes 10 µs, so this
	// makes it 1 µs a request.
	refresh = 16

	minHedge = 5 * time.Millisecond
	minFirst = time.Second
	minGap   = 250 * time.Millisecond
)

// latency is what was observed of a store's answers: the time to the first byte, and the longest gap between two reads of
// a body. Only requests that were answered in full count: those cut off would say what the timeouts are.
type latency struct {
	mu    sync.Mutex
	first quantiles
	gap   quantiles
}

func (l *latency) observeFirst(d time.Duration) { l.observe(&l.first, d) }
func (l *latency) observeGap(d time.Duration)   { l.observe(&l.gap, d) }

func (l *latency) observe(q *quantiles, d time.Duration) {
	l.mu.Lock()
	q.add(d)
	l.mu.Unlock()
}

// hedgeAfter is when a request is late: slower than 95 % of those before, and than twice the median, so that a store
// whose answers all take nearly the same is not asked twice for noise. 0 while too little is known.
func (l *latency) hedgeAfter() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.first.seen < enough {
		return 0
	}
	return max(l.first.p95, 2*l.first.p50, minHedge)
}

// firstTimeout is how long to wait for a first byte: four times what 99 % took, at least 1 s, doubled for every stall
// that the same read has met, never above most.
func (l *latency) firstTimeout(most time.Duration, stalls int) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.first.seen < enough {
		return most
	}
	return atMost(max(4*l.first.p99, minFirst), most, stalls)
}

// gapTimeout is the same between bytes: eight times the longest gap of 99 %, at least 250 ms.
func (l *latency) gapTimeout(most time.Duration, stalls int) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gap.seen < enough {
		return most
	}
	return atMost(max(8*l.gap.p99, minGap), most, stalls)
}

func atMost(d, most time.Duration, doublings int) time.Duration {
	for range doublings {
		if d >= most {
			break
		}
		d *= 2
	}
	return min(d, most)
}

// quantiles keeps the last observations and, from time to time, what follows from them.
type quantiles struct {
	last          [window]time.Duration
	seen          int // in all
	p50, p95, p99 time.Duration
}

func (q *quantiles) add(d time.Duration) {
	q.last[q.seen%window] = d
	q.seen++
	if q.seen%refresh != 0 {
		return
	}
	sorted := q.last
	known := sorted[:min(q.seen, window)]
	slices.Sort(known)
	at := func(percent int) time.Duration { return known[(len(known)-1)*percent/100] }
	q.p50, q.p95, q.p99 = at(50), at(95), at(99)
}
