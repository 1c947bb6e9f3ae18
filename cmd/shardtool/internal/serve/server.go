package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shardtool/shardtool/internal/figures/stats"
	"github.com/shardtool/shardtool/reader"
)

// Options holds the parts of the server that depend on the command line.
type Options struct {
	// Version is the version of the binary.
	Version string
	// Open opens a data set. Stream opens a stream over it, and fills in what it knows of Started.
	Open   func(ctx context.Context, q *OpenRequest) (*Opened, error)
	Stream func(ctx context.Context, o *Opened, q *StartRequest, out *Started) (*reader.Stream, error)
	// Watch, when not nil, shows how a stream of a rank goes until the function that it returns is
	// called. Stats may be called at any time.
	Watch func(s interface{ Stats() stats.Stream }, rank int) (stop func())
	// Code is the exit code that the command line has for an error.
	Code func(error) int
	// Parent is the process that started this one. If it is 0, the server does not check whether the
	// parent lives.
	Parent int
	// GiveUp, when not nil, is called when the conversation is over and a read that does not end keeps
	// Serve from returning.
	GiveUp func()
}

// beat is how often a parent that waits hears that the child lives, and how often the child looks
// for the parent.
const beat = time.Second

// grace is how long reads under way may take to end with the conversation. Nothing that is cut off
// can do harm.
const grace = 2 * time.Second

// server is one conversation.
type server struct {
	conn
	opts Options
	ring *ring
	data *Opened
	run  atomic.Pointer[run]
	// alive reports whether the process at the other end has not ended.
	alive func() bool

	gets     sync.WaitGroup
	getting  chan struct{} // tokens of GETs at work
	pending  atomic.Int64  // requests not answered
	requests chan request
}

type request struct {
	frame
	body []byte
}

// Serve talks to the process at the other end of the socket with descriptor fd until that one stops
// or is gone, which is no error. It takes the descriptor over.
func Serve(ctx context.Context, fd int, o Options) error {
	sock, err := connect(fd)
	if err != nil {
		return err
	}
	return converse(ctx, socket{sock}, o, func() bool { return o.Parent == 0 || os.Getppid() == o.Parent })
}

// converse is Serve for any link.
func converse(ctx context.Context, to link, o Options, alive func() bool) error {
	s := &server{opts: o, alive: alive, conn: conn{link: to, code: o.Code}, requests: make(chan request, 16),
		getting: make(chan struct{}, max(2, 2*runtime.GOMAXPROCS(0)))}
	s.ring = newRing(s.sendSegment, s.sendRetire)
	s.ring.limit(1 << 30)
	return s.serve(ctx)
}

// serve is the whole conversation.
func (s *server) serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var tasks sync.WaitGroup
	tasks.Go(func() { s.answer(ctx) })
	tasks.Go(func() { s.watch(ctx, cancel) })
	stop := context.AfterFunc(ctx, func() { s.link.Close() })
	err := s.send(newFrame(kindHello, 0, len(s.opts.Version)).set64(8, magic).set32(16, Protocol),
		[]byte(s.opts.Version))
	if err == nil {
		err = s.listen(ctx)
	}
	if _, ok := errors.AsType[protocolError](err); ok {
		_ = s.fail(0, 0, err)
	} else if ctx.Err() != nil || errors.Is(err, io.EOF) || gone(err) {
		err = nil
	}
	if s.opts.GiveUp != nil {
		defer time.AfterFunc(grace, s.opts.GiveUp).Stop()
	}
	cancel()
	close(s.requests)
	tasks.Wait()
	s.stopRun()
	s.gets.Wait()
	stop()
	s.link.Close()
	s.closeData()
	s.ring.close()
	return err
}

// gone reports whether an error of the socket means that nobody is at the other end.
func gone(err error) bool { return errors.Is(err, os.ErrClosed) || errors.Is(err, errPipe) }

// listen receives frames until the parent stops. It never waits for anything else.
func (s *server) listen(ctx context.Context) error {
	for {
		f, body, err := s.read()
		if err != nil {
			return err
		}
		switch f.kind() {
		case kindStop:
			return nil
		case kindRelease:
			if err := s.ring.release(f.u32(16), f.u64(24)); err != nil {
				return err
			}
		case kindNext:
			if r := s.run.Load(); r != nil && r.id == f.u64(8) {
				r.ask(f.u64(16))
			}
		default:
			s.pending.Add(1)
			select {
			case s.requests <- request{f, body}:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
}

// answer does the requests in their order.
func (s *server) answer(ctx context.Context) {
	for q := range s.requests {
		if ctx.Err() != nil {
			continue
		}
		id := q.u64(8)
		var err error
		switch q.kind() {
		case kindOpen:
			if q.u32(16) != Protocol {
				err = protocolError(fmt.Sprintf("it asks for protocol %d", q.u32(16)))
			} else {
				err = s.open(ctx, q.body)
			}
			id = 0
		case kindStart:
			err = s.start(ctx, id, q.body)
		case kindGet:
			err = s.get(ctx, q) // get answers later
			if err == nil {
				continue
			}
		}
		s.pending.Add(-1)
		if err != nil && ctx.Err() == nil {
			_ = s.fail(q.kind(), id, err)
		}
	}
}

// open opens a data set in place of the one before.
func (s *server) open(ctx context.Context, body []byte) error {
	var q OpenRequest
	if err := decodeBody(body, &q); err != nil {
		return err
	}
	s.stopRun()
	s.gets.Wait()
	s.closeData()
	data, err := s.opts.Open(ctx, &q)
	if err != nil {
		return err
	}
	s.data = data
	return s.sendJSON(kindInfo, 0, data.info(q.Getenv))
}

func (s *server) closeData() {
	if s.data != nil {
		s.data.Close()
		s.data = nil
	}
}

// watch sends signs of life while the parent waits, and ends the child with its parent.
func (s *server) watch(ctx context.Context, cancel func()) {
	tick := time.NewTicker(beat)
	defer tick.Stop()
	var waited time.Duration
	last := s.sent.Load()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if !s.alive() {
			cancel()
			return
		}
		r := s.run.Load()
		if waits := s.pending.Load() > 0 || r != nil && r.awaited(); !waits || s.sent.Load() != last {
			waited, last = 0, s.sent.Load()
			continue
		}
		waited += beat
		if r != nil {
			_ = r.beat(waited)
		} else {
			_ = s.send(newFrame(kindHeartbeat, 0, 0).set64(16, uint64(waited.Milliseconds())), nil)
		}
		last = s.sent.Load()
	}
}
