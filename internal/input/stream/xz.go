package stream

import (
	"bufio"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"

	"github.com/ulikunitz/xz"
	"github.com/ulikunitz/xz/lzma"
)

// maxWindow bounds the memory of a decoder. It is the window of `zstd --long=27`, and twice the
// dictionary of `xz -9`.
const maxWindow = 128 << 20

// buffer is the size of reads of stored bytes.
const buffer = 256 << 10

// errWindow means that an xz file needs a larger dictionary.
var errWindow = errors.New("the dictionary is too large")

// openXz opens an xz stream. The size of a dictionary is in the header of each block, of which the
// first is checked: the library allocates what it states, and the system commits what is used.
func openXz(raw io.Reader) (io.Reader, error) {
	end := &xzEnd{in: raw}
	in := bufio.NewReaderSize(end, buffer)
	head, _ := in.Peek(64)
	if len(head) == 64 { // a whole file has at least as many, but for an empty one
		at := xz.HeaderLen + 2 // after the size and the flags of the block
		for flag := byte(0x40); flag != 0; flag <<= 1 {
			if head[xz.HeaderLen+1]&flag == 0 {
				continue
			}
			for at < 40 && head[at] >= 0x80 { // one of the two sizes that may follow
				at++
			}
			at++
		}
		if head[at] == 0x21 && head[at+1] == 1 {
			if n, err := lzma.DecodeDictCap(head[at+2]); err != nil || n > maxWindow {
				return nil, errWindow
			}
		}
	}
	r, err := xz.NewReader(in)
	return &xzReader{r, end}, err
}

// xzReader is a stream whose end is checked: the library takes a file that is cut in the header of
// a block, or before the footer, for one that ends there.
type xzReader struct {
	*xz.Reader
	end *xzEnd
}

// Read implements io.Reader.
func (r *xzReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if errors.Is(err, io.EOF) && !r.end.whole() {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// xzEnd keeps the last bytes that were read, without the zeros of the padding.
type xzEnd struct {
	in    io.Reader
	last  []byte
	zeros int
}

// xzFooter is the size of a stream's footer: a CRC-32, six bytes that it covers, and "YZ".
const xzFooter = 12

// Read implements io.Reader.
func (e *xzEnd) Read(p []byte) (int, error) {
	n, err := e.in.Read(p)
	k := n
	for k > 0 && p[k-1] == 0 {
		k--
	}
	if k > 0 {
		e.last = append(append(e.last, make([]byte, min(e.zeros, xzFooter))...), p[max(0, k-xzFooter):k]...)
		e.last = append(e.last[:0], e.last[max(0, len(e.last)-xzFooter):]...)
		e.zeros = 0
	}
	e.zeros += n - k
	return n, err
}

// whole reports whether a footer has been read last.
func (e *xzEnd) whole() bool {
	b := e.last
	return len(b) == xzFooter && string(b[10:]) == "YZ" && crc32.ChecksumIEEE(b[4:10]) == binary.LittleEndian.Uint32(b)
}
