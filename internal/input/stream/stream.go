// Package stream reads objects of a store from front to back and decompresses them.
package stream

import (
	"bufio"
	"compress/bzip2"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/objstore"
)

// Coding is the compression of a file.
type Coding int

// The supported codings.
const (
	Plain Coding = iota
	Gzip
	Zstd
	Bzip2
	Xz
	Lz4
)

var names = [...]string{Gzip: "gzip", Zstd: "zstd", Bzip2: "bzip2", Xz: "xz", Lz4: "lz4"}

// suffixes are the file name extensions of codings.
var suffixes = []struct {
	text   string
	coding Coding
}{{".gz", Gzip}, {".zst", Zstd}, {".zstd", Zstd}, {".bz2", Bzip2}, {".xz", Xz}, {".lz4", Lz4}}

// CutSuffix returns the coding that a file's name implies, ignoring case, and the name without that
// extension.
func CutSuffix(name string) (rest string, coding Coding) {
	for _, s := range suffixes {
		if n := len(name) - len(s.text); n > 0 && strings.EqualFold(name[n:], s.text) {
			return name[:n], s.coding
		}
	}
	return name, Plain
}

// Stream is the decoded content of a file. It is not safe for concurrent use.
type Stream struct {
	raw    *ranges
	r      io.Reader
	coding Coding
	zstd   *zstd.Decoder // r, if it must be closed
	off    int64         // of decoded bytes
}

// Open opens an object of size stored bytes at offset off of its decoded content. Everything before
// the offset of a compressed file is decoded too. If a remote object is read from front to end, its
// bytes are compared with the checksum that the store keeps. The caller must Close the Stream and
// keep obj open until then. Reads fail when ctx ends.
func Open(ctx context.Context, obj objstore.Object, size int64, remote bool, coding Coding,
	off int64) (*Stream, error) {
	ctx, cancel := context.WithCancel(ctx)
	s := &Stream{raw: &ranges{ctx: ctx, cancel: cancel, obj: obj, size: size, remote: remote}, coding: coding}
	if coding == Plain {
		s.raw.off, s.off, s.r = min(off, size), off, s.raw
		if _, ok := obj.(sequential); ok {
			s.raw.off = off
		}
	}
	err := s.raw.verify()
	if err == nil && coding != Plain {
		err = s.decode(off)
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// decode opens the decoder and skips to an offset.
func (s *Stream) decode(off int64) error {
	in := bufio.NewReaderSize(s.raw, buffer)
	_, err := in.Peek(1) // an empty file has no stream
	if err == nil {
		err = s.open(in)
	}
	if err != nil {
		return s.fail(err)
	}
	if _, err = io.CopyN(io.Discard, s, off); errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: it has %d bytes, fewer than before", objstore.ErrChanged, s.off)
	}
	return err
}

// open sets the decoder of in.
func (s *Stream) open(in *bufio.Reader) (err error) {
	var r io.Reader
	switch s.coding {
	case Gzip:
		r, err = gzip.NewReader(in)
	case Bzip2:
		r = bzip2.NewReader(in)
	case Xz:
		r, err = openXz(in)
	case Lz4:
		r = lz4.NewReader(in)
	default:
		s.zstd, err = zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
		r = s.zstd
	}
	if err == nil {
		s.r = r
	}
	return err
}

// Read implements io.Reader. The error of a truncated file or of a checksum that does not match
// wraps format.ErrCorrupt; other errors come from the store.
func (s *Stream) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	s.off += int64(n)
	if err != nil && (s.coding != Plain || !errors.Is(err, io.EOF)) {
		err = s.fail(err)
	}
	return n, err
}

// fail returns the store's error if there is one, else it explains the decoder's.
func (s *Stream) fail(err error) error {
	name := names[s.coding]
	switch {
	case s.raw.err != nil:
		return s.raw.err
	case errors.Is(err, io.EOF) && s.r != nil:
		return io.EOF
	case errors.Is(err, zstd.ErrWindowSizeExceeded):
		return fmt.Errorf("%w: it was compressed with a window above %d MiB, and needs as much memory to read: convert it with `zstd -dc --long=31 FILE | zstd -o NEW`",
			format.ErrTooLarge, maxWindow>>20)
	case errors.Is(err, errWindow):
		return fmt.Errorf("%w: it was compressed with a dictionary above %d MiB, and needs as much memory to read: convert it with `xz -dc FILE | xz -9 > NEW`",
			format.ErrTooLarge, maxWindow>>20)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%w: its %s stream is truncated after %d decoded bytes: %w; fetch or make the file again",
			format.ErrCorrupt, name, s.off, io.ErrUnexpectedEOF)
	}
	return fmt.Errorf("%w: its %s stream is damaged after %d decoded bytes: %w; fetch or make the file again",
		format.ErrCorrupt, name, s.off, err)
}

// Stored returns how many stored bytes were read.
func (s *Stream) Stored() int64 { return s.raw.off }

// Close stops reading and waits for the requests in flight.
func (s *Stream) Close() {
	if s.zstd != nil {
		s.zstd.Close()
	}
	s.raw.close()
}
