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

// Suffixes lists the file name extensions of codings.
var Suffixes = []string{".gz", ".zst", ".zstd", ".bz2", ".xz", ".lz4"}

var codings = [...]Coding{Gzip, Zstd, Zstd, Bzip2, Xz, Lz4}

// CutSuffix returns the coding that a file's name implies, ignoring case, and the name without that
// extension.
func CutSuffix(name string) (rest string, coding Coding) {
	for i, s := range Suffixes {
		if n := len(name) - len(s); n > 0 && strings.EqualFold(name[n:], s) {
			return name[:n], codings[i]
		}
	}
	return name, Plain
}

// Stream is the decoded content of a file. It is not safe for concurrent use.
type Stream struct {
	raw    *ranges
	r      io.Reader
	coding Coding
	unzip  io.Closer
	off    int64 // of decoded bytes
}

// Open opens an object of size stored bytes at offset off of its decoded content. Everything before
// the offset of a compressed file is decoded too. If a remote object is read from front to end, its
// bytes are compared with the checksum that the store keeps. The caller must Close the Stream and
// keep obj open until then. Reads fail when ctx ends.
func Open(ctx context.Context, obj objstore.Object, size int64, remote bool, coding Coding, off int64) (*Stream, error) {
	ctx, cancel := context.WithCancel(ctx)
	s := &Stream{raw: &ranges{ctx: ctx, cancel: cancel, obj: obj, size: size, remote: remote}, coding: coding}
	if coding == Plain {
		s.raw.off, s.off, s.r = min(off, size), off, s.raw
		if _, ok := obj.(sequential); ok {
			s.raw.off = off
		}
	}
	if err := s.raw.verify(); err != nil || coding == Plain {
		if err != nil {
			s.Close()
			return nil, err
		}
		return s, nil
	}
	in := bufio.NewReaderSize(s.raw, buffer)
	var err error
	switch coding {
	case Gzip:
		var z *gzip.Reader
		if z, err = gzip.NewReader(in); err == nil {
			s.r, s.unzip = z, z
		}
	case Bzip2:
		if _, err = in.Peek(1); err == nil { // an empty file is not a stream
			s.r = bzip2.NewReader(in)
		}
	case Xz:
		s.r, err = openXz(s.raw)
	case Lz4:
		if _, err = in.Peek(1); err == nil {
			s.r = lz4.NewReader(in)
		}
	default:
		var z *zstd.Decoder
		if _, err = in.Peek(1); err == nil { // an empty file is not a frame
			z, err = zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
		}
		if err == nil {
			s.r, s.unzip = z, z.IOReadCloser()
		}
	}
	if err != nil {
		err = s.fail(err)
		s.Close()
		return nil, err
	}
	if _, err := io.CopyN(io.Discard, s, off); err != nil {
		s.Close()
		if errors.Is(err, io.EOF) {
			err = fmt.Errorf("%w: it has %d bytes, fewer than before", objstore.ErrChanged, s.off)
		}
		return nil, err
	}
	return s, nil
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
		return fmt.Errorf("%w: its %s stream is truncated after %d decoded bytes: %w; fetch or make the file again", format.ErrCorrupt, name, s.off, io.ErrUnexpectedEOF)
	}
	return fmt.Errorf("%w: its %s stream is damaged after %d decoded bytes: %w; fetch or make the file again", format.ErrCorrupt, name, s.off, err)
}

// Close stops reading and waits for the requests in flight.
func (s *Stream) Close() {
	if s.unzip != nil {
		s.unzip.Close()
	}
	s.raw.close()
}
