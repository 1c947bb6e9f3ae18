package sequences

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/shardtool/shardtool/internal/format/npy"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/order"
)

// tokenColumn is the values of one field.
type tokenColumn struct {
	pad    int64
	kind   byte // of the values: i, u or f; 0 until the first
	in     int  // bytes of a value
	out    int  // bytes of a value in the rows: more where unsigned values are widened
	padded []byte
	known  headers
	data   [][]byte // of each segment
}

// take takes a piece of a sample.
func (c *tokenColumn) take(s *reader.Sample, field string, cut *order.Cut) error {
	file, ok := s.Field(field)
	if !ok {
		return errors.New("the sample has no such field")
	}
	header, values, err := npy.Cut(file, int64(len(file)))
	if err != nil {
		return err
	}
	count, ok := c.known.count(header)
	if !ok {
		if count, err = c.newHeader(header); err != nil {
			return err
		}
	}
	if int64(len(values)) != count*int64(c.in) {
		return fmt.Errorf("an npy file with %d bytes of data, its header says %d", len(values), count*int64(c.in))
	}
	if count != int64(cut.Whole) {
		return fmt.Errorf("%d values, but the index says that the sample has %d: pack the data set again, with lengths that are right", count, cut.Whole)
	}
	c.data = append(c.data, values[int(cut.Offset)*c.in:int(cut.Offset+cut.Length)*c.in])
	return nil
}

// newHeader learns the type from a header, and returns its number of values. The type must equal
// the type of earlier samples.
func (c *tokenColumn) newHeader(header []byte) (int64, error) {
	h, err := npy.Parse(header)
	switch {
	case err != nil:
		return 0, err
	case len(h.Shape) != 1:
		return 0, fmt.Errorf("an array of shape %v: give one with one dimension, a value a token", h.Shape)
	case h.Kind != 'i' && h.Kind != 'u' && h.Kind != 'f' || h.Big:
		return 0, fmt.Errorf("an array of type %q: give integers or floating point, little-endian", h.Descr)
	case c.kind != 0 && (h.Kind != c.kind || h.Size != c.in):
		return 0, fmt.Errorf("an array of type %q, the samples before have %c%d", h.Descr, c.kind, c.in)
	}
	if c.kind == 0 {
		if err := c.newType(h.Kind, h.Size); err != nil {
			return 0, err
		}
	}
	c.known.learn(header, h.Shape[0])
	return h.Shape[0], nil
}

// newType chooses the type of the rows.
func (c *tokenColumn) newType(kind byte, size int) error {
	c.kind, c.in, c.out = kind, size, size
	if kind == 'u' && c.pad < 0 && size < 8 {
		c.out = 2 * size
	}
	c.padded = binary.LittleEndian.AppendUint64(nil, uint64(c.pad))[:min(c.out, 8)]
	fits := true
	switch {
	case kind == 'f' && size == 8:
		c.padded = binary.LittleEndian.AppendUint64(nil, math.Float64bits(float64(c.pad)))
	case kind == 'f' && size == 4:
		c.padded = binary.LittleEndian.AppendUint32(nil, math.Float32bits(float32(c.pad)))
	case kind == 'f':
		fits, c.padded = c.pad == 0, make([]byte, size)
	case c.outKind() == 'i':
		bits := uint(64 - 8*c.out)
		fits = c.pad<<bits>>bits == c.pad
	default:
		fits = c.pad >= 0 && (c.out == 8 || c.pad>>(8*c.out) == 0)
	}
	if !fits {
		kind := c.kind
		c.kind, c.out = 0, 0
		return fmt.Errorf("values of %c%d cannot be padded with %d", kind, size, c.pad)
	}
	return nil
}

// outKind is the kind of the values in the rows.
func (c *tokenColumn) outKind() byte {
	if c.out > c.in {
		return 'i'
	}
	return c.kind
}

// copy writes the values of a piece.
func (c *tokenColumn) copy(dst, src []byte) {
	if c.in == c.out {
		copy(dst, src)
		return
	}
	le := binary.LittleEndian
	switch c.in { // unsigned values: the upper half is 0
	case 1:
		for i, v := range src {
			le.PutUint16(dst[2*i:], uint16(v))
		}
	case 2:
		for i := 0; i < len(src); i += 2 {
			le.PutUint32(dst[2*i:], uint32(le.Uint16(src[i:])))
		}
	case 4:
		for i := 0; i < len(src); i += 4 {
			le.PutUint64(dst[2*i:], uint64(le.Uint32(src[i:])))
		}
	}
}

// headers recognizes headers of arrays with one dimension that differ only in their number of
// values. Parsing a header takes longer than copying a thousand tokens. Comparing needs no memory
// for each length.
type headers struct {
	before []byte                 // the text before the number of values
	after  [mostDigits + 1][]byte // the text after it, by its digits: spaces fill the header up
}

const mostDigits = 10 // of a length below 2^31

// learn remembers a header with this number of values, if it is written as NumPy writes it.
func (h *headers) learn(header []byte, count int64) {
	const key = "'shape': ("
	digits := strconv.FormatInt(count, 10)
	at := bytes.Index(header, []byte(key)) + len(key)
	if at < len(key) || len(digits) > mostDigits || !bytes.HasPrefix(header[at:], []byte(digits+",")) {
		return
	}
	if !bytes.Equal(h.before, header[:at]) {
		*h = headers{before: bytes.Clone(header[:at])}
	}
	h.after[len(digits)] = bytes.Clone(header[at+len(digits):])
}

// count returns the number of values of a header that differs from a learned header in this number
// alone.
func (h *headers) count(header []byte) (count int64, ok bool) {
	if h.before == nil || !bytes.HasPrefix(header, h.before) {
		return 0, false
	}
	rest := header[len(h.before):]
	n := 0
	for ; n < min(len(rest), mostDigits) && '0' <= rest[n] && rest[n] <= '9'; n++ {
		count = 10*count + int64(rest[n]-'0')
	}
	ok = n > 0 && (rest[0] != '0' || n == 1) && h.after[n] != nil && bytes.Equal(rest[n:], h.after[n])
	return count, ok
}
