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

func (s *span) fail(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	return fmt.Errorf("%s at %d: %s: %w", s.archive.Path, s.member.offset, s.member.name, err)
}

// ReadInto implements writer.Payload.
func (s *span) ReadInto(ctx context.Context, p []byte) error {
	obj, err := s.archive.Reopen(ctx)
	if err != nil {
		return s.fail(err)
	}
	defer obj.Close()
	return s.fail(obj.ReadAt(ctx, p, s.member.payload))
}

// Open implements writer.Payload.
func (s *span) Open(ctx context.Context) (io.ReadCloser, error) {
	obj, err := s.archive.Reopen(ctx)
	if err != nil {
		return nil, s.fail(err)
	}
	end := s.member.payload + s.member.size
	r, err := decoded.Open(ctx, obj, end, s.archive.Remote, decoded.Plain, s.member.payload)
	if err != nil {
		obj.Close()
		return nil, s.fail(err)
	}
	return &spanReader{in: r, span: s, obj: obj}, nil
}

type spanReader struct {
	in   *decoded.Stream
	span *span
	obj  objstore.Object
}

func (r *spanReader) Read(p []byte) (int, error) {
	n, err := r.in.Read(p)
	return n, r.span.fail(err)
}

func (r *spanReader) Close() error {
	r.in.Close()
	return r.obj.Close()
}
