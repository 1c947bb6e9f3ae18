package tokens

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/shardtool/shardtool/writer"
)

const (
	// If reading a document takes long, up to aheadDocuments documents and aheadMemory bytes of
	// them are prefetched.
	aheadDocuments = 64
	aheadMemory    = 64 << 20
	// farLatency is the average time to read a document above which the source counts as remote, as
	// in package writer.
	farLatency = 300 * time.Microsecond
)

// ahead returns the documents of a source in order. If reading takes long, as from an object store,
// it prefetches the next ones; otherwise it reads each when needed, into the same memory.
type ahead struct {
	src   writer.Source
	from  string
	small int64

	queue   []*upcoming
	waiting int64 // bytes of queued documents that are in flight
	held    []byte
	average time.Duration // average time to read a document
	far     bool

	ctx    context.Context // context of prefetching
	cancel context.CancelFunc
	group  sync.WaitGroup
}

// mark is a place of a source, and the rows that it left out before.
type mark struct {
	cursor string
	left   writer.RowsLeft
}

// upcoming is a queued document or its error.
type upcoming struct {
	sample writer.Sample
	field  writer.Field
	before mark
	err    error

	done chan struct{} // closed when data has been read; nil if it is not being prefetched
	data []byte
	took time.Duration
	bad  error
}

// mark returns the place before the next document.
func (a *ahead) mark() mark {
	if len(a.queue) > 0 {
		return a.queue[0].before
	}
	return a.reached()
}

// reached is the place of the source.
func (a *ahead) reached() mark {
	left, _ := writer.LeftOut(a.src)
	return mark{a.src.Cursor(), left}
}

// next returns the next document, with its error if it has one. Other errors, including io.EOF,
// come from the source. The document is valid until the next call.
func (a *ahead) next(ctx context.Context) (*upcoming, error) {
	most := 1
	if a.far {
		most = aheadDocuments
	}
	for len(a.queue) == 0 || len(a.queue) < most && a.waiting < aheadMemory && !a.queue[len(a.queue)-1].lent() {
		u, err := a.ask(ctx)
		if err != nil && len(a.queue) == 0 {
			return nil, err
		}
		if err != nil {
			break // the next call asks again
		}
		a.queue = append(a.queue, u)
		if a.far && !u.lent() && u.err == nil && u.field.Size <= a.small {
			a.read(ctx, u)
		}
	}
	u := a.queue[0]
	if u.done != nil {
		select {
		case <-u.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		a.waiting -= u.field.Size
		a.book(u.took)
	}
	a.queue = append(a.queue[:0], a.queue[1:]...)
	return u, nil
}

// lent reports whether the source owns the document's bytes, which are valid until its next call of
// Next.
func (u *upcoming) lent() bool { return u.err == nil && u.field.Payload == nil }

// ask reads the next sample of the source.
func (a *ahead) ask(ctx context.Context) (*upcoming, error) {
	u := &upcoming{before: a.reached()}
	s, err := a.src.Next(ctx)
	var se *writer.SampleError
	if errors.As(err, &se) {
		u.err = err
		return u, nil
	}
	if err != nil {
		return nil, err
	}
	u.sample = s
	f, err := chooseField(s.Fields, a.from)
	if err != nil {
		u.err = &writer.SampleError{Origin: s.Origin, Key: s.Key, Source: s.Source, Row: s.Row, Err: err}
		return u, nil
	}
	u.field = *f
	return u, nil
}

// read prefetches a document.
func (a *ahead) read(ctx context.Context, u *upcoming) {
	if a.cancel == nil {
		a.ctx, a.cancel = context.WithCancel(context.WithoutCancel(ctx))
	}
	u.done = make(chan struct{})
	a.waiting += u.field.Size
	ctx = a.ctx
	a.group.Go(func() {
		defer close(u.done)
		begin := time.Now()
		u.data = make([]byte, u.field.Size)
		u.bad = u.field.Payload.ReadInto(ctx, u.data)
		u.took = time.Since(begin)
	})
}

// bytes returns the bytes of a document of up to small bytes.
func (a *ahead) bytes(ctx context.Context, u *upcoming) ([]byte, error) {
	switch {
	case u.field.Payload == nil:
		return u.field.Data, nil
	case u.done != nil:
		return u.data, u.bad
	}
	begin := time.Now()
	if int64(cap(a.held)) < u.field.Size {
		a.held = make([]byte, u.field.Size)
	}
	a.held = a.held[:u.field.Size]
	err := u.field.Payload.ReadInto(ctx, a.held)
	a.book(time.Since(begin))
	return a.held, err
}

// book records how long a document took. A remote source stays remote until the average falls below
// a tenth of the threshold, because concurrent reads are slower.
func (a *ahead) book(took time.Duration) {
	a.average += (took - a.average) / 16
	switch {
	case a.average > farLatency:
		a.far = true
	case a.average < farLatency/10:
		a.far = false
	}
}

// reset cancels the prefetches and empties the queue.
func (a *ahead) reset() {
	if a.cancel != nil {
		a.cancel()
		a.group.Wait()
		a.cancel = nil
	}
	a.queue, a.waiting = nil, 0
}
