package ranged

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/shardtool/shardtool/objstore"
)

// maxStalls is the number of stalled attempts after which Send gives up.
const maxStalls = 3

// Send runs one request that may have a large body, such as a part of an upload, with the retries
// of a read. It rewinds body, if it is not nil, and calls f until f returns nil or a final error.
// An attempt is cancelled when its connection moves no byte for WriteTimeout; f must send its
// request with a [Client]. Time in which bytes move does not count as time without progress. Send
// takes no slot of the limiter, because its caller bounds the number of uploads.
func (r *Reader) Send(ctx context.Context, body io.Seeker, f func(ctx context.Context) error) error {
	t := r.newTrail(0)
	for {
		if body != nil {
			if _, err := body.Seek(0, io.SeekStart); err != nil {
				return err
			}
		}
		t.begin()
		r.stats.requests.Add(1)
		start := time.Now()
		w := &moving{idle: r.WriteTimeout}
		w.last.Store(start.UnixNano())
		attempt, cancel := context.WithCancelCause(context.WithValue(ctx, movingKey{}, w))
		w.timer = time.AfterFunc(w.idle, func() { cancel(&stalled{waited: w.idle}) })
		err := f(attempt)
		w.timer.Stop()
		t.waited(time.Unix(0, w.last.Load()).Sub(start))
		stall, ok := errors.AsType[*stalled](context.Cause(attempt))
		cancel(nil)
		switch {
		case err == nil:
			r.stats.answered.Store(true)
			r.succeeded()
			return nil
		case ok && ctx.Err() == nil:
			r.stats.stalls.Add(1)
			if t.stalls+1 == maxStalls {
				return t.giveUp(stall)
			}
			t.waited(w.idle)
			err = &Transient{Err: stall}
		}
		if err := t.next(ctx, 0, err); err != nil {
			return err
		}
	}
}

// moving is the watchdog of one attempt of Send. It cancels the attempt when no byte moves in
// either direction.
type moving struct {
	idle  time.Duration
	timer *time.Timer
	last  atomic.Int64 // when a byte moved, in Unix nanoseconds
}

type movingKey struct{}

// movingBody restarts the watchdog whenever bytes are read. The bytes of a request are read when
// they are sent.
type movingBody struct {
	io.ReadCloser
	w *moving
}

func (b *movingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 && b.w.timer.Reset(b.w.idle) {
		b.w.last.Store(time.Now().UnixNano())
	}
	return n, err
}

// Doer sends HTTP requests, as [*http.Client] does.
type Doer interface {
	Do(*http.Request) (*http.Response, error)
}

// Client sends the requests of a store. It watches requests of [Reader.Send], reports answers to
// [objstore.WithAnswers], asks for bytes as they are stored, and refuses HTML pages as the
// successful answers to requests that are never answered by one; see [ErrPage].
type Client struct{ Doer }

// Do sends a request.
func (c Client) Do(r *http.Request) (*http.Response, error) {
	r.Header.Set("Accept-Encoding", "identity")
	w, watched := r.Context().Value(movingKey{}).(*moving)
	if watched && r.Body != nil && r.Body != http.NoBody {
		body := r.Body
		r = r.WithContext(r.Context())
		r.Body = &movingBody{body, w}
	}
	sent := time.Now()
	response, err := c.Doer.Do(r)
	if err != nil {
		return nil, err
	}
	answer := objstore.Answer{Sent: sent, Came: time.Now()}
	if response.Header.Get("Age") == "" { // a cache would repeat an old date
		answer.Date, _ = http.ParseTime(response.Header.Get("Date"))
	}
	objstore.Answered(r.Context(), answer)
	if watched {
		response.Body = &movingBody{response.Body, w}
	}
	return response, checkPage(r, response)
}

// Send is Do with the errors of a [Getter]: the one of the context, if it has ended, or the one of
// [TransportError].
func (c Client) Send(r *http.Request) (*http.Response, error) {
	answer, err := c.Do(r)
	if err != nil {
		return nil, cmp.Or(r.Context().Err(), TransportError(err))
	}
	return answer, nil
}

// checkPage refuses HTML pages, except in answers to reads, whose objects may be pages and which
// [CheckBody] checks. An answer without a body is not a page: some servers label every answer as
// HTML.
func checkPage(r *http.Request, response *http.Response) error {
	read := r.Method == http.MethodHead || r.Header.Get("Range") != ""
	if read || response.StatusCode/100 != 2 || !IsPage(response.Header.Get("Content-Type")) {
		return nil
	}
	if _, err := Peek(response, 1); errors.Is(err, io.EOF) {
		return nil
	}
	response.Body.Close()
	return ErrPage
}

// Peek returns the first n bytes of an answer's body, which stay in it, or fewer and why.
func Peek(response *http.Response, n int) ([]byte, error) {
	body := bufio.NewReaderSize(response.Body, max(n, 16))
	head, err := body.Peek(n)
	response.Body = struct {
		io.Reader
		io.Closer
	}{body, response.Body}
	return head, err
}
