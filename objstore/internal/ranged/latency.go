package ranged

import (
	"slices"
	"sync"
	"time"
)

const (
	// window is the number of requests remembered.
	window = 256
	// enough is the number of requests after which their latencies are used.
	enough = 32
	// refresh is the number of requests between two computations of the quantiles. Sorting 256
	// numbers takes 10 µs, so this costs less than 1 µs for each request.
	refresh = 16

	minHedge = 5 * time.Millisecond
	minFirst = time.Second
	minGap   = 250 * time.Millisecond
)

// latency records the time to the first byte and the longest gap between two reads of a body. Only
// requests that were answered completely count; cancelled ones would measure the timeouts.
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

// hedgeAfter returns when a request is late: slower than 95 % of the earlier ones and than twice
// the median, so that a store with nearly constant latency is not hedged for noise. It is 0 while
// too little is known.
func (l *latency) hedgeAfter() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.first.seen < enough {
		return 0
	}
	return max(l.first.p95, 2*l.first.p50, minHedge)
}

// firstTimeout returns how long to wait for a first byte: four times the 99th percentile, at least
// 1 s, doubled for every stall of the same read, and at most most.
func (l *latency) firstTimeout(most time.Duration, stalls int) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.first.seen < enough {
		return most
	}
	return atMost(max(4*l.first.p99, minFirst), most, stalls)
}

// gapTimeout returns how long to wait between bytes: eight times the 99th percentile of the longest
// gap, at least 250 ms, doubled and limited in the same way.
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

// quantiles keeps the last observations and recomputes their quantiles from time to time.
type quantiles struct {
	last          [window]time.Duration
	seen          int // number of all observations
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
