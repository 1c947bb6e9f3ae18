package tar

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/writer"
	decoded "github.com/shardtool/shardtool/writer/source/internal/stream"
)

// span is a writer.Payload: the content of a member of a plain archive. Each read opens the
// archive, because there may be more archives than a process may have open files.
type span struct {
	archive *archive
	member  member
}

var _ writer.Payload = (*span)(nil)

var errChanged = errors.New("the archive changed while it was packed")

func (s *span) fail(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = fmt.Errorf("%w: %w", errChanged, err)
	}
	return fmt.Errorf("%s at %d: %s: %w", s.archive.Path, s.member.offset, s.member.name, err)
}

// ReadInto implements writer.Payload.
func (s *span) ReadInto(ctx context.Context, p []byte) error {
	obj, err := s.archive.Store.Open(ctx, s.archive.Name)
	if err != nil {
		return s.fail(err)
	}
	defer obj.Close()
	if err := obj.ReadAt(ctx, p, s.member.payload); err != nil {
		return s.fail(err)
	}
	return s.fail(s.archive.unchanged(ctx, obj))
}

// Open implements writer.Payload.
func (s *span) Open(ctx context.Context) (io.ReadCloser, error) {
	obj, err := s.archive.Store.Open(ctx, s.archive.Name)
	if err != nil {
		return nil, s.fail(err)
	}
	end := s.member.payload + s.member.size
	r, err := decoded.Open(ctx, obj, end, s.archive.Remote, decoded.Plain, s.member.payload)
	if err != nil {
		obj.Close()
		return nil, s.fail(err)
	}
	return &spanReader{ctx: ctx, in: r, span: s, obj: obj}, nil
}

type spanReader struct {
	ctx  context.Context
	in   *decoded.Stream
	span *span
	obj  objstore.Object
}

// Read fails at the end if the archive has changed.
func (r *spanReader) Read(p []byte) (int, error) {
	n, err := r.in.Read(p)
	if errors.Is(err, io.EOF) {
		if changed := r.span.archive.unchanged(r.ctx, r.obj); changed != nil {
			err = changed
		}
	}
	return n, r.span.fail(err)
}

func (r *spanReader) Close() error {
	r.in.Close()
	return r.obj.Close()
}
