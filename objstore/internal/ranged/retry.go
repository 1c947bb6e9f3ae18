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

// Transient is a failure of one request that a retry may avoid: a reset, a timeout, status 500,
// 502, 503, 504 or 429.
type Transient struct {
	Err error
	// After is the wait that the answer asked for, or 0.
	After time.Duration
	// Throttled reports that the answer asked for less load.
	Throttled bool
	// Quota reports that the store accepts no more requests until After has passed. That wait does
	// not count as time without progress, and costs nothing of the budget of retries.
	Quota bool
	// Within is how long the request is sent again without progress, if that is longer than
	// MaxElapsed.
	Within time.Duration
	// Answered reports that there was an answer, so the address is right.
	Answered bool
	// NoHost reports that the host name does not resolve. Until the store has answered once, the
	// name is probably mistyped.
	NoHost bool
	// Refused reports that nothing listens at the address. Until the store has answered once, the
	// address is probably wrong.
	Refused bool
}

// Error returns the cause's text.
func (t *Transient) Error() string { return t.Err.Error() }

// Unwrap returns the cause.
func (t *Transient) Unwrap() error { return t.Err }

// stalled is the reason for which a watchdog cancelled a request.
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

// Timeout returns true, as for net.Error.
func (s *stalled) Timeout() bool { return true }

const (
	// progress is the number of bytes that restarts MaxElapsed. With the default of a minute it
	// amounts to about 1 KiB/s.
	progress = 64 << 10
	// unknownHost is the number of attempts on a host name that does not resolve, until the store
	// has answered once.
	unknownHost = 4
	// refusedWithin is how long an address that refuses connections is tried, until the store has
	// answered once.
	refusedWithin = 4 * time.Second
	// lostShare divides MaxElapsed for requests that begin after another was given up, while none
	// succeeds: an outage costs one wait, however many objects are asked for.
	lostShare = 15
	// An outage is logged after notable failures in a row, or notableAfter without progress.
	notable      = 8
	notableAfter = time.Second
	// maxRetryAfter bounds the wait that a server may ask for.
	maxRetryAfter = 30 * time.Second
	// maxQuota bounds the wait for a quota, and maxQuotas the number of waits without progress:
	// others may use up the same quota.
	maxQuota  = 15 * time.Minute
	maxQuotas = 8
)

// trail is the history of one part's attempts.
type trail struct {
	r     *Reader
	total int // bytes of the part

	done     int       // bytes reached
	since    time.Time // of the first request or the last progress
	bytes    int       // received since then
	small    int       // number of attempts since then
	failures int       // number of attempts in a row without a byte
	stalls   int       // number of attempts that stalled, in total
	quotas   int       // number of waits for a quota since the last byte
	after    bool      // the store was lost when it began

	limit time.Duration // without progress
}

func (r *Reader) newTrail(total int) *trail {
	return &trail{r: r, total: total, after: r.lost.Load()}
}

// begin starts the clock at the first request, so that the wait for its slot does not count. waited
// subtracts later waits for a slot.
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

// next records an attempt that received n bytes and then failed with err. It waits until the next
// attempt is due and returns nil, or returns the error of the read.
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
	if transient.Quota {
		return t.sitOut(ctx, transient)
	}
	t.book(n)
	most := t.r.opts.MaxAttempts
	if transient.NoHost && !c.answered.Load() {
		most = unknownHost
	}
	t.limit = max(t.r.opts.MaxElapsed, transient.Within)
	if t.after && t.r.lost.Load() {
		t.limit /= lostShare
	}
	if transient.Refused && !c.answered.Load() {
		t.limit = min(t.limit, refusedWithin)
	}
	if time.Since(t.since) >= t.limit {
		t.r.lost.Store(true)
		return t.giveUp(transient.Err)
	}
	if most > 0 && t.failures >= most {
		return t.giveUp(transient.Err)
	}
	return t.pause(ctx, n > 0, transient)
}

func (t *trail) book(n int) {
	t.small++
	t.failures++
	if n > 0 {
		t.failures, t.quotas = 0, 0
		t.done += n
		t.bytes += n
	}
	if t.bytes >= progress {
		t.since, t.bytes, t.small = time.Now(), 0, 0
	}
}

// pause waits before the next attempt. An attempt that resumes after the bytes received is nearly
// free. One that repeats a failed request backs off and pays from the store's budget.
func (t *trail) pause(ctx context.Context, resumes bool, cause *Transient) error {
	c := &t.r.stats
	left := t.limit - time.Since(t.since)
	// Answers that break off after a few bytes each time back off as well, at a quarter of the
	// pace.
	wait := t.backoff(max(t.failures, t.small/4))
	if resumes {
		c.resumes.Add(1)
	} else {
		c.retries.Add(1)
		wait = max(wait, t.r.retries.take(time.Now()))
	}
	// The last attempt is at the very end, whatever the budget, so that all waiting reads wait
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
	if t.failures >= notable || left < t.limit-notableAfter {
		t.r.outage.notice(left, cause.Err)
	}
	return t.rest(ctx, wait, cause)
}

// sitOut waits until the store accepts requests again. All reads wait for the same moment, so each
// waits up to a second longer.
func (t *trail) sitOut(ctx context.Context, cause *Transient) error {
	if t.quotas++; t.quotas > maxQuotas || cause.After > maxQuota {
		return t.giveUp(cause.Err)
	}
	wait := cause.After + rand.N(time.Second)
	t.r.outage.quota(wait, cause.Err)
	t.waited(wait)
	return t.rest(ctx, wait, cause)
}

// rest waits before the next attempt.
func (t *trail) rest(ctx context.Context, wait time.Duration, cause *Transient) error {
	throttled := cause.Throttled || cause.Quota
	objstore.Trace(ctx, objstore.PhasePause, 1)
	if throttled {
		objstore.Trace(ctx, objstore.PhaseThrottled, 1)
	}
	defer func(start time.Time) {
		objstore.Trace(ctx, objstore.PhasePause, -1)
		if throttled {
			objstore.Trace(ctx, objstore.PhaseThrottled, -1)
		}
		t.r.stats.waitRetry.Add(int64(time.Since(start)))
	}(time.Now())
	return Sleep(ctx, wait)
}

// Sleep waits for d. It returns an error if ctx ends earlier.
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

// backoff returns a random pause between 0 and BackoffMin doubled for every failure after the
// first, or 0 without a failure.
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
	return &givenUp{fmt.Errorf("given up after %d attempts in %v without progress%s: %w; check the network and the store, then run again",
		max(t.small, 1), time.Since(t.since).Round(time.Millisecond), what, err)}
}

type givenUp struct{ error }

func (e *givenUp) Unwrap() error { return e.error }

// GivenUp reports whether the retries of a request ended without a final answer, so that what it
// changes may have been changed.
func GivenUp(err error) bool {
	_, ok := errors.AsType[*givenUp](err)
	return ok
}

// ended returns why the context of a read ended: fs.ErrClosed for a closed handle, or the caller's
// ctx.Err(). It hides the cause of the caller's context, which may be an unrelated failure that
// would read as one of this object.
func ended(ctx context.Context) error {
	if errors.Is(context.Cause(ctx), fs.ErrClosed) {
		return fs.ErrClosed
	}
	return ctx.Err()
}
