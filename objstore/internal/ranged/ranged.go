// Package ranged reads byte ranges of remote objects over a bad network: every byte once, or an error that says why not.
//
// A store gives an [Object] two functions, one that sends a ranged request and one that describes the object. The engine
// does the rest:
//
//	Object.ReadAt   check the range; split what is larger than a part; wait for all parts
//	part            attempt after attempt, each for the bytes still missing, until full or given up
//	attempt         a slot of the store's limiter; one request, or two where the first byte is late (a hedge)
//	watchdog        ends a request that gives no byte for too long; the next attempt goes on from the byte reached
//
// The version read is pinned by the first answer: one with another ETag is [objstore.ErrChanged] before any of its bytes
// reaches the caller. Only the goroutine that called ReadAt (or one of its parts) writes to the caller's buffer, so a
// request that lost a race cannot.
//
// What a request may take is learnt from those before it: see latency.go. Load is bounded whatever happens: requests in
// flight by the limiter, hedges and early cuts by a share of the requests, retries by a budget that successes refill.
package ranged

import (
	"context"
	"io"
	"log/slog"
	"time"

	"github.com/shardtool/shardtool/objstore"
)

// Meta describes the version of an object that an answer is about.
type Meta struct {
	// Size is the whole object's, in bytes.
	Size int64
	// ETag identifies the version; equal tags mean equal bytes.
	ETag    string
	ModTime time.Time
	// Sum is a checksum of the bytes, where the answer has one.
	Sum *objstore.Sum
}

func (m Meta) info(name string) objstore.Info {
	return objstore.Info{Name: name, Size: m.Size, ETag: m.ETag, ModTime: m.ModTime}
}

// Stater describes an object by one request, without a retry of its own. Its errors are those of a
// [Getter].
type Stater func(ctx context.Context) (Meta, error)

// Getter asks once for n bytes from off on, n > 0. When etag is not empty only that version will do. It returns the body
// of exactly those bytes, or of fewer where the object ends before (Meta.Size says so), without a retry of its own.
//
// An error that may pass is a [*Transient]; all others are final. A range that begins past the end is
// [io.ErrUnexpectedEOF], another version [objstore.ErrChanged]. Get and the body's Read return soon after ctx ends.
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

// Reader is what all objects of one store share: the limiter, the budgets, what was learnt of its latency. It may be used
// from many goroutines, runs none of its own, and needs no closing.
type Reader struct {
	store   string
	opts    objstore.ReadOptions
	slots   *slots
	extra   chan struct{} // for hedges: they go out when all slots are taken, which is when tails are long
	hedges  share
	cuts    share
	retries budget
	latency latency
	stats   counters
	outage  outage
}

// New returns the Reader of a store. store is the store's address, for errors. log receives a warning
// when an outage lasts; it may be nil.
func New(store string, opts objstore.ReadOptions, log *slog.Logger) *Reader {
	opts = withDefaults(opts)
	r := &Reader{
		store: store,
		opts:  opts,
		slots: newSlots(opts.Concurrency, opts.MostConcurrency),
		extra: make(chan struct{}, Extra(opts.Concurrency)),
		// 5 % of the requests may be hedged, 10 % cut before StallTimeout; a burst of a few at once.
		hedges: share{part: 0.05, most: max(2, float64(opts.Concurrency)/8)},
		cuts:   share{part: 0.10, most: max(2, float64(opts.Concurrency)/4)},
		// A burst of two failures for every request in flight; then each success pays for half a retry, and an outage
		// is probed at an eighth of the concurrency a second.
		retries: budget{most: 2 * float64(opts.Concurrency), refund: 0.5, perSecond: max(1, float64(opts.Concurrency)/8)},
	}
	r.retries.tokens = r.retries.most
	r.outage.store, r.outage.log = store, log
	return r
}

// Extra is how many requests hedges may add to a concurrency.
func Extra(concurrency int) int { return (concurrency + 7) / 8 }

// Stat describes an object.
func (r *Reader) Stat(ctx context.Context, name string, stat Stater) (objstore.Info, error) {
	var meta Meta
	err := r.Do(ctx, func(ctx context.Context) (err error) {
		meta, err = stat(ctx)
		return err
	})
	if err != nil {
		return objstore.Info{}, r.fail("stat", name, err)
	}
	return meta.info(name), nil
}

func (r *Reader) fail(op, name string, err error) error {
	return objstore.NewError(op, r.store, name, err)
}

// Traits returns the number of requests in flight, without hedges, and how to raise it.
func (r *Reader) Traits() objstore.Traits {
	return objstore.Traits{Requests: r.opts.Concurrency, MostRequests: r.opts.MostConcurrency, Reserve: r.slots.reserve}
}

// acquire waits for a slot. The returned function gives it back and is called once.
func (r *Reader) acquire(ctx context.Context) (release func(), err error) {
	release = r.slots.release
	select {
	case r.slots.taken <- struct{}{}:
		return release, nil
	default:
	}
	start := time.Now()
	objstore.Trace(ctx, objstore.PhaseTurn, 1)
	defer func() {
		objstore.Trace(ctx, objstore.PhaseTurn, -1)
		r.stats.waitSlot.Add(int64(time.Since(start)))
	}()
	select {
	case r.slots.taken <- struct{}{}:
		return release, nil
	case <-ctx.Done():
		return nil, ended(ctx)
	}
}

// acquireHedge takes a slot for a hedge if there is one and the share allows it.
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

// Do runs one small request, such as a HEAD, under the same limiter, watchdog and retries as a read. f is called until it
// gives nil or a final error; ctx of each call ends with the first-byte and stall timeouts together.
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

// succeeded books a request that was answered in full.
func (r *Reader) succeeded() {
	r.retries.refill()
	r.outage.over()
}
