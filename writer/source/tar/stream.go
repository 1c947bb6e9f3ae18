package tar

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/objstore"
	decoded "github.com/shardtool/shardtool/writer/source/internal/stream"
)

// stream is an archive that is being read.
type stream struct {
	archive *archive
	ctx     context.Context
	cancel  context.CancelFunc
	obj     objstore.Object
	in      *offsetReader
	tar     *tar.Reader
	plain   bool
	end     error           // io.EOF behind a whole archive
	chunk   []byte          // what small members are read to, as far as it is free
	refused map[int64]error // by offset: members that cannot be packed
}

// blockSize is that of tar's headers.
const blockSize = 512

// chunkSize is what small members are read to together.
const chunkSize = 256 << 10

// newStream begins at the front of an archive. Reading goes on when ctx has ended, until cancel.
func newStream(ctx context.Context, a *archive) (*stream, error) {
	obj, err := a.Store.Open(ctx, a.Name)
	if err != nil {
		return nil, fmt.Errorf("source: %s: %w", a.Path, err)
	}
	s := &stream{archive: a, obj: obj, refused: map[int64]error{}, plain: a.coding == decoded.Plain}
	s.ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	if err := a.unchanged(ctx, obj); err != nil {
		s.close()
		if errors.Is(err, errChanged) {
			err = fmt.Errorf("changed since it was listed: pack again when nobody writes to it (%w)", err)
		}
		return nil, fmt.Errorf("source: %s %w", a.Path, err)
	}
	s.in = &offsetReader{s: s, r: bufio.NewReaderSize(nil, 256<<10)}
	if err := s.in.begin(0); err != nil {
		s.close()
		return nil, s.damaged(0, err)
	}
	s.tar = tar.NewReader(s.in)
	return s, nil
}

func (s *stream) close() {
	s.cancel()
	if s.in != nil && s.in.from != nil {
		s.in.from.Close()
	}
	s.obj.Close()
}

// damaged is an error of the archive as a whole.
func (s *stream) damaged(offset int64, err error) error {
	if s.in != nil && s.in.failed != nil { // below the archive, which says what to do
		return fmt.Errorf("source: %s at %d: %w", s.archive.Path, offset, s.in.failed)
	}
	if !errors.Is(err, format.ErrCorrupt) && (errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF)) {
		err = fmt.Errorf("%w: the archive was cut: %w", format.ErrCorrupt, io.ErrUnexpectedEOF)
	} else if !errors.Is(err, format.ErrCorrupt) {
		err = fmt.Errorf("%w: %w", format.ErrCorrupt, err)
	}
	return fmt.Errorf("source: %s at %d: %w; fetch or make the archive again", s.archive.Path, offset, err)
}

// next reads a member: its data too, up to most bytes, unless it can be read later.
func (s *stream) next(most int64) (m member, err error) {
	for s.end == nil {
		before := s.in.off
		s.in.zeros = 0 // content is no end
		h, err := s.tar.Next()
		if errors.Is(err, io.EOF) {
			s.end = s.ended()
			continue
		}
		if err != nil {
			return m, s.damaged(before, err)
		}
		before = s.in.off - blockSize
		name := clean(h.Name)
		switch h.Typeflag {
		case tar.TypeDir, tar.TypeXGlobalHeader:
			continue
		case tar.TypeReg, tar.TypeGNUSparse, tar.TypeCont: // POSIX: where there are no contiguous files, a regular one
		default:
			m = member{name: h.Name, key: name, offset: before}
			s.refused[before] = fmt.Errorf("it is %s: only regular files can be packed", kindName(h.Typeflag))
			return m, nil
		}
		key, field := format.SplitName([]byte(name))
		m = member{name: h.Name, key: string(key), field: string(field), offset: before, size: h.Size}
		if err := format.CheckKey(m.key); err != nil {
			s.refused[before] = fmt.Errorf("%w: rename it in the archive", err)
			return m, nil
		}
		return m, s.content(&m, h, most)
	}
	return m, s.end
}

