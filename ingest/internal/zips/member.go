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
	"github.com/shardtool/shardtool/objstore"
)

// member is a handle of a member.
type member struct {
	s *Store
	f *zip.File

	mu    sync.Mutex
	from  *decoder // at the end of the last read from front to end
	whole []byte   // of a compressed one that is read at random
}

// Info implements objstore.Object.
func (m *member) Info(context.Context) (objstore.Info, error) { return m.s.describe(m.f), nil }

// Close implements objstore.Object.
func (m *member) Close() error { return nil }

// ReadAt implements objstore.Object. What is read from front to end is compared with the checksum
// of the archive.
func (m *member) ReadAt(ctx context.Context, p []byte, off int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	err := m.readAt(ctx, p, off)
	if err != nil {
		err = objstore.NewError("get", m.s.String(), m.f.Name, err)
	}
	return err
}

func (m *member) readAt(ctx context.Context, p []byte, off int64) error {
	size := int64(m.f.UncompressedSize64)
	if off < 0 || int64(len(p)) > size-off {
		return io.ErrUnexpectedEOF
	}
	if m.whole != nil {
		copy(p, m.whole[off:])
		return nil
	}
	if m.from == nil && off == 0 {
		from, err := m.decode()
		if err != nil {
			return err
		}
		m.from = from
	}
	if m.from != nil && m.from.pos == off {
		err := m.from.read(ctx, p)
		if err != nil {
			m.from = nil
		}
		return err
	}
	switch {
	case m.f.Method == zip.Store:
		at, err := m.f.DataOffset()
		if err == nil {
			_, err = m.s.readAt(ctx, p, at+off)
		}
		return cut(err)
	case size > random:
		return fmt.Errorf("it is compressed, has %d bytes and is not read from front to end: unpack the archive and pack the folder", size)
	}
	from, err := m.decode()
	if err != nil {
		return err
	}
	whole := make([]byte, size) // at most 1,032 times what is stored
	if err := from.read(ctx, whole); err != nil {
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

// decoder reads a member from front to end.
type decoder struct {
	f   *zip.File
	raw *raw
	in  io.Reader
	sum hash.Hash32
	pos int64
}

func (m *member) decode() (*decoder, error) {
	at, err := m.f.DataOffset()
	if err != nil {
		return nil, cut(err)
	}
	d := &decoder{f: m.f, raw: &raw{s: m.s, at: at, end: at + int64(m.f.CompressedSize64)}, sum: crc32.NewIEEE()}
	if d.in = d.raw; m.f.Method == zip.Deflate {
		const most = 1 << 20
		d.in = flate.NewReader(bufio.NewReaderSize(d.raw, int(min(most, m.f.CompressedSize64+16))))
	}
	return d, nil
}

// read fills p. At the end it compares the length and the checksum.
func (d *decoder) read(ctx context.Context, p []byte) error {
	d.raw.ctx = ctx
	n, err := io.ReadFull(d.in, p)
	d.sum.Write(p[:n])
	d.pos += int64(n)
	if err != nil && !errors.Is(err, io.EOF) || len(p) > 0 && n < len(p) {
		return d.damaged(err)
	}
	if d.pos < int64(d.f.UncompressedSize64) {
		return nil
	}
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
	return nil
}

// damaged returns the store's error if there is one.
func (d *decoder) damaged(err error) error {
	if d.raw.err != nil {
		return cut(d.raw.err)
	}
	return fmt.Errorf("%w: %w; fetch or make the archive again", format.ErrCorrupt, err)
}

// raw are the stored bytes of a member.
type raw struct {
	s       *Store
	ctx     context.Context
	at, end int64
	err     error
}

func (r *raw) Read(p []byte) (int, error) {
	if p = p[:min(int64(len(p)), r.end-r.at)]; len(p) == 0 {
		return 0, io.EOF
	}
	n, err := r.s.readAt(r.ctx, p, r.at)
	r.at += int64(n)
	if n > 0 && errors.Is(err, io.EOF) {
		err = nil
	}
	if err != nil {
		r.err = err
	}
	return n, err
}
