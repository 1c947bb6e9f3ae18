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
	"github.com/shardtool/shardtool/objstore"
)

// NewObjects is NewFiles over stores: the objects of each, by the names below it, are the files.
// Each is read by one request, and one that was replaced since it was listed is an error of its
// sample; so is one that does not match the checksum that its store keeps. Names that end in a
// slash, as some tools put them for folders, are passed over. The stores are the caller's to close.
func NewObjects(ctx context.Context, stores []objstore.Store, opt FilesOptions) (*Files, error) {
	r := &roots{}
	for _, s := range stores {
		r.list = append(r.list, root{store: s, path: strings.TrimSuffix(s.String(), "/")})
	}
	return newFiles(ctx, r, opt)
}

// objects lists a store.
func (w *walker) objects() error {
	for info, err := range w.root.store.List(w.ctx, "") {
		if err != nil {
			return fmt.Errorf("source: listing %s: %w", w.root.path, err)
		}
		if err := w.ctx.Err(); err != nil {
			return err
		}
		switch rel := info.Name; {
		case strings.HasSuffix(rel, "/"):
		case hidden(rel) && !w.hiddenWanted(rel):
			w.f.left.Hidden++
		case !w.wanted(rel):
			w.f.left.Filtered++
		default:
			l := listed{root: w.number, name: path.Base(rel), size: info.Size, mtime: version(info)}
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

// hidden says whether an element of a name begins with a dot.
func hidden(rel string) bool { return rel[0] == '.' || strings.Contains(rel, "/.") }

// version stands for the ETag, and for the time where there is none, in place of a modification time.
func version(info objstore.Info) int64 {
	if info.ETag == "" {
		return info.ModTime.UnixNano()
	}
	return int64(xxhash.Sum64String(info.ETag))
}

// object is the payload of one listed object.
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
		return fmt.Errorf("the object vanished while it was packed: %w", err)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%w: %w", errChanged, err)
	}
	return err
}

// check says whether what was read is what was listed. After a read it costs no request.
func (o *object) check(ctx context.Context, h objstore.Object) error {
	info, err := h.Info(ctx)
	if err != nil {
		return explainObject(err)
	}
	if info.Size != o.size || version(info) != o.mtime {
		return fmt.Errorf("%w (another version is there now)", errChanged)
	}
	return nil
}

// ReadInto is writer.Payload's. Bytes that are not those of the store's checksum are read once
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

// damaged is the error of bytes that do not match a checksum, nil for nil.
func (o *object) damaged(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", format.ErrCorrupt, objstore.NewError("get", o.store.String(), dirOf(o.key)+o.name, err))
}

// Open is writer.Payload's.
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

// streamPiece is what is asked for at once of an object too large to hold: large enough that a store reads parts of it side by side.
const streamPiece = 16 << 20

// objectStream reads an object front to end. What it gives cannot be taken back: a mismatch with
// the store's checksum, which shows at the end, is an error without a second read.
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
