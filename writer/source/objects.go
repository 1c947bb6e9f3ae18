package source

import (
	"context"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"path"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/input/tally"
	"github.com/shardtool/shardtool/objstore"
)

// NewObjects is like NewFiles for the objects of stores, named relative to each store. Each object
// is read by one request. An object that was replaced since it was listed, or that does not match
// the checksum that its store keeps, is an error of its sample. Names that end in a slash, which
// some tools create for folders, are ignored. The caller closes the stores.
func NewObjects(ctx context.Context, stores []objstore.Store, opt FilesOptions) (*Files, error) {
	r := &roots{}
	for _, s := range stores {
		r.list = append(r.list, root{store: s, path: strings.TrimSuffix(s.String(), "/")})
	}
	return newFiles(ctx, r, opt)
}

// objects lists a store.
func (w *walker) objects() error {
	for info, err := range objstore.ListAll(w.ctx, w.root.store, "") {
		if err != nil {
			return fmt.Errorf("listing %s: %w", w.root.path, err)
		}
		if err := w.ctx.Err(); err != nil {
			return err
		}
		rel := info.Name
		rule := w.choice().Leaves(rel)
		unsafe := tally.UnsafeError(rel)
		switch {
		case strings.HasSuffix(rel, "/") && info.Size == 0:
		case rule != "":
			w.leave(rule, rel)
		case unsafe != nil && w.f.opt.LeaveUnsafe:
			w.leave(tally.Unsafe, rel)
		case unsafe != nil:
			return fmt.Errorf("listing %s: %w", w.root.path, unsafe)
		default:
			l := listed{root: w.number, name: path.Base(rel), size: info.Size, mtime: version(info)}
			if info.Size < 0 {
				l.size, l.problem = 0, "not a regular file, or a link that leads out or nowhere: exclude it"
			}
			if err := w.add(rel, &l); err != nil {
				return err
			}
			if n := w.f.list.Len(); w.f.opt.Found != nil && n%4096 == 0 {
				w.f.opt.Found(n)
			}
		}
	}
	return nil
}

// version returns a hash of the ETag, or the time if there is no ETag, for use as a modification
// time.
func version(info objstore.Info) int64 {
	if info.ETag == "" {
		return info.ModTime.UnixNano()
	}
	return int64(xxhash.Sum64String(info.ETag))
}

// object is the payload of one object.
type object struct {
	store objstore.Store
	listed
}

func (o *object) open(ctx context.Context) (objstore.Object, error) {
	h, err := o.store.Open(ctx, dirOf(o.key)+o.name)
	return h, explainObject(err)
}

func explainObject(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("the object was removed while it was packed: %w", err)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%w: %w", errChanged, err)
	}
	return err
}

// check fails if the object that was read is not the one that was listed. After a read it costs no
// request.
func (o *object) check(ctx context.Context, h objstore.Object) error {
	info, err := h.Info(ctx)
	if err != nil {
		return explainObject(err)
	}
	if info.Size != o.size || version(info) != o.mtime {
		return fmt.Errorf("%w (the store has another version now)", errChanged)
	}
	return nil
}

// ReadInto implements writer.Payload. If the bytes do not match the store's checksum, it reads once
// more.
func (o *object) ReadInto(ctx context.Context, p []byte) error {
	err := o.read(ctx, p)
	if errors.Is(err, objstore.ErrChecksum) {
		if err = o.read(ctx, p); errors.Is(err, objstore.ErrChecksum) {
			return fmt.Errorf("read twice: %w", err)
		}
	}
	return err
}

func (o *object) read(ctx context.Context, p []byte) error {
	h, err := o.open(ctx)
	if err != nil {
		return err
	}
	defer h.Close()
	if len(p) > 0 {
		if err := h.ReadAt(ctx, p, 0); err != nil {
			return explainObject(err)
		}
	}
	if err := o.check(ctx, h); err != nil || len(p) == 0 {
		return err
	}
	sum, err := objstore.SumOf(ctx, h)
	if err != nil || sum == nil {
		return explainObject(err)
	}
	hash := sum.New()
	hash.Write(p)
	return o.damaged(sum.Check(hash))
}

// damaged wraps the error of bytes that do not match a checksum, and returns nil for nil.
func (o *object) damaged(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", format.ErrCorrupt, objstore.NewError("get", o.store.String(), dirOf(o.key)+o.name, err))
}

// Open implements writer.Payload.
func (o *object) Open(ctx context.Context) (io.ReadCloser, error) {
	h, err := o.open(ctx)
	if err != nil {
		return nil, err
	}
	if err := o.check(ctx, h); err != nil {
		h.Close()
		return nil, err
	}
	s := &objectStream{ctx: ctx, o: o, h: h}
	if s.sum, err = objstore.SumOf(ctx, h); err != nil {
		h.Close()
		return nil, explainObject(err)
	}
	if s.sum != nil {
		s.hash = s.sum.New()
	}
	return s, nil
}

// streamPiece is the size of a read from an object too large to hold: large enough for a store to
// split it into parallel requests.
const streamPiece = 16 << 20

// objectStream reads an object from front to end. Bytes already returned cannot be taken back, so a
// mismatch with the store's checksum, found at the end, is an error without a second read.
type objectStream struct {
	ctx  context.Context
	o    *object
	h    objstore.Object
	off  int64
	held []byte
	buf  []byte
	sum  *objstore.Sum
	hash hash.Hash
}

func (s *objectStream) Read(p []byte) (int, error) {
	if len(s.held) == 0 {
		n := min(streamPiece, s.o.size-s.off)
		if n == 0 {
			return 0, s.end()
		}
		if s.buf == nil {
			s.buf = make([]byte, n)
		}
		s.held = s.buf[:n]
		if err := s.h.ReadAt(s.ctx, s.held, s.off); err != nil {
			s.held = nil
			return 0, explainObject(err)
		}
		s.off += n
		if s.sum != nil {
			s.hash.Write(s.held)
		}
	}
	n := copy(p, s.held)
	s.held = s.held[n:]
	return n, nil
}

func (s *objectStream) end() error {
	if s.sum != nil {
		if err := s.o.damaged(s.sum.Check(s.hash)); err != nil {
			return fmt.Errorf("%w; run again", err)
		}
	}
	return io.EOF
}

func (s *objectStream) Close() error { return s.h.Close() }
