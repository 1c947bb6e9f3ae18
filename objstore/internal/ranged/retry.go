package ranged

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"time"

	"github.com/shardtool/shardtool/objstore"
)

// Transient marks a failure of one request that the next may not meet: a reset, a timeout, 500, 502, 503, 504, 429.
type Transient struct {
	Err error
	// After is what the answer asked to wait, 0 for nothing.
	After time.Duration
	// Throttled: the answer asked for less load.
	Throttled bool
	// Answered: there was an answer, so the address is right.
	Answered bool
	// NoHost: the name has no address. Until the store has answered once, a mistyped name is the
	// likely cause.
	NoHost bool
}

// Error is the cause's.
func (t *Transient) Error() string { return t.Err.Error() }

// Unwrap gives the cause.
func (t *Transient) Unwrap() error { return t.Err }

// stalled is why a watchdog ended a request.
type stalled struct {
	waited time.Duration
	slow   bool
	body   bool
}

func (s *stalled) Error() string {
	switch {
	case s.slow:
		return "the answer trickles"
	case s.body:
		return fmt.Sprintf("the answer stopped for %v", s.waited.Round(time.Millisecond))
	}
	return fmt.Sprintf("no answer for %v", s.waited.Round(time.Millisecond))
}

// Timeout says that it is one, as net.Error does.
func (s *stalled) Timeout() bool { return true }

const (
	// progress is what restarts MaxElapsed. With the default of a minute it asks for about 1 KiB/s in the long run.
	progress = 64 << 10
	// unknownHost bounds the attempts on a name without an address, before the store has answered
	// for the first time.
	unknownHost = 4
	// notable failures in a row, or notableAfter without progress, are an outage that is logged.
	notable      = 8
	notableAfter = time.Second
	// maxRetryAfter bounds what a server may ask to wait.
	maxRetryAfter = 30 * time.Second
)

// trail is the history of one part's attempts.
type trail struct {
	r     *Reader
	total int // bytes of the part

	done     int // bytes reached
	since    time.Time
	bytes    int // since then
	small    int // attempts since then
	failures int // attempts in a row without a byte
	stalls   int // attempts that stalled, all along
}

func (r *Reader) newTrail(total int) *trail { return &trail{r: r, total: total} }

// begin starts the clock at the first request, so that the wait for its slot does not count. Later waits for a slot are
// taken off by waited.
func (t *trail) begin() {
	if t.since.IsZero() {
		t.since = time.Now()
	}
}

func (t *trail) waited(d time.Duration) {
	if !t.since.IsZero() {
		t.since = t.since.Add(d)
	}
}

// next books an attempt that brought n bytes and then failed with err, and waits until the next one is due. It returns
// nil when there shall be one, and otherwise the error of the read.
func (t *trail) next(ctx context.Context, n int, err error) error {
	if ctx.Err() != nil {
		return ended(ctx)
	}
	transient, ok := errors.AsType[*Transient](err)
	if !ok {
		return err
	}
	c := &t.r.stats
	if transient.Answered || n > 0 {
		c.answered.Store(true)
	}
	if transient.Throttled {
		c.throttled.Add(1)
	}
	if _, ok := errors.AsType[*stalled](err); ok {
		t.stalls++
	}
	t.book(n)
	most := t.r.opts.MaxAttempts
	if transient.NoHost && !c.answered.Load() {
		most = unknownHost
	}
	if most > 0 && t.failures >= most || time.Since(t.since) >= t.r.opts.MaxElapsed {
		return t.giveUp(transient.Err)
	}
	return t.pause(ctx, n > 0, transient)
}

func (t *trail) book(n int) {
	t.small++
	t.failures++
	if n > 0 {
		t.failures = 0
		t.done += n
		t.bytes += n
	}
	if t.bytes >= progress {
		t.since, t.bytes, t.small = time.Now(), 0, 0
	}
}

// pause sleeps before the next attempt. One that goes on from where bytes stopped coming is nearly free; one that
// repeats a failed request backs off and pays from the store's budget.
func (t *trail) pause(ctx context.Context, resumes bool, cause *Transient) error {
	c := &t.r.stats
	left := t.r.opts.MaxElapsed - time.Since(t.since)
	// Answers that break after a few bytes each time slow down as well, at a quarter of the pace.
	wait := t.backoff(max(t.failures, t.small/4))
	if resumes {
		c.resumes.Add(1)
	} else {
		c.retries.Add(1)
		wait = max(wait, t.r.retries.take(time.Now()))
	}
	// The last attempt is at the very end, whatever the budget: however many reads wait, all wait
	// equally long.
	if wait > left {
		wait = left
		if !resumes {
			t.r.retries.giveBack()
		}
	}
	asked := min(cause.After, maxRetryAfter)
	if asked > left {
		return t.giveUp(cause.Err)
	}
	wait = max(wait, asked)
	if t.failures >= notable || left < t.r.opts.MaxElapsed-notableAfter {
		t.r.outage.notice(left, cause.Err)
	}
	objstore.Trace(ctx, objstore.PhasePause, 1)
	if cause.Throttled {
		objstore.Trace(ctx, objstore.PhaseThrottled, 1)
	}
	defer func(start time.Time) {
		objstore.Trace(ctx, objstore.PhasePause, -1)
		if cause.Throttled {
			objstore.Trace(ctx, objstore.PhaseThrottled, -1)
		}
		c.waitRetry.Add(int64(time.Since(start)))
	}(time.Now())
	return Sleep(ctx, wait)
}

// Sleep waits for d, or returns an error when ctx ends before.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ended(ctx)
	}
}

// backoff draws from 0 to BackoffMin doubled for every failure but the first; nothing to wait for without one.
func (t *trail) backoff(failures int) time.Duration {
	if failures == 0 {
		return 0
	}
	bound := atMost(t.r.opts.BackoffMin, t.r.opts.BackoffMax, failures-1)
	return rand.N(bound + 1)
}

func (t *trail) giveUp(err error) error {
	what := ""
	if t.done > 0 {
		what = fmt.Sprintf(", %d of %d bytes reached", t.done, t.total)
	}
	return fmt.Errorf("given up after %d attempts in %v without progress%s: %w; see that the network and the store are up, then run again",
		max(t.small, 1), time.Since(t.since).Round(time.Millisecond), what, err)
}

// ended is why a read's context is over: the handle was closed, or what the caller's says. The caller's own cause is left
// out: it may be the failure of something else, which would read here as one of this object.
func ended(ctx context.Context) error {
	if errors.Is(context.Cause(ctx), fs.ErrClosed) {
		return fs.ErrClosed
	}
	return ctx.Err()
}
