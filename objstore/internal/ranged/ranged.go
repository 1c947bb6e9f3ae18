// Package ranged reads byte ranges of remote objects over unreliable networks. A read returns every
// byte once, or an error with the reason.
//
// A store supplies two functions for each [Object]: a [Getter] sends one ranged request, a [Stater]
// describes the object. The path of a read:
//
//	Object.ReadAt   checks the range, splits it into parts, waits for all of them
//	part            makes attempts, each for the missing bytes, until it is complete or gives up
//	attempt         takes a slot of the limiter; sends one request, and a second (a hedge) if the
//	                first byte is late
//	watchdog        cancels a request that stalls; the next attempt resumes at the byte reached
//
// [Reader.Do] and [Reader.Send] send requests without ranges, small requests and uploads, with the
// same retries.
//
// The first answer pins the version. An answer with another ETag is [objstore.ErrChanged], and none
// of its bytes reaches the caller. Only the goroutine that called ReadAt, or one of its parts,
// writes to the caller's buffer, so a request that lost a race cannot.
//
// Timeouts adapt to the observed latency: see latency.go. The load on the store is bounded: the
// limiter bounds requests in flight, a share of the requests bounds hedges and early cancellations,
// and a budget that successes refill bounds retries.
package ranged

import (
	"context"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/shardtool/shardtool/objstore"
)

// Meta describes the version of an object that an answer belongs to.
type Meta struct {
	// Size is the size of the entire object in bytes.
	Size int64
	// ETag identifies the version; equal ETags mean equal bytes.
	ETag    string
	ModTime time.Time
	// Sum is the checksum of the bytes, or nil if the answer has none.
	Sum *objstore.Sum
}

// Info describes an object of this version.
func (m Meta) Info(name string) objstore.Info {
	return objstore.Info{Name: name, Size: m.Size, ETag: m.ETag, ModTime: m.ModTime}
}

// Stater describes an object by one request, without a retry of its own. It returns the same errors
// as a [Getter].
type Stater func(ctx context.Context) (Meta, error)

// Getter sends one request for n bytes from off on, n > 0, without a retry of its own. If etag is
// not empty, only that version may be returned. The body has exactly those bytes, or fewer if the
// object ends earlier, as Meta.Size shows.
//
// A temporary error is a [*Transient]; all others are final. A range that begins past the end is
// [io.ErrUnexpectedEOF], another version is [objstore.ErrChanged]. Get and the body's Read return
// soon after ctx ends.
type Getter func(ctx context.Context, off, n int64, etag string) (io.ReadCloser, Meta, error)

func withDefaults(o objstore.ReadOptions) objstore.ReadOptions {
	if o.Concurrency <= 0 {
		def(&o.MostConcurrency, 256)
	}
	def(&o.Concurrency, 64)
	o.MostConcurrency = max(o.MostConcurrency, o.Concurrency)
	def(&o.PartSize, 8<<20)
	def(&o.FirstByteTimeout, 10*time.Second)
	def(&o.StallTimeout, 5*time.Second)
	if o.MinRate == 0 {
		o.MinRate = 1024
	}
	def(&o.MaxElapsed, time.Minute)
	def(&o.BackoffMin, 20*time.Millisecond)
	def(&o.BackoffMax, 5*time.Second)
	return o
}

func def[T ~int | ~int64](field *T, value T) {
	if *field <= 0 {
		*field = value
	}
}

// Reader holds the state shared by all objects of a store: the limiter, the budgets and the
// observed latency. Many goroutines may use it. It runs no goroutines of its own and needs no
// closing.
type Reader struct {
	// WriteTimeout is the longest time in which a request of Send moves no byte. Set it before the
	// first one.
	WriteTimeout time.Duration

	store   string
	opts    objstore.ReadOptions
	slots   *slots
	extra   chan struct{} // slots of hedges, which are needed most when all other slots are taken
	hedges  share
	cuts    share
	retries budget
	latency latency
	stats   counters
	outage  outage
	lost    atomic.Bool // a request was given up for want of an answer, and none has succeeded since
}