// content gets at a member's bytes.
func (s *stream) content(m *member, h *tar.Header, most int64) error {
	sparse := h.Typeflag == tar.TypeGNUSparse || h.PAXRecords["GNU.sparse.major"] != "" || h.PAXRecords["GNU.sparse.map"] != ""
	// What lies behind a network is read in passing, as far as there is room: skipping it would throw away what was read ahead.
	if s.plain && !sparse && m.size > inline && (!s.archive.Remote || m.size > most) {
		m.payload = s.in.off // right behind the header: the reader takes no more than that
		if end := m.payload + m.size; end > s.archive.Info.Size {
			return s.damaged(m.offset, io.ErrUnexpectedEOF)
		}
		return nil
	}
	if m.size > most {
		if _, err := io.Copy(io.Discard, s.tar); err != nil {
			return s.damaged(m.offset, err)
		}
		s.refused[m.offset] = fmt.Errorf("%w: a sample of more than %d bytes in a compressed archive: decompress the archive first", format.ErrTooLarge, most)
		return nil
	}
	if m.size <= chunkSize/8 {
		if int64(len(s.chunk)) < m.size {
			s.chunk = make([]byte, chunkSize)
		}
		m.data, s.chunk = s.chunk[:m.size:m.size], s.chunk[m.size:]
		if _, err := io.ReadFull(s.tar, m.data); err != nil {
			return s.damaged(m.offset, io.ErrUnexpectedEOF)
		}
		return nil
	}
	// The header's size is believed as the bytes come, not before.
	const step = 4 << 20
	data := make([]byte, 0, min(m.size, step))
	for int64(len(data)) < m.size {
		n := len(data)
		want := int(min(m.size-int64(n), step))
		if cap(data)-n < want {
			data = append(make([]byte, 0, min(int64(2*cap(data)+want), m.size)), data...)
		}
		got, err := io.ReadFull(s.tar, data[n:n+want])
		if data = data[:n+got]; err != nil {
			return s.damaged(m.offset, io.ErrUnexpectedEOF)
		}
	}
	m.data = data
	return nil
}

// ended looks at how the archive ends. tar's reader takes the end of the file for that of the archive; two blocks of zeros make the
// difference between an archive and one cut between two members.
func (s *stream) ended() error {
	if s.in.zeros < 2*blockSize {
		return s.damaged(s.in.off, fmt.Errorf("%w: the archive has no end: it was cut between two members: %w", format.ErrCorrupt, io.ErrUnexpectedEOF))
	}
	at := s.in.off
	rest := make([]byte, 32<<10)
	for {
		n, err := s.in.Read(rest)
		for i, c := range rest[:n] {
			if c != 0 {
				return s.damaged(at+int64(i), fmt.Errorf("%w: there is something behind the end of the archive: archives were joined; name them one by one", format.ErrCorrupt))
			}
		}
		at += int64(n)
		if errors.Is(err, io.EOF) {
			return io.EOF
		}
		if err != nil {
			return s.damaged(at, err)
		}
	}
}

// offsetReader knows where it stands, and how many zeros came last.
type offsetReader struct {
	s      *stream
	from   *decoded.Stream
	r      *bufio.Reader
	off    int64
	zeros  int64
	failed error // of the store, or of the compressed stream
}

// begin reads from an offset on.
func (o *offsetReader) begin(off int64) (err error) {
	a := o.s.archive
	if o.from != nil {
		o.from.Close()
	}
	o.from, err = decoded.Open(o.s.ctx, o.s.obj, a.Info.Size, a.Remote, a.coding, off)
	if err != nil {
		o.from = nil
		return o.note(err)
	}
	o.off = off
	o.r.Reset(o.from)
	return nil
}

// note keeps an error from below.
func (o *offsetReader) note(err error) error {
	if err != nil && !errors.Is(err, io.EOF) {
		o.failed = err
	}
	return err
}

func (o *offsetReader) Read(p []byte) (int, error) {
	n, err := o.r.Read(p)
	o.off += int64(n)
	tail := p[:n]
	i := len(tail)
	for i > 0 && tail[i-1] == 0 && len(tail)-i < 1024 {
		i--
	}
	if zeros := int64(len(tail) - i); i > 0 || zeros >= 1024 {
		o.zeros = zeros
	} else {
		o.zeros += zeros
	}
	return n, o.note(err)
}

// Seek is for tar's reader, which passes over content by it: forward alone.
func (o *offsetReader) Seek(offset int64, whence int) (int64, error) {
	if !o.s.plain || whence != io.SeekCurrent || offset < 0 {
		return 0, errors.ErrUnsupported
	}
	o.zeros = 0
	if offset <= int64(o.r.Buffered()) {
		n, err := o.r.Discard(int(offset))
		o.off += int64(n)
		return o.off, err
	}
	err := o.begin(o.off + offset)
	return o.off, err
}
