package ranged

import (
	"context"
	"errors"
	"io"
	"time"
)

// headSize is how much of a body is read before its request counts as answered. It goes to a buffer of the request, not
// to the caller's: two requests may race for it.
const headSize = 512

// stream is one request whose first byte has come, or that failed.
type stream struct {
	body  io.ReadCloser
	meta  Meta
	head  []byte // the first bytes
	rest  error  // what the read of head ended with
	err   error  // the request failed
	hedge bool

	ctx     context.Context
	cancel  context.CancelCauseFunc
	watch   *watchdog
	release func()
	start   time.Time
}

// close ends the request, whatever it does, and gives its slot back. It is called once.
func (s *stream) close() {
	s.cancel(nil)
	s.watch.stop()
	if s.body != nil {
		s.body.Close()
	}
	s.release()
}

// race sends a request for n bytes at off and, when its first byte is late, a second one. It returns the first to have
// a byte; the caller closes it. The other is cancelled, and closes itself. release is the first one's slot, which race
// takes over.
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

// hedgeTimer fires once when a request that starts now is late; never while that is unknown.
func (r *Reader) hedgeTimer() *time.Timer {
	after := r.latency.hedgeAfter()
	if after == 0 || r.opts.NoHedge {
		timer := time.NewTimer(time.Hour)
		timer.Stop()
		return timer
	}
	return time.NewTimer(after)
}

// send runs one request up to its first byte in a goroutine, which hands the stream to answers or, when nobody listens
// any more, closes it. Until it is handed over only cancel may be touched.
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
		// An answer that the object's end cut short is not worth reading: the whole read fails.
		if s.err == nil && n <= s.meta.Size-off {
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

// readHead waits for the first byte. Not reading at all what is another version, or too short, is the caller's business.
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

// explain gives the watchdog's reason to an error that came of its cancelling.
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

// broken is what a body that ends too soon fails with. It wraps nothing: io.ErrUnexpectedEOF would say that the object is
// too short.
func broken(err error) error {
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the answer broke off")
	}
	return errors.New(Scrub(err.Error()))
}
