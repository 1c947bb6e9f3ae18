package proxy

import (
	"context"
	"errors"
	"io"
	"sync"

	"golang.org/x/time/rate"
)

// bufferSize is the unit of copying without a throttle: a few system calls per MiB.
const bufferSize = 256 << 10

var buffers = sync.Pool{New: func() any { return new([bufferSize]byte) }}

// limiter is a token bucket of bytes that holds 20 ms of its rate, which compensates for sleeps
// that last a little too long.
func limiter(perSecond int64) *rate.Limiter {
	if perSecond <= 0 {
		return nil
	}
	return rate.NewLimiter(rate.Limit(perSecond), int(max(perSecond/50, 1)))
}

// paced reads a request's body at the rate of all of them.
type paced struct {
	io.ReadCloser
	ctx   context.Context
	limit *rate.Limiter
}

func (p *paced) Read(b []byte) (int, error) {
	n, err := p.ReadCloser.Read(b[:min(len(b), p.limit.Burst(), 64<<10)])
	if waitErr := p.limit.WaitN(p.ctx, n); waitErr != nil {
		return 0, waitErr
	}
	return n, err
}

// copy sends the body at the configured rates.
func (e *exchange) copy(src io.Reader) error {
	buffer := buffers.Get().(*[bufferSize]byte)
	defer buffers.Put(buffer)
	piece := buffer[:]
	limits := make([]*rate.Limiter, 0, 2)
	if e.matched && e.setup.PerConn > 0 {
		// A connection carries one answer at a time, so a bucket for the answer, empty at first, is
		// one for the connection.
		own := limiter(e.setup.PerConn)
		own.AllowN(e.begin, own.Burst())
		limits = append(limits, own)
	}
	if e.setup.total != nil {
		limits = append(limits, e.setup.total)
	}
	for _, l := range limits {
		piece = piece[:min(len(piece), l.Burst(), 64<<10)]
	}
	for {
		n, err := src.Read(piece)
		for _, l := range limits {
			if waitErr := l.WaitN(e.r.Context(), n); waitErr != nil {
				return waitErr
			}
		}
		if n > 0 {
			written, writeErr := e.w.Write(piece[:n])
			e.traffic.down.Add(int64(written))
			if writeErr != nil {
				return writeErr
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
