// Package parts cuts a stream into parts and sends several at once.
package parts

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/shardtool/shardtool/objstore"
)

// Options determine the sizes of parts. All fields are positive.
type Options struct {
	// Size is the size of a part and Workers the number of parts that are sent at once, both in the
	// first segment. In each further one, parts are Growth times as large, and fewer are sent at
	// once.
	Size    int
	Workers int
	// Segment is the number of parts of a segment.
	Segment int
	Growth  int
	// Most is the largest number of parts.
	Most int
}

// Writer cuts what is written into parts and sends each when a byte follows it. It holds one part
// more in memory than are sent at once. Only one goroutine may use it.
type Writer struct {
	send   func(ctx context.Context, number int, data []byte) error
	opts   Options
	parent context.Context
	group  *errgroup.Group
	ctx    context.Context // of the group
	part   []byte
	free   chan []byte
	sent   int
}

// New returns a Writer that sends parts by send, which many goroutines call. The first part has the
// number 1. The first error ends the context of all other calls.
func New(ctx context.Context, o Options, send func(ctx context.Context, number int, data []byte) error) *Writer {
	w := &Writer{send: send, opts: o, parent: ctx}
	w.begin()
	return w
}

// begin starts a segment.
func (w *Writer) begin() {
	w.group, w.ctx = errgroup.WithContext(w.parent)
	w.group.SetLimit(w.opts.Workers)
	w.free = make(chan []byte, w.opts.Workers+1)
}

// Write returns when p is copied. It waits while all parts in memory are being sent.
func (w *Writer) Write(p []byte) (n int, err error) {
	for n < len(p) {
		if len(w.part) == w.opts.Size {
			if err := w.flush(); err != nil {
				return n, err
			}
		}
		k := min(len(p)-n, w.opts.Size-len(w.part))
		w.part = append(w.part, p[n:n+k]...)
		n += k
	}
	return n, nil
}

// flush hands the part over, and takes a buffer for the next one.
func (w *Writer) flush() error {
	if w.ctx.Err() != nil {
		return context.Cause(w.ctx)
	}
	if w.sent == w.opts.Most {
		return objstore.ErrTooLarge
	}
	w.sent++
	part, number, free, ctx := w.part, w.sent, w.free, w.ctx
	w.group.Go(func() error {
		err := w.send(ctx, number, part)
		free <- part // has a place for each part in memory
		return err
	})
	if w.sent%w.opts.Segment == 0 {
		if err := w.group.Wait(); err != nil {
			return err
		}
		w.opts.Size *= w.opts.Growth
		w.opts.Workers = max(1, w.opts.Workers/w.opts.Growth)
		w.begin()
	}
	select {
	case w.part = <-w.free:
		w.part = w.part[:0]
	default:
		w.part = make([]byte, 0, w.opts.Size)
	}
	return nil
}

// Close waits for all parts, and returns their number and what has not been sent: everything if no
// part has been sent before, and nothing otherwise.
func (w *Writer) Close() (parts int, rest []byte, err error) {
	if w.sent > 0 {
		err = w.flush()
		w.part = nil
	}
	rest, waited := w.Wait()
	if waited != nil {
		err = waited
	}
	return w.sent, rest, err
}

// Wait waits for the parts in flight and returns what has not been sent.
func (w *Writer) Wait() (rest []byte, err error) {
	return w.part, w.group.Wait()
}
