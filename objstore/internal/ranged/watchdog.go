package ranged

import (
	"context"
	"sync"
	"time"
)

// watchdog cancels the context of one request that receives no bytes: the first within the
// first-byte timeout, each further one within gap. gap may be shorter than hard, the configured
// limit. Cancelling at gap takes a token of the store's share; without one the request has until
// hard.
type watchdog struct {
	r      *Reader
	cancel context.CancelCauseFunc
	gap    time.Duration
	hard   time.Duration

	mu     sync.Mutex
	timer  *time.Timer
	waits  time.Duration // last setting of the timer
	body   bool          // the first byte was received
	spared bool          // gap has passed without a token
	over   bool
}

func (r *Reader) watch(cancel context.CancelCauseFunc, stalls int) *watchdog {
	w := &watchdog{
		r:      r,
		cancel: cancel,
		gap:    r.latency.gapTimeout(r.opts.StallTimeout, stalls),
		hard:   r.opts.StallTimeout,
		waits:  r.latency.firstTimeout(r.opts.FirstByteTimeout, stalls),
	}
	w.mu.Lock()
	w.timer = time.AfterFunc(w.waits, w.fire)
	w.mu.Unlock()
	return w
}

// progress records that bytes were received.
func (w *watchdog) progress() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return
	}
	w.body, w.spared, w.waits = true, false, w.gap
	w.timer.Reset(w.gap)
}

func (w *watchdog) fire() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return
	}
	if w.body && !w.spared && w.gap < w.hard && !w.r.cuts.take() {
		w.spared, w.waits = true, w.hard
		w.timer.Reset(w.hard - w.gap)
		return
	}
	w.over = true
	w.r.stats.stalls.Add(1)
	w.cancel(&stalled{waited: w.waits, body: w.body})
}

// stop ends the watch.
func (w *watchdog) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	w.timer.Stop()
}

// pace enforces the minimum rate of a body, so that an occasional byte does not keep a request
// alive for ever. It also records the longest gap between reads.
type pace struct {
	window  time.Duration
	least   int64 // minimum of bytes in a window
	start   time.Time
	bytes   int64
	last    time.Time
	longest time.Duration
	reads   int
}

func (r *Reader) newPace(now time.Time) pace {
	window := 2 * r.opts.StallTimeout
	return pace{
		window: window,
		least:  int64(float64(r.opts.MinRate) * window.Seconds()),
		start:  now,
		last:   now,
	}
}

// read records n bytes and reports whether the body is fast enough.
func (p *pace) read(now time.Time, n int) bool {
	p.longest = max(p.longest, now.Sub(p.last))
	p.last = now
	p.reads++
	p.bytes += int64(n)
	if now.Sub(p.start) < p.window {
		return true
	}
	ok := p.bytes >= p.least
	p.start, p.bytes = now, 0
	return ok
}
