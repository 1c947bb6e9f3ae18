package tar

import (
	"archive/tar"
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/tarblock"
	"github.com/shardtool/shardtool/internal/input/fused"
	decoded "github.com/shardtool/shardtool/internal/input/stream"
	"github.com/shardtool/shardtool/internal/sys/plain"
	"github.com/shardtool/shardtool/objstore"
)

// stream reads an archive.
type stream struct {
	archive *archive
	lastDot bool
	ctx     context.Context
	cancel  context.CancelFunc
	obj     objstore.Object
	in      *offsetReader
	left    int64           // bytes of the member at hand that were not read
	unusual *tar.Reader     // reads the member at hand instead, when its headers are unusual
	plain   bool            // members can be read in place
	end     error           // io.EOF after a complete archive
	chunk   []byte          // unused part of the buffer for small members
	refused map[int64]error // errors of members that cannot be packed, by offset
}

// blockSize is the size of tar's headers.
const blockSize = 512

// chunkSize is the size of a buffer that small members share.
const chunkSize = 256 << 10

// newStream opens an archive. Reading does not end with ctx, but with cancel.
func newStream(ctx context.Context, a *archive, lastDot bool) (*stream, error) {
	obj, err := a.Reopen(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", a.Path, err)
	}
	s := &stream{archive: a, lastDot: lastDot, obj: obj, refused: map[int64]error{}, plain: a.coding == decoded.Plain &&
		!a.Once()}
	s.ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	s.in = &offsetReader{s: s, r: bufio.NewReaderSize(nil, 256<<10)}
	if err := s.in.begin(0); err != nil {
		s.close()
		return nil, s.damaged(0, err)
	}
	return s, nil
}

func (s *stream) close() {
	s.cancel()
	if s.in != nil && s.in.from != nil {
		s.in.from.Close()
	}
	s.obj.Close()
}

// damaged returns the error of a whole archive.
func (s *stream) damaged(offset int64, err error) error {
	if s.in != nil && s.in.failed != nil { // an error of the store or the decompressor, which is already complete
		return fmt.Errorf("%s at %d: %w", s.archive.Path, offset, s.in.failed)
	}
	if !errors.Is(err, format.ErrCorrupt) && (errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF)) {
		err = fmt.Errorf("%w: the archive is cut off%w", format.ErrCorrupt, plain.Silent(io.ErrUnexpectedEOF))
	} else if !errors.Is(err, format.ErrCorrupt) {
		err = fmt.Errorf("%w: %w", format.ErrCorrupt, err)
	}
	return fmt.Errorf("%s at %d: %w; download or create it again", s.archive.Path, offset, err)
}

// next reads a member, including up to most bytes of data unless it can be read later.
func (s *stream) next(most int64) (m member, err error) {
	for s.end == nil {
		before := s.in.off
		h, flag, err := s.header()
		if errors.Is(err, io.EOF) {
			s.end = s.ended()
			continue
		}
		if err != nil {
			return m, s.damaged(before, err)
		}
		before = s.in.off - blockSize
		name := clean(h.name)
		switch flag {
		case tar.TypeXGlobalHeader:
			if h.global {
				return m, fmt.Errorf("%s at %d: %w: a global header sets the name or the size of all members, which programs read differently: write the archive again",
					s.archive.Path, before, format.ErrVersion)
			}
			continue
		case tar.TypeDir:
			continue
		case tar.TypeReg, tar.TypeGNUSparse, tar.TypeCont: // POSIX: a system without contiguous files treats them as regular ones
		default:
			m = member{name: h.name, key: name, offset: before}
			s.refused[before] = fmt.Errorf("it is %s: only regular files can be packed",
				cmp.Or(tarblock.TypeNames[flag], fmt.Sprintf("a member of type %q", flag)))
			return m, nil
		}
		m = member{name: h.name, offset: before, size: h.size}
		if s.lastDot {
			m.key, m.field = fused.LastDot(name)
		} else {
			key, _ := format.SplitName([]byte(name))
			m.key, m.field = name[:len(key)], name[min(len(key)+1, len(name)):]
		}
		if err := format.CheckKey(m.key); err != nil {
			s.refused[before] = fmt.Errorf("%w: rename it in the archive", err)
			return m, nil
		}
		return m, s.content(&m, most)
	}
	return m, s.end
}

// header goes to the next member and returns its header and type. The error is io.EOF at the end of
// the archive.
func (s *stream) header() (h header, flag byte, err error) {
	if err := s.skip(); err != nil {
		return h, 0, err
	}
	s.in.zeros = 0 // zeros in content do not end the archive
	if h, ok := parse(s.in.r); ok {
		s.left = h.size
		return h, tar.TypeReg, s.in.discard(h.len)
	}
	s.unusual = tar.NewReader(s.in)
	of, err := s.unusual.Next()
	if err != nil {
		return h, 0, err
	}
	h.name, h.size, flag = of.Name, of.Size, of.Typeflag
	h.global = flag == tar.TypeXGlobalHeader && (of.PAXRecords["path"] != "" || of.PAXRecords["size"] != "")
	whole := flag == tar.TypeReg && of.PAXRecords["GNU.sparse.major"] == "" && of.PAXRecords["GNU.sparse.map"] == ""
	if whole { // its content follows
		s.unusual, s.left = nil, h.size
	}
	return h, flag, nil
}

