package tokens

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/writer"
)

const (
	// localExtent and remoteExtent are the sizes of a read that neighbouring samples share. A
	// request to an object store takes about 20 ms, in which 8 MiB arrive.
	localExtent  = 1 << 20
	remoteExtent = 8 << 20
)

// span is the payload of a sample: a header, ids of an array, and padding.
type span struct {
	of       *array
	extent   *extent // nil if the sample is read alone
	head     []byte
	first, n int64 // tokens of the array
	to       DType
	pad      int64
	padID    int64
}

var _ writer.Payload = (*span)(nil)

func (s *span) size() int64 { return int64(len(s.head)) + (s.n+s.pad)*s.to.size() }

// bytes returns the position of the ids in the file.
func (s *span) bytes() (off, n int64) {
	return s.of.data + s.first*s.of.layout.size(), s.n * s.of.layout.size()
}

// place makes the position in an error relative to the array. The sample's origin names the file.
func (s *span) place(done int64, err error) error {
	var m *misfit
	if errors.As(err, &m) {
		m.at += s.first + done
	}
	return err
}

// ReadInto implements writer.Payload.
func (s *span) ReadInto(ctx context.Context, p []byte) error {
	if s.extent == nil {
		return s.fill(ctx, p)
	}
	off, n := s.bytes()
	src, err := s.extent.bytes(ctx, off, n)
	if err != nil {
		return err
	}
	dst, err := convert(append(p[:0], s.head...), src, s.of.layout, s.to)
	s.of.order(dst[min(len(dst), len(s.head)):])
	s.extent.give()
	if err != nil {
		return s.place(0, err)
	}
	s.padding(dst, s.pad)
	return nil
}

func (s *span) padding(dst []byte, n int64) []byte {
	for range n {
		dst = s.to.append(dst, s.padID)
	}
	return dst
}

// fill streams a large sample into p.
func (s *span) fill(ctx context.Context, p []byte) error {
	r, err := s.Open(ctx)
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = io.ReadFull(r, p)
	return err
}

// Open implements writer.Payload.
func (s *span) Open(ctx context.Context) (io.ReadCloser, error) {
	obj, err := s.of.Reopen(ctx)
	if err != nil {
		return nil, err
	}
	return &spanReader{span: s, ctx: ctx, obj: obj, ready: s.head, left: s.pad}, nil
}

// spanReader streams a sample, an extent at a time.
type spanReader struct {
	*span
	ctx   context.Context
	obj   objstore.Object
	ready []byte // unread part of out
	out   []byte // buffer of ready
	src   []byte
	done  int64 // tokens
	left  int64 // remaining padding
	err   error
}

func (r *spanReader) Read(p []byte) (int, error) {
	for len(r.ready) == 0 {
		if r.err == nil {
			r.err = r.more()
		}
		if r.err != nil {
			return 0, r.err
		}
	}
	n := copy(p, r.ready)
	r.ready = r.ready[n:]
	return n, nil
}

// more converts the next ids.
func (r *spanReader) more() error {
	of := r.of
	n := min(r.n-r.done, of.extentSize()/of.layout.size())
	if n > 0 {
		r.src = slices.Grow(r.src[:0], int(n*of.layout.size()))[:n*of.layout.size()]
		if err := r.obj.ReadAt(r.ctx, r.src, of.data+(r.first+r.done)*of.layout.size()); err != nil {
			return err
		}
		var err error
		if r.out, err = convert(r.out[:0], r.src, of.layout, r.to); err != nil {
			return r.place(r.done, err)
		}
		of.order(r.out)
		r.ready, r.done = r.out, r.done+n
		return nil
	}
	if r.left == 0 {
		return io.EOF
	}
	n = min(r.left, localExtent)
	r.out = r.padding(r.out[:0], n)
	r.ready, r.left = r.out, r.left-n
	return nil
}

func (r *spanReader) Close() error { return r.obj.Close() }

func (a *array) extentSize() int64 {
	if a.Remote {
		return remoteExtent
	}
	return localExtent
}

// extent is a part of a file that several samples share. The first of them to be read reads it; the
// last one releases it.
type extent struct {
	of     *array
	off, n int64

	mu   sync.Mutex
	data []byte
	left int64 // samples not yet read
}

// share returns the extent of a sample: the one of the previous sample, or a new one that begins
// here.
func (a *arraySource) share(s *span) *extent {
	off, n := s.bytes()
	if e := a.extent; e != nil && e.of == s.of && off >= e.off && off+n <= e.off+e.n {
		return e
	}
	each := s.of.length * s.of.layout.size()
	if each > s.of.extentSize()/2 {
		a.extent = nil
		return nil
	}
	// Whole samples, within the array and the part.
	samples := min(s.of.extentSize()/each, a.before[a.file+1]-a.at+1, a.end-a.at+1)
	end := min(off+samples*each, s.of.data+s.of.tokens()*s.of.layout.size())
	a.extent = &extent{of: s.of, off: off, n: end - off, left: samples}
	return a.extent
}

// shareRagged is share for documents that differ in length.
func (a *arraySource) shareRagged(ctx context.Context, s *span) (*extent, error) {
	off, n := s.bytes()
	if n == 0 || n > s.of.extentSize()/2 {
		return nil, nil
	}
	if e := a.extent; e != nil && e.of == s.of && off >= e.off && off+n <= e.off+e.n {
		return e, nil
	}
	e := &extent{of: s.of, off: off, n: n, left: 1}
	for at := a.at + 1; at < min(a.end, a.before[a.file+1]); at++ {
		first, more, err := s.of.index.document(ctx, at-a.before[a.file], s.of.layout.size())
		if err != nil {
			return nil, err
		}
		next := span{of: s.of, first: first, n: more}
		begin, size := next.bytes()
		if size > 0 && (begin != e.off+e.n || e.n+size > s.of.extentSize()) {
			break
		}
		if size > 0 {
			e.n, e.left = e.n+size, e.left+1
		}
	}
	a.extent = e
	return e, nil
}

// bytes returns a part of the extent, valid until give.
func (e *extent) bytes(ctx context.Context, off, n int64) ([]byte, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.data == nil {
		data, err := e.read(ctx)
		if err != nil {
			return nil, err // not cached: the next sample tries again
		}
		e.data = data
	}
	return e.data[off-e.off:][:n], nil
}

func (e *extent) read(ctx context.Context) ([]byte, error) {
	obj, err := e.of.Reopen(ctx)
	if err != nil {
		return nil, err
	}
	defer obj.Close()
	data := make([]byte, e.n)
	if err := obj.ReadAt(ctx, data, e.off); err != nil {
		return nil, err
	}
	return data, nil
}

// give counts a sample as read.
func (e *extent) give() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.left--; e.left <= 0 {
		e.data = nil
	}
}
