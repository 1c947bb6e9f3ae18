package ranged

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/shardtool/shardtool/objstore"
)

// Object is an [objstore.Object].
type Object struct {
	r    *Reader
	name string
	get  Getter
	stat Stater

	life context.Context // ended by Close
	end  context.CancelCauseFunc

	mu    sync.Mutex
	meta  Meta
	known bool
}

// Open returns a handle. It sends no request: a missing object is an error of the first read or
// Info.
func (r *Reader) Open(name string, get Getter, stat Stater) *Object {
	life, end := context.WithCancelCause(context.Background())
	return &Object{r: r, name: name, get: get, stat: stat, life: life, end: end}
}

// Close ends current and later reads with fs.ErrClosed.
func (o *Object) Close() error {
	o.end(fs.ErrClosed)
	return nil
}

// scope derives a context that ends when the object is closed.
func (o *Object) scope(ctx context.Context) (context.Context, func(), error) {
	if o.life.Err() != nil {
		return nil, nil, fs.ErrClosed
	}
	if ctx.Err() != nil {
		return nil, nil, ended(ctx)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(o.life, func() { cancel(fs.ErrClosed) })
	return ctx, func() { stop(); cancel(nil) }, nil
}

// Info describes the pinned version.
func (o *Object) Info(ctx context.Context) (objstore.Info, error) {
	meta, err := o.Meta(ctx)
	if err != nil {
		return objstore.Info{}, o.r.Fail("get", o.name, err)
	}
	return meta.Info(o.name), nil
}

// Meta describes the pinned version. If none is pinned, Meta pins the current one. Its errors do
// not name the object.
func (o *Object) Meta(ctx context.Context) (Meta, error) {
	ctx, done, err := o.scope(ctx)
	if err != nil {
		return Meta{}, err
	}
	defer done()
	return o.describe(ctx)
}

func (o *Object) describe(ctx context.Context) (Meta, error) {
	if meta, known := o.pinned(); known {
		return meta, nil
	}
	var meta Meta
	err := o.r.Do(ctx, func(ctx context.Context) (err error) {
		meta, err = o.stat(ctx)
		return err
	})
	if err != nil {
		return Meta{}, err
	}
	if err := o.pin(meta); err != nil {
		return Meta{}, err
	}
	meta, _ = o.pinned()
	return meta, nil
}

// ReadAt fills p with the bytes from off on, or fails. It splits a range that is larger than a part
// into equal parts and reads them in parallel, as far as the limiter permits.
func (o *Object) ReadAt(ctx context.Context, p []byte, off int64) error {
	return o.r.Fail("get", o.name, o.readAt(ctx, p, off))
}

func (o *Object) readAt(ctx context.Context, p []byte, off int64) error {
	ctx, done, err := o.scope(ctx)
	if err != nil {
		return err
	}
	defer done()
	meta, known := o.pinned()
	if !known && len(p) == 0 {
		if meta, err = o.describe(ctx); err != nil {
			return err
		}
		known = true
	}
	if off < 0 || off > math.MaxInt64-int64(len(p)) || known && int64(len(p)) > meta.Size-off {
		return outside(int64(len(p)), off, meta, known)
	}
	if int64(len(p)) <= o.r.opts.PartSize {
		_, err := o.fill(ctx, p, off, false)
		return err
	}
	return o.fillParts(ctx, p, off)
}

// ReadFront implements [objstore.FrontReader] with one request, whose answer describes the object.
func (o *Object) ReadFront(ctx context.Context, p []byte) (n int, info objstore.Info, err error) {
	n, err = o.readFront(ctx, p[:min(int64(len(p)), o.r.opts.PartSize)])
	if err != nil {
		return 0, objstore.Info{}, o.r.Fail("get", o.name, err)
	}
	meta, _ := o.pinned()
	return n, meta.Info(o.name), nil
}

func (o *Object) readFront(ctx context.Context, p []byte) (n int, err error) {
	ctx, done, err := o.scope(ctx)
	if err != nil {
		return 0, err
	}
	defer done()
	if len(p) > 0 {
		if n, err = o.fill(ctx, p, 0, true); !errors.Is(err, io.ErrUnexpectedEOF) {
			return n, err
		}
	}
	// A server may refuse every range of an empty object (RFC 9110, section 15.5.17).
	meta, describeErr := o.describe(ctx)
	if describeErr != nil || meta.Size == 0 || len(p) == 0 {
		return 0, describeErr
	}
	return 0, err
}

func (o *Object) fillParts(ctx context.Context, p []byte, off int64) error {
	parts := (int64(len(p)) + o.r.opts.PartSize - 1) / o.r.opts.PartSize
	group, ctx := errgroup.WithContext(ctx)
	// More goroutines would only wait for slots.
	group.SetLimit(o.r.opts.Concurrency)
	for i := range parts {
		from, to := cut(int64(len(p)), parts, i), cut(int64(len(p)), parts, i+1)
		group.Go(func() error {
			_, err := o.fill(ctx, p[from:to], off+from, false)
			return err
		})
	}
	return group.Wait()
}

// cut returns the start of part i of n. Parts differ by at most one byte. It divides first, so that
// it cannot overflow.
func cut(total, n, i int64) int64 { return total/n*i + min(total%n, i) }

// fill reads one part, with as many attempts as needed. With front it reads less if the object ends
// before. It returns the number of bytes read.
func (o *Object) fill(ctx context.Context, p []byte, off int64, front bool) (done int, err error) {
	t := o.r.newTrail(len(p))
	for done < len(p) {
		n, err := o.attempt(ctx, p[done:], off+int64(done), t, front)
		done += n
		o.r.stats.bytes.Add(int64(n))
		if meta, known := o.pinned(); front && known {
			p = p[:min(int64(len(p)), meta.Size)]
		}
		if err == nil {
			continue
		}
		if err := t.next(ctx, n, err); err != nil {
			return done, err
		}
	}
	return done, nil
}

// attempt sends a request for all of p and returns the number of bytes filled, with an error if
// that is less than len(p), or with front, less than the object has.
func (o *Object) attempt(ctx context.Context, p []byte, off int64, t *trail, front bool) (int, error) {
	asked := time.Now()
	release, err := o.r.acquire(ctx)
	if err != nil {
		return 0, err
	}
	t.waited(time.Since(asked))
	t.begin()
	objstore.Trace(ctx, objstore.PhaseRequest, 1)
	defer objstore.Trace(ctx, objstore.PhaseRequest, -1)
	s, err := o.race(ctx, off, int64(len(p)), t.stalls, release)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		if _, known := o.pinned(); known { // the range lies inside the pinned version
			return 0, objstore.ErrChanged
		}
		return 0, outside(int64(len(p)), off, Meta{}, false)
	}
	if err != nil {
		return 0, err
	}
	defer s.close()
	if !o.r.stats.answered.Load() {
		o.r.stats.answered.Store(true)
	}
	if s.hedge {
		o.r.stats.hedgesWon.Add(1)
	}
	if err := o.pin(s.meta); err != nil {
		return 0, err
	}
	if int64(len(p)) > s.meta.Size-off {
		if !front {
			return 0, outside(int64(len(p)), off, s.meta, true)
		}
		p = p[:s.meta.Size-off]
	}
	n, err := o.receive(s, p)
	if n == len(p) {
		return n, nil
	}
	return n, s.explain(&Transient{Err: broken(err), Answered: true})
}

