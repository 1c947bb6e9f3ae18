package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/shardtool/shardtool/objstore"
)

// ReaderInput returns the Input of a stream that can be read only once, such as standard input.
// name stands for the name of a file: its ending decides the format, and keys begin with its stem.
// The ending .gz, .zst, .bz2, .xz or .lz4 is added if the stream begins with such compressed data.
//
// A source reads such an Input from front to back. It can be neither divided into parts nor
// resumed, and its fingerprint does not cover its content. Reads end with their context; a
// goroutine then waits until Read of r returns.
func ReaderInput(ctx context.Context, r io.Reader, name string) (Input, error) {
	s := newOnce(name, r)
	head, err := io.ReadAll(io.LimitReader(&onceReader{ctx: ctx, of: s}, 4))
	if err != nil {
		return Input{}, fmt.Errorf("%s: %w", name, err)
	}
	for magic, ending := range map[string]string{
		"\x1f\x8b": ".gz", "\x28\xb5\x2f\xfd": ".zst", "BZh": ".bz2", "\xfd7zX": ".xz", "\x04\x22\x4d\x18": ".lz4"} {
		if strings.HasPrefix(string(head), magic) {
			s.name += ending
			break
		}
	}
	return Input{Store: s, Name: s.name}, nil
}

// Once reports whether in is a stream that can be read only once; see ReaderInput.
func (in Input) Once() bool {
	_, ok := in.Store.(*once)
	return ok
}

// SpooledInput copies a stream to a temporary file of dir, or of the system's folder if dir is
// empty, for formats that cannot be read from front to back. remove deletes the file.
func SpooledInput(ctx context.Context, r io.Reader, name, dir string) (in Input, remove func(), err error) {
	temp, err := os.MkdirTemp(dir, "shardtool-stdin-")
	if err != nil {
		return Input{}, nil, err
	}
	remove = func() { _ = os.RemoveAll(temp) } // the system cleans its folder where this fails
	path := filepath.Join(temp, name)
	if err = spool(ctx, r, path); err == nil {
		in, err = LocalInput(path)
	}
	if err != nil {
		remove()
		return Input{}, nil, fmt.Errorf("%s: %w", name, err)
	}
	in.Path = name
	return in, remove, nil
}

func spool(ctx context.Context, r io.Reader, path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.CopyBuffer(struct{ io.Writer }{f}, &onceReader{ctx: ctx, of: newOnce("", r)}, make([]byte, onceBuffer))
	return errors.Join(err, f.Close())
}

// onceBuffer is the size of reads. onceKept bounds the beginning of a stream that is kept, because
// a source opens its files several times before it reads them through: for the header, and for the
// types of attributes.
const onceBuffer, onceKept = 256 << 10, 64 << 20

// once is a Store of one object, a stream.
type once struct {
	name string
	in   io.Reader

	mu   sync.Mutex
	kept []byte // the stream from offset from on: its beginning, then the last chunk
	from int64
	err  error // after kept
	// A goroutine waits in each Read, which no context ends, and sends its result. The channel has
	// room for it.
	waits  bool
	chunks chan onceChunk
	buf    []byte
}

var _ objstore.Store = (*once)(nil)

// onceChunk is what one Read returned.
type onceChunk struct {
	data []byte
	err  error
}

func newOnce(name string, r io.Reader) *once {
	return &once{name: name, in: r, chunks: make(chan onceChunk, 1), buf: make([]byte, onceBuffer)}
}

// ReadSome reads up to len(p) bytes from off on: from the beginning while that is kept, else from
// where the previous read ended.
func (s *once) ReadSome(ctx context.Context, p []byte, off int64) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(p) > 0 {
		end := s.from + int64(len(s.kept))
		switch {
		case off >= s.from && off < end:
			return copy(p, s.kept[off-s.from:]), nil
		case off != end:
			return 0, fmt.Errorf("the stream is at byte %d and is read only once: it cannot move to %d", end, off)
		case s.err != nil:
			return 0, s.err
		}
		if err := s.receive(ctx); err != nil {
			return 0, err
		}
	}
	return 0, nil
}

// receive waits for the next chunk.
func (s *once) receive(ctx context.Context) error {
	if !s.waits {
		s.waits = true
		go func() {
			n, err := s.in.Read(s.buf)
			s.chunks <- onceChunk{s.buf[:n], err}
		}()
	}
	select {
	case c := <-s.chunks:
		s.waits = false
		if len(s.kept) >= onceKept || s.from > 0 {
			s.from += int64(len(s.kept))
			s.kept = append(make([]byte, 0, onceBuffer), c.data...)
		} else {
			s.kept = append(s.kept, c.data...)
		}
		s.err = c.err
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Open implements objstore.Store.
func (s *once) Open(_ context.Context, _ string) (objstore.Object, error) {
	return onceObject{s}, nil
}

// Stat implements objstore.Store. The size is not known.
func (s *once) Stat(context.Context, string) (objstore.Info, error) {
	return objstore.Info{Name: s.name, ModTime: time.Unix(0, 0)}, nil
}

// Create implements objstore.Store.
func (s *once) Create(context.Context, string, objstore.Condition) (objstore.Upload, error) {
	return nil, objstore.ErrReadOnly
}

// List implements objstore.Store.
func (s *once) List(ctx context.Context, _ string) iter.Seq2[objstore.Info, error] {
	return func(yield func(objstore.Info, error) bool) { yield(s.Stat(ctx, s.name)) }
}

// Delete implements objstore.Store.
func (s *once) Delete(context.Context, string) error { return objstore.ErrReadOnly }

// String implements objstore.Store.
func (s *once) String() string { return s.name }

// onceReader reads the stream from off on.
type onceReader struct {
	ctx context.Context
	of  *once
	off int64
}

func (r *onceReader) Read(p []byte) (int, error) {
	n, err := r.of.ReadSome(r.ctx, p, r.off)
	r.off += int64(n)
	return n, err
}

// onceObject is the stream. Sources read it with ReadSome.
type onceObject struct{ *once }

// ReadAt implements objstore.Object.
func (o onceObject) ReadAt(ctx context.Context, p []byte, off int64) error {
	_, err := io.ReadFull(&onceReader{ctx, o.once, off}, p)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// Info implements objstore.Object.
func (o onceObject) Info(ctx context.Context) (objstore.Info, error) { return o.Stat(ctx, o.name) }

// Close implements objstore.Object. The stream can be opened again while its beginning is kept.
func (o onceObject) Close() error { return nil }
