package ranged

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// between is the time between two log lines about one outage.
const between = 15 * time.Second

// outage logs that reads wait for the store, and that it answers again: a few lines for all reads
// together.
type outage struct {
	store string
	log   *slog.Logger // nil for none
	on    atomic.Bool  // an outage was logged and has not ended

	mu          sync.Mutex
	began, last time.Time
	until       time.Time // of the wait for a quota, which answers to other requests do not end
}

// notice logs that a read waits because of err and gives up after left.
func (o *outage) notice(left time.Duration, err error) {
	o.warn("waiting for the store", err, "gives_up_in", left)
}

// quota logs that a read waits because of err and goes on after wait.
func (o *outage) quota(wait time.Duration, err error) {
	o.mu.Lock()
	o.until = time.Now().Add(wait - time.Second) // sitOut waits up to a second longer
	o.mu.Unlock()
	o.warn("waiting for the quota of the store", err, "goes_on_in", wait)
}

func (o *outage) warn(what string, err error, key string, d time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	if o.log == nil || o.on.Load() && now.Sub(o.last) < between {
		return
	}
	if !o.on.Swap(true) {
		o.began = now
	}
	o.last = now
	o.log.Warn(what, "store", o.store, "error", err, key, d.Round(time.Second))
}

// over logs the end of an outage that was logged.
func (o *outage) over() {
	if !o.on.Load() {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if time.Now().After(o.until) && o.on.Swap(false) {
		o.log.Warn("the store answers again", "store", o.store, "after", time.Since(o.began).Round(time.Second))
	}
}