// skip skips what was not read of the member at hand, and its padding.
func (s *stream) skip() error {
	if s.unusual != nil {
		if _, err := io.Copy(io.Discard, s.unusual); err != nil {
			return err
		}
		s.unusual = nil
	}
	n := s.left
	n += -(s.in.off + n) & (blockSize - 1)
	s.left = 0
	return s.in.discard(n)
}

// read reads content of the member at hand.
func (s *stream) read(p []byte) (n int, err error) {
	if s.unusual != nil {
		return io.ReadFull(s.unusual, p)
	}
	n, err = io.ReadFull(s.in, p)
	s.left -= int64(n)
	return n, err
}

// content reads a member, or records where it is.
func (s *stream) content(m *member, most int64) error {
	// From a remote store, members are read sequentially as long as they fit, because skipping them
	// would waste what was prefetched.
	if s.plain && s.unusual == nil && m.size > inline && (!s.archive.Remote || m.size > most) {
		m.payload = s.in.off // directly after the header
		if end := m.payload + m.size; end > s.archive.Info.Size {
			return s.damaged(m.offset, io.ErrUnexpectedEOF)
		}
		return nil
	}
	if m.size > most {
		if err := s.skip(); err != nil {
			return s.damaged(m.offset, err)
		}
		s.refused[m.offset] = fmt.Errorf("%w: a sample of more than %d bytes in a compressed archive or a stream: read it from a plain archive in a file", format.ErrTooLarge, most)
		return nil
	}
	if m.size <= chunkSize/8 {
		if int64(len(s.chunk)) < m.size {
			s.chunk = make([]byte, chunkSize)
		}
		m.data, s.chunk = s.chunk[:m.size:m.size], s.chunk[m.size:]
		if _, err := s.read(m.data); err != nil {
			return s.damaged(m.offset, io.ErrUnexpectedEOF)
		}
		return nil
	}
	// The buffer grows with the bytes that arrive, not by the size in the header.
	const step = 4 << 20
	data := make([]byte, 0, min(m.size, step))
	for int64(len(data)) < m.size {
		n := len(data)
		want := int(min(m.size-int64(n), step))
		if cap(data)-n < want {
			data = append(make([]byte, 0, min(int64(2*cap(data)+want), m.size)), data...)
		}
		got, err := s.read(data[n : n+want])
		if data = data[:n+got]; err != nil {
			return s.damaged(m.offset, io.ErrUnexpectedEOF)
		}
	}
	m.data = data
	return nil
}

// ended checks how the archive ends. The tar reader takes the end of the file for the end of the
// archive; only two blocks of zeros distinguish an archive from one that was truncated between two
// members.
func (s *stream) ended() error {
	if s.in.off == 0 {
		return s.damaged(0, fmt.Errorf("%w: it is empty: it has no bytes, and an archive has at least %d",
			format.ErrCorrupt, 2*blockSize))
	}
	if s.in.zeros < 2*blockSize {
		return s.damaged(s.in.off, fmt.Errorf("%w: the archive has no end: it was cut between two members: %w",
			format.ErrCorrupt, io.ErrUnexpectedEOF))
	}
	at := s.in.off
	rest := make([]byte, 32<<10)
	for {
		n, err := s.in.Read(rest)
		for i, c := range rest[:n] {
			if c != 0 {
				return s.damaged(at+int64(i),
					fmt.Errorf("%w: data follows the end of the archive: if archives were concatenated, name them one by one", format.ErrCorrupt))
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

// offsetReader tracks its offset and the number of zeros read last.
type offsetReader struct {
	s      *stream
	from   *decoded.Stream
	r      *bufio.Reader
	off    int64
	zeros  int64
	failed error // error of the store or the decompressor
}

// begin starts reading at an offset.
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

// note records an error of the source.
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

// discard skips n bytes. In a plain archive it does not read what it skips beyond the buffer.
func (o *offsetReader) discard(n int64) error {
	if o.s.plain && n > int64(o.r.Buffered()) && n > blockSize {
		if o.off+n > o.s.archive.Info.Size {
			return io.ErrUnexpectedEOF
		}
		return o.begin(o.off + n)
	}
	for n > 0 {
		k, err := o.r.Discard(int(min(n, 1<<30)))
		o.off += int64(k)
		n -= int64(k)
		if err != nil {
			return o.note(err)
		}
	}
	return nil
}
