package ranged

import (
	"context"
	"errors"
	"io"
	"time"
)

// headSize is the number of bytes read before a request counts as answered. They go to a buffer of
// the request and not to the caller's, because two requests may race for it.
const headSize = 512

// stream is one request that has received its first byte or failed.
type stream struct {
	body  io.ReadCloser
	meta  Meta
	head  []byte // the first bytes
	rest  error  // error of the read that filled head
	err   error  // why the request failed
	hedge bool

	ctx     context.Context
	cancel  context.CancelCauseFunc
	watch   *watchdog
	release func()
	start   time.Time
}

// close cancels the request and releases its slot. It is called once.
func (s *stream) close() {
	s.cancel(nil)
	s.watch.stop()
	if s.body != nil {
		s.body.Close()
	}
	s.release()
}

// race sends a request for n bytes at off and, if its first byte is late, a second one. It returns
// the first stream that has a byte; the caller closes it. The other one is cancelled and closes
// itself. release frees the slot of the first request; race takes it over.
func (o *Object) race(ctx context.Context, off, n int64, stalls int, release func()) (*stream, error) {
	var (
		answers = make(chan *stream)
		gone    = make(chan struct{})
		sent    []*stream
		pending int
		failed  error
	)
	defer close(gone)
	send := func(release func(), hedge bool) {
		sent = append(sent, o.send(ctx, off, n, stalls, release, hedge, answers, gone))
		pending++
	}
	cancelOthers := func(winner *stream) {
		for _, s := range sent {
			if s != winner {
				s.cancel(nil)
			}
		}
	}
	send(release, false)
	late := o.r.hedgeTimer()
	defer late.Stop()
	for {
		select {
		case s := <-answers:
			pending--
			if s.err == nil {
				cancelOthers(s)
				return s, nil
			}
			s.close()
			if failed == nil || !isTransient(s.err) {
				failed = s.err
			}
			if pending == 0 || !isTransient(s.err) {
				cancelOthers(nil)
				return nil, failed
			}
		case <-late.C:
			if release, ok := o.r.acquireHedge(); ok {
				o.r.stats.hedges.Add(1)
				send(release, true)
			}
		case <-ctx.Done():
			cancelOthers(nil)
			return nil, ended(ctx)
		}
	}
}

// hedgeTimer fires once when a request that starts now is late. It never fires while the usual
// latency is unknown.
func (r *Reader) hedgeTimer() *time.Timer {
	after := r.latency.hedgeAfter()
	if after == 0 || r.opts.NoHedge {
		timer := time.NewTimer(time.Hour)
		timer.Stop()
		return timer
	}
	return time.NewTimer(after)
}

// send starts a goroutine that runs one request up to its first byte. The goroutine passes the
// stream to answers, or closes it if nobody listens any more. Until then others may only call
// cancel.
func (o *Object) send(ctx context.Context, off, n int64, stalls int, release func(), hedge bool,
	answers chan<- *stream, gone <-chan struct{}) *stream {
	ctx, cancel := context.WithCancelCause(ctx)
	s := &stream{ctx: ctx, cancel: cancel, release: release, hedge: hedge, start: time.Now()}
	s.watch = o.r.watch(cancel, stalls)
	o.r.stats.requests.Add(1)
	o.r.hedges.earn()
	o.r.cuts.earn()
	etag := o.etag()
	go func() {
		s.body, s.meta, s.err = o.get(ctx, off, n, etag)
		if n := min(n, s.meta.Size-off); s.err == nil && n > 0 {
			s.readHead(n)
		}
		if s.err != nil {
			s.err = s.explain(s.err)
		}
		select {
		case answers <- s:
		case <-gone:
			s.close()
		}
	}()
	return s
}

// readHead waits for the first byte. The caller decides whether to read an answer of another
// version or size.
func (s *stream) readHead(n int64) {
	s.head = make([]byte, min(n, headSize))
	for {
		read, err := s.body.Read(s.head)
		if read > 0 || err != nil {
			s.head, s.rest = s.head[:read], err
			break
		}
	}
	if len(s.head) == 0 {
		s.err = &Transient{Err: broken(s.rest), Answered: true}
		return
	}
	s.watch.progress()
}

// explain returns the watchdog's reason for an error that follows from its cancellation.
func (s *stream) explain(err error) error {
	if stall, ok := errors.AsType[*stalled](context.Cause(s.ctx)); ok {
		return &Transient{Err: stall, Answered: s.body != nil}
	}
	return err
}

func isTransient(err error) bool {
	_, ok := errors.AsType[*Transient](err)
	return ok
}

// broken returns the error for a body that ends early. It wraps nothing, because
// io.ErrUnexpectedEOF would mean that the object is too short.
func broken(err error) error {
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the answer broke off")
	}
	return errors.New(Scrub(err.Error()))
}
