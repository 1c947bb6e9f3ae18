// Package stream reads files of a store from front to back, plain or compressed: what sources of text need.
package stream

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/objstore"
)

// Coding is how a file is compressed.
type Coding int

// The codings that are read.
const (
	Plain Coding = iota
	Gzip
	Zstd
)

// suffixes are those that say how a file is compressed.
var suffixes = []struct {
	text   string
	coding Coding
}{{".gz", Gzip}, {".zst", Zstd}, {".zstd", Zstd}}

// CutSuffix goes by a file's name, in letters of either case; rest is the name without what says so.
func CutSuffix(name string) (rest string, coding Coding) {
	for _, s := range suffixes {
		if n := len(name) - len(s.text); n > 0 && strings.EqualFold(name[n:], s.text) {
			return name[:n], s.coding
		}
	}
	return name, Plain
}

// maxWindow bounds what a zstd file makes its decoder hold: that of `zstd --long=27`.
const maxWindow = 128 << 20

// Stream is the decoded bytes of a file. It is for one goroutine.
type Stream struct {
	raw    *ranges
	r      io.Reader
	coding Coding
	unzip  io.Closer
	off    int64 // decoded
}

// Open begins at an offset in the decoded bytes of an object of so many stored bytes. Of a
// compressed one all before it is decoded, too. What is read of a remote object from its front to
// its end is compared with the checksum that the store keeps. The object stays the caller's. Reads
// end when ctx does.
func Open(ctx context.Context, obj objstore.Object, size int64, remote bool, coding Coding, off int64) (*Stream, error) {
	ctx, cancel := context.WithCancel(ctx)
	s := &Stream{raw: &ranges{ctx: ctx, cancel: cancel, obj: obj, size: size, remote: remote}, coding: coding}
	if coding == Plain {
		s.raw.off, s.off, s.r = min(off, size), off, s.raw
	}
	if err := s.raw.verify(); err != nil || coding == Plain {
		if err != nil {
			s.Close()
			return nil, err
		}
		return s, nil
	}
	in := bufio.NewReaderSize(s.raw, 256<<10)
	var err error
	switch coding {
	case Gzip:
		var z *gzip.Reader
		if z, err = gzip.NewReader(in); err == nil {
			s.r, s.unzip = z, z
		}
	default:
		var z *zstd.Decoder
		if _, err = in.Peek(1); err == nil { // nothing at all is no frame
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
			err = fmt.Errorf("%w: it has %d bytes, and more were read before", objstore.ErrChanged, s.off)
		}
		return nil, err
	}
	return s, nil
}

// Read is io.Reader's. A file that was cut, or whose checksum does not match, is an error that wraps format.ErrCorrupt; other
// errors are the store's.
func (s *Stream) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	s.off += int64(n)
	if err != nil && (s.coding != Plain || !errors.Is(err, io.EOF)) {
		err = s.fail(err)
	}
	return n, err
}

// fail says what is wrong: the store, or what it gave.
func (s *Stream) fail(err error) error {
	name := map[Coding]string{Gzip: "gzip", Zstd: "zstd"}[s.coding]
	switch {
	case s.raw.err != nil:
		return s.raw.err
	case errors.Is(err, io.EOF) && s.r != nil:
		return io.EOF
	case errors.Is(err, zstd.ErrWindowSizeExceeded):
		return fmt.Errorf("%w: it was compressed with a window above %d MiB, which takes as much memory to read: make another file of it with `zstd -dc --long=31 FILE | zstd -o NEW`",
			format.ErrTooLarge, maxWindow>>20)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%w: its %s stream was cut behind %d decoded bytes: %w; fetch or make the file again", format.ErrCorrupt, name, s.off, io.ErrUnexpectedEOF)
	}
	return fmt.Errorf("%w: its %s stream is damaged behind %d decoded bytes: %w; fetch or make the file again", format.ErrCorrupt, name, s.off, err)
}

// Close ends reading. It joins what it began.
func (s *Stream) Close() {
	if s.unzip != nil {
		s.unzip.Close()
	}
	s.raw.close()
}