// receive copies the first bytes and reads the rest of the body directly into p.
func (o *Object) receive(s *stream, p []byte) (int, error) {
	now := time.Now()
	first := now.Sub(s.start)
	pace := o.r.newPace(now)
	n, err := copy(p, s.head), s.rest
	for n < len(p) && err == nil {
		var read int
		read, err = s.body.Read(p[n:])
		if read == 0 {
			continue
		}
		n += read
		s.watch.progress()
		if !pace.read(time.Now(), read) && n < len(p) {
			o.r.stats.stalls.Add(1)
			return n, &stalled{slow: true}
		}
	}
	if n == len(p) {
		o.r.succeeded()
		o.r.latency.observeFirst(first)
		if pace.reads > 1 {
			o.r.latency.observeGap(pace.longest)
		}
	}
	return n, err
}

func (o *Object) pinned() (Meta, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.meta, o.known
}

func (o *Object) etag() string {
	meta, _ := o.pinned()
	return meta.ETag
}

// pin compares an answer with the pinned version, or pins its version if none is.
func (o *Object) pin(meta Meta) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case meta.ETag == "":
		return errors.New("the answer has no ETag, so a replaced object would not be noticed; " +
			"serve it from a store that sends one")
	case meta.Size < 0:
		return fmt.Errorf("the answer gives the object a size of %d bytes", meta.Size)
	case !o.known:
		o.meta, o.known = meta, true
	case meta.ETag != o.meta.ETag || meta.Size != o.meta.Size:
		return objstore.ErrChanged
	case o.meta.ModTime.IsZero():
		o.meta.ModTime = meta.ModTime
	}
	return nil
}

func outside(n, off int64, meta Meta, known bool) error {
	if !known {
		return fmt.Errorf("%d bytes at %d: %w", n, off, io.ErrUnexpectedEOF)
	}
	return fmt.Errorf("%d bytes at %d of %d: %w", n, off, meta.Size, io.ErrUnexpectedEOF)
}
