package tar

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/shardtool/shardtool/writer"
)

// span is the content of a member of a plain archive: a writer.Payload. It opens the archive when it is read, since there may be more
// archives than files a process may have open.
type span struct {
	archive *archive
	member  member
}

var _ writer.Payload = (*span)(nil)

var errChanged = errors.New("the archive changed while it was packed")

func (s *span) unchanged(f *os.File) error {
	info, err := f.Stat()
	if err == nil && (info.Size() != s.archive.info.Size() || !info.ModTime().Equal(s.archive.info.ModTime())) {
		err = errChanged
	}
	return err
}

func (s *span) fail(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	return fmt.Errorf("%s at %d: %s: %w", s.archive.path, s.member.offset, s.member.name, err)
}

// ReadInto is writer.Payload's.
func (s *span) ReadInto(ctx context.Context, p []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	f, err := os.Open(s.archive.path)
	if err != nil {
		return s.fail(err)
	}
	defer f.Close()
	if _, err := f.ReadAt(p, s.member.payload); err != nil {
		return s.fail(fmt.Errorf("%w: %w", errChanged, err))
	}
	return s.fail(s.unchanged(f))
}

// Open is writer.Payload's.
func (s *span) Open(context.Context) (io.ReadCloser, error) {
	f, err := os.Open(s.archive.path)
	if err != nil {
		return nil, s.fail(err)
	}
	return &spanReader{io.NewSectionReader(f, s.member.payload, s.member.size), s, f}, nil
}

type spanReader struct {
	*io.SectionReader
	span *span
	file *os.File
}

// Read fails at the end when the archive is not what it was.
func (r *spanReader) Read(p []byte) (int, error) {
	n, err := r.SectionReader.Read(p)
	if errors.Is(err, io.EOF) {
		if changed := r.span.unchanged(r.file); changed != nil {
			err = changed
		}
	}
	return n, r.span.fail(err)
}

func (r *spanReader) Close() error { return r.file.Close() }
