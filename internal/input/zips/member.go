package zips

import (
	"archive/zip"
	"bufio"
	"context"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"sync"

	"github.com/klauspost/compress/flate"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/input/stream"
	"github.com/shardtool/shardtool/objstore"
)

// Member is a handle of a member. Closing it does nothing.
type Member struct {
	s *Store
	f *zip.File

	mu    sync.Mutex
	at    int64    // of the stored bytes; 0 if it is not known yet
	from  *decoder // at the end of the last read from front to end
	front front    // which it reads
	whole []byte   // of a compressed one that is read at random
}

// File is what the archive states of the member.
func (m *Member) File() *zip.File { return m.f }

// Info implements objstore.Object.
func (m *Member) Info(context.Context) (objstore.Info, error) { return m.s.describe(m.f), nil }

// Close implements objstore.Object.
func (m *Member) Close() error { return nil }

// ReadAt implements objstore.Object. What is read from front to end is compared with the checksum
// of the archive.
func (m *Member) ReadAt(ctx context.Context, p []byte, off int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	err := m.readAt(ctx, p, off)
	if err != nil {
		err = objstore.NewError("get", m.s.String(), m.f.Name, err)
	}
	return err
}

func (m *Member) readAt(ctx context.Context, p []byte, off int64) error {
	size := int64(m.f.UncompressedSize64)
	if off < 0 || int64(len(p)) > size-off {
		return io.ErrUnexpectedEOF
	}
	if m.whole != nil {
		copy(p, m.whole[off:])
		return nil
	}
	if err := m.find(); err != nil {
		return err
	}
	if m.from == nil && off == 0 {
		m.from = m.begin()
	}
	if m.from != nil && m.from.pos == off {
		err := m.fill(ctx, p)
		if err != nil {
			m.from = nil
		}
		return err
	}
	switch {
	case m.f.Method == zip.Store:
		_, err := m.s.readAt(ctx, p, m.at+off)
		return cut(err)
	case size > random:
		return fmt.Errorf("it is compressed, has %d bytes and is not read from front to end: unpack the archive and pack the folder", size)
	}
	whole := make([]byte, size) // at most 1,032 times what is stored
	m.from = m.begin()
	err := m.fill(ctx, whole)
	if m.from = nil; err != nil {
		return err
	}
	m.whole = whole
	copy(p, whole[off:])
	return nil
}

// cut explains the end of the archive in a member.
func cut(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, zip.ErrFormat) {
		return fmt.Errorf("%w: the archive is cut off, or damaged before this member", format.ErrCorrupt)
	}
	return err
}

// begin returns a decoder at the beginning.
func (m *Member) begin() *decoder {
	m.front = front{s: m.s, at: m.at, end: m.at + int64(m.f.CompressedSize64)}
	buffer := 0
	if m.f.Method == zip.Deflate {
		buffer = 1 << 20
	}
	return m.decode(&m.front, buffer)
}

// fill fills p with what follows, and compares the checksum at the end.
func (m *Member) fill(ctx context.Context, p []byte) error {
	m.front.ctx = ctx
	_, err := io.ReadFull(m.from, p)
	if err == nil && m.from.pos == int64(m.f.UncompressedSize64) {
		_, err = m.from.Read(nil)
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return err
}

// find finds the stored bytes.
func (m *Member) find() (err error) {
	if m.at == 0 {
		m.at, err = m.f.DataOffset()
	}
	return cut(err)
}

// Stream reads the member from front to end, buffer stored bytes at a time, or more where a remote
// archive is to be read ahead. What it reads is compared with the checksum of the archive.
func (m *Member) Stream(ctx context.Context, ahead bool, buffer int) (io.ReadCloser, error) {
	m.mu.Lock()
	err := m.find()
	m.mu.Unlock()
	if err != nil {
		return nil, err
	}
	p := stream.Payload{Store: m.s.store, Name: m.s.name, Info: m.s.info, Off: m.at,
		Size: int64(m.f.CompressedSize64), Place: m.s.String()}
	stored, err := p.OpenAhead(ctx, ahead)
	if err != nil {
		return nil, err
	}
	return struct {
		io.Reader
		io.Closer
	}{m.decode(stored, buffer), stored}, nil
}

// decoder reads a member from front to end.
type decoder struct {
	f   *zip.File
	raw *watched
	in  io.Reader
	sum hash.Hash32
	pos int64
	err error // after pos
}

// decode returns a decoder of stored bytes, which it reads through a buffer of that size, if any.
func (m *Member) decode(stored io.Reader, buffer int) *decoder {
	d := &decoder{f: m.f, raw: &watched{in: stored}, sum: crc32.NewIEEE()}
	if d.in = d.raw; buffer > 0 {
		d.in = bufio.NewReaderSize(d.raw, int(min(uint64(buffer), m.f.CompressedSize64+16)))
	}
	if m.f.Method == zip.Deflate {
		d.in = flate.NewReader(d.in)
	}
	return d
}

// Read implements io.Reader. At the end it compares the length and the checksum.
func (d *decoder) Read(p []byte) (int, error) {
	if d.err != nil {
		return 0, d.err
	}
	left := int64(d.f.UncompressedSize64) - d.pos
	n, err := d.in.Read(p[:min(int64(len(p)), left)])
	d.sum.Write(p[:n])
	d.pos += int64(n)
	switch {
	case int64(n) == left:
		d.err = d.end()
	case errors.Is(err, io.EOF):
		d.err = d.damaged(io.ErrUnexpectedEOF)
	case err != nil:
		d.err = d.damaged(err)
	}
	return n, d.err
}

// end returns io.EOF if the content ends, and has its checksum.
func (d *decoder) end() error {
	var more [1]byte
	if n, err := io.ReadFull(d.in, more[:]); n > 0 || !errors.Is(err, io.EOF) {
		if n > 0 {
			err = fmt.Errorf("it has more than the %d bytes that the archive states", d.f.UncompressedSize64)
		}
		return d.damaged(err)
	}
	if got := d.sum.Sum32(); got != d.f.CRC32 {
		return d.damaged(fmt.Errorf("its CRC-32 is %08x, and the archive states %08x", got, d.f.CRC32))
	}
	return io.EOF
}

// damaged returns the store's error if there is one.
func (d *decoder) damaged(err error) error {
	if d.raw.err != nil {
		return cut(d.raw.err)
	}
	return fmt.Errorf("%w: %w; fetch or make the archive again", format.ErrCorrupt, err)
}

// watched keeps the error of the store.
type watched struct {
	in  io.Reader
	err error
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.in.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		w.err = err
	}
	return n, err
}

// front are the stored bytes of a member from front to end, through the windows of its archive.
type front struct {
	s       *Store
	ctx     context.Context
	at, end int64
}

func (r *front) Read(p []byte) (int, error) {
	if p = p[:min(int64(len(p)), r.end-r.at)]; len(p) == 0 {
		return 0, io.EOF
	}
	n, err := r.s.readAt(r.ctx, p, r.at)
	r.at += int64(n)
	if n > 0 && errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}
