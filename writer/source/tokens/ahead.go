package tokens

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/shardtool/shardtool/writer"
)

const (
	// aheadDocuments is how many documents are asked for before their turn where each takes long, and aheadMemory their bytes.
	aheadDocuments = 64
	aheadMemory    = 64 << 20
	// farLatency is what reading a document takes on average that does not come from this machine, as in package writer.
	farLatency = 300 * time.Microsecond
)

// ahead gives the documents of a source in order. Where reading one takes long, as from an object store, the next are read
// meanwhile; otherwise each is read when it is its turn, into the same memory.
type ahead struct {
	src   writer.Source
	from  string
	small int64

	queue   []*upcoming
	waiting int64 // bytes of documents in the queue that are being read
	held    []byte
	average time.Duration // of reading a document
	far     bool

	ctx    context.Context // of reading before their turn
	cancel context.CancelFunc
	group  sync.WaitGroup
}

// upcoming is a document to come, or what is wrong with it.
type upcoming struct {
	sample writer.Sample
	field  writer.Field
	cursor string // before it
	err    error

	done chan struct{} // closed when data has been read; nil where nobody reads it yet
	data []byte
	took time.Duration
	bad  error
}

// cursor is the source's before the document that comes next.
func (a *ahead) cursor() string {
	if len(a.queue) > 0 {
		return a.queue[0].cursor
	}
	return a.src.Cursor()
}

// next is the document that comes next; what is wrong with it stands in it. Other errors, io.EOF among them, are the source's. What it
// holds is valid until the next call.
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
			break // asked again when it is its turn
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

// lent says that its bytes are the source's, and gone when that is asked for another.
func (u *upcoming) lent() bool { return u.err == nil && u.field.Payload == nil }

// ask asks the source.
func (a *ahead) ask(ctx context.Context) (*upcoming, error) {
	u := &upcoming{cursor: a.src.Cursor()}
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

// read reads a document before its turn.
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

// bytes are those of a document of up to small bytes.
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

// book learns what a document took. What is far stays far until one takes a tenth of what it took to be far: many at once are slower.
func (a *ahead) book(took time.Duration) {
	a.average += (took - a.average) / 16
	switch {
	case a.average > farLatency:
		a.far = true
	case a.average < farLatency/10:
		a.far = false
	}
}

// reset ends what is under way and forgets it.
func (a *ahead) reset() {
	if a.cancel != nil {
		a.cancel()
		a.group.Wait()
		a.cancel = nil
	}
	a.queue, a.waiting = nil, 0
}

// noEOF is for a place where the end should not be.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
