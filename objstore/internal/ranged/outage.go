package ranged

import (
	"sync"
	"sync/atomic"
	"time"
)

// between is the time between two lines of the log about one outage.
const between = 15 * time.Second

// outage logs that a store is waited for, and that it is back: a few lines for all reads together.
type outage struct {
	on atomic.Bool

	mu          sync.Mutex
	began, last time.Time
}

// notice logs that a read waits, at most left longer, because of err.
func (o *outage) notice(opts Options, left time.Duration, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	if opts.Logger == nil || o.on.Load() && now.Sub(o.last) < between {
		return
	}
	if !o.on.Swap(true) {
		o.began = now
	}
	o.last = now
	opts.Logger.Warn("waiting for the store", "store", opts.Store, "error", err, "gives_up_in", left.Round(time.Second))
}

// over logs the end of an outage that was logged.
func (o *outage) over(opts Options) {
	if !o.on.Load() {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.on.Swap(false) {
		opts.Logger.Warn("the store answers again", "store", opts.Store, "after", time.Since(o.began).Round(time.Second))
	}
}