// New returns the Reader of a store. store is the store's address, for errors. log receives a
// warning when an outage lasts; it may be nil.
func New(store string, opts objstore.ReadOptions, log *slog.Logger) *Reader {
	opts = withDefaults(opts)
	r := &Reader{
		WriteTimeout: time.Minute,

		store: store,
		opts:  opts,
		slots: newSlots(opts.Concurrency, opts.MostConcurrency),
		extra: make(chan struct{}, Extra(opts.Concurrency)),
		// 5 % of the requests may be hedged and 10 % cancelled before StallTimeout, with bursts of
		// a few at once.
		hedges: share{part: 0.05, most: max(2, float64(opts.Concurrency)/8)},
		cuts:   share{part: 0.10, most: max(2, float64(opts.Concurrency)/4)},
		// The burst is two failures for every request in flight. After it, each success pays for
		// half a retry, and an outage is probed at an eighth of the concurrency per second.
		retries: budget{most: 2 * float64(opts.Concurrency), refund: 0.5,
			perSecond: max(1, float64(opts.Concurrency)/8)},
	}
	r.retries.tokens = r.retries.most
	r.outage.store, r.outage.log = store, log
	return r
}

// Extra returns how many hedges may be in flight in addition to a number of requests.
func Extra(concurrency int) int { return (concurrency + 7) / 8 }

// Stat describes an object.
func (r *Reader) Stat(ctx context.Context, name string, stat Stater) (objstore.Info, error) {
	var meta Meta
	err := r.Do(ctx, func(ctx context.Context) (err error) {
		meta, err = stat(ctx)
		return err
	})
	if err != nil {
		return objstore.Info{}, r.Fail("stat", name, err)
	}
	return meta.Info(name), nil
}

// Fail returns the error of an operation; see [objstore.NewError].
func (r *Reader) Fail(op, name string, err error) error {
	return objstore.NewError(op, r.store, name, err)
}

// Traits reports a remote store. Its number of requests excludes hedges.
func (r *Reader) Traits() objstore.Traits {
	return objstore.Traits{Requests: r.opts.Concurrency, MostRequests: r.opts.MostConcurrency, Reserve: r.slots.reserve,
		Versions: true}
}

// acquire waits for a slot. The caller calls release once.
func (r *Reader) acquire(ctx context.Context) (release func(), err error) {
	release = r.slots.release
	select {
	case r.slots.taken <- struct{}{}:
		return release, nil
	default:
	}
	objstore.Trace(ctx, objstore.PhaseTurn, 1)
	defer objstore.Trace(ctx, objstore.PhaseTurn, -1)
	select {
	case r.slots.taken <- struct{}{}:
		return release, nil
	case <-ctx.Done():
		return nil, ended(ctx)
	}
}

// acquireHedge takes a slot for a hedge if one is free and the share permits it.
func (r *Reader) acquireHedge() (release func(), ok bool) {
	select {
	case r.extra <- struct{}{}:
	default:
		return nil, false
	}
	if !r.hedges.take() {
		<-r.extra
		return nil, false
	}
	return func() { <-r.extra }, true
}

// Do runs one small request, such as a HEAD, with the limiter, timeouts and retries of a read. It
// calls f until f returns nil or a final error. The context of each call ends after the first-byte
// and stall timeouts together.
func (r *Reader) Do(ctx context.Context, f func(ctx context.Context) error) error {
	t := r.newTrail(1)
	for {
		asked := time.Now()
		release, err := r.acquire(ctx)
		if err != nil {
			return err
		}
		t.waited(time.Since(asked))
		limit := r.opts.FirstByteTimeout + r.opts.StallTimeout
		attempt, cancel := context.WithTimeoutCause(ctx, limit, &stalled{waited: limit})
		t.begin()
		r.stats.requests.Add(1)
		err = f(attempt)
		if err != nil && ctx.Err() == nil && attempt.Err() != nil {
			r.stats.stalls.Add(1)
			err = &Transient{Err: context.Cause(attempt)}
		}
		cancel()
		release()
		if err == nil {
			r.stats.answered.Store(true)
			r.succeeded()
			return nil
		}
		if err := t.next(ctx, 0, err); err != nil {
			return err
		}
	}
}

// succeeded records a request that was answered completely.
func (r *Reader) succeeded() {
	r.retries.refill()
	r.lost.Store(false)
	r.outage.over()
}
