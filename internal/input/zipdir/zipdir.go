// Package zipdir reads the list of members of a zip archive, and allocates no more for it than the
// archive justifies.
package zipdir

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/shardtool/shardtool/format"
)

const (
	// Inflated is the number of bytes that a byte of Deflate decodes to at most.
	Inflated = 1032

	endLen  = 22 // of the record at the end, without its comment
	least   = 46 // bytes of a member in the list
	local   = 30 // bytes before a member, without its name
	endings = 65 << 10
	// beside is more than what archive/zip reads besides the list.
	beside = 128 << 10
)

// Open reads the list of an archive of size bytes. Lists of more than maxMembers members or
// maxBytes bytes wrap format.ErrTooLarge. An archive that is cut, whose members need more bytes
// than it has, or can decompress to less than they state, wraps format.ErrCorrupt. Errors of r,
// other than io.EOF, are returned as they are.
func Open(r io.ReaderAt, size int64, maxMembers int, maxBytes int64) (*zip.Reader, error) {
	b := &bounded{r: r, left: math.MaxInt64}
	members, list := b.end(size)
	switch {
	case members > uint64(maxMembers):
		return nil, fmt.Errorf("%w: it holds %d members, more than %d", format.ErrTooLarge, members, maxMembers)
	case list > uint64(maxBytes):
		return nil, fmt.Errorf("%w: its list of members takes %d bytes, more than %d", format.ErrTooLarge, list,
			maxBytes)
	case members > list/least:
		return nil, fmt.Errorf("%w: it states %d members in a list of %d bytes", format.ErrCorrupt, members, list)
	}
	b.left = int64(list) + beside
	z, err := zip.NewReader(b, size)
	b.over = true
	switch {
	case b.err != nil:
		return nil, b.err
	case err != nil:
		return nil, fmt.Errorf("%w: it is not a zip archive, or it is cut off: %w", format.ErrCorrupt, err)
	case len(z.File) > maxMembers: // what it states is the number modulo 65,536
		return nil, fmt.Errorf("%w: it holds %d members, more than %d", format.ErrTooLarge, len(z.File), maxMembers)
	}
	left := uint64(size)
	for _, f := range z.File {
		head := local + uint64(len(f.Name))
		switch {
		case f.CompressedSize64 > left || head > left-f.CompressedSize64:
			return nil, fmt.Errorf("%w: its members overlap at %.100q: it is damaged, or a zip bomb", format.ErrCorrupt,
				f.Name)
		case f.UncompressedSize64/Inflated > f.CompressedSize64:
			return nil, fmt.Errorf("%w: member %.100q states %d bytes, more than its %d can decompress to: it is damaged, or a zip bomb",
				format.ErrCorrupt, f.Name, f.UncompressedSize64, f.CompressedSize64)
		}
		left -= head + f.CompressedSize64
	}
	return z, nil
}

// bounded reads no more than left bytes of an archive until its list is over, and keeps the error
// of r.
type bounded struct {
	r    io.ReaderAt
	left int64
	over bool
	err  error
}

// ReadAt implements io.ReaderAt.
func (b *bounded) ReadAt(p []byte, off int64) (int, error) {
	if b.over { // a member; many may be read at a time
		return b.r.ReadAt(p, off)
	}
	if b.left -= int64(len(p)); b.left < 0 {
		return 0, errors.New("its list of members is longer than it states")
	}
	n, err := b.r.ReadAt(p, off)
	if err != nil && !errors.Is(err, io.EOF) {
		b.err = err
	}
	return n, err
}

// end returns the number of members and the bytes of the list that the record at the end states. It
// finds the record as archive/zip does, which reports one that is missing or damaged.
func (b *bounded) end(size int64) (members, list uint64) {
	tail := make([]byte, min(size, endings))
	from := size - int64(len(tail))
	if n, _ := b.ReadAt(tail, from); n < len(tail) {
		return 0, 0
	}
	at := bytes.LastIndex(tail[:max(0, len(tail)-endLen+4)], []byte("PK\x05\x06"))
	if at < 0 {
		return 0, 0
	}
	le := binary.LittleEndian
	members, list = uint64(le.Uint16(tail[at+10:])), uint64(le.Uint32(tail[at+12:]))
	if members != math.MaxUint16 && list != math.MaxUint16 && le.Uint32(tail[at+16:]) != math.MaxUint32 {
		return members, list
	}
	locator, large := make([]byte, 20), make([]byte, 56) // of zip64
	if n, _ := b.ReadAt(locator, from+int64(at)-20); n < 20 || !bytes.HasPrefix(locator, []byte("PK\x06\x07")) ||
		le.Uint32(locator[4:]) != 0 || le.Uint32(locator[16:]) != 1 {
		return members, list
	}
	if n, _ := b.ReadAt(large, int64(le.Uint64(locator[8:]))); n < len(large) ||
		!bytes.HasPrefix(large, []byte("PK\x06\x06")) {
		return members, list
	}
	return le.Uint64(large[32:]), le.Uint64(large[40:])
}
