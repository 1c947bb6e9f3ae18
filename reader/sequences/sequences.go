// Package sequences lays out batches of packed sequences as arrays of tokens.
//
//	Order.Units of kind units.Pack ──▶ reader.Batch ──▶ Layout.Set ──▶ Tokens, Positions, Documents
//	                                                               └─▶ Boundaries, Longest, Fill
package sequences

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/shardtool/shardtool/internal/npy"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/order"
)

// Layout holds a batch as arrays: one row for each sequence, of a fixed length, with its items one
// after another and then padding. Call Set for each batch, then the other methods. A Layout reads
// the fields of the batch in place, so it is valid as long as the batch. It is for one goroutine.
type Layout struct {
	length  int
	fields  []Field
	columns []tokenColumn

	rows     int
	segments []segment
	limits   []int32 // see Boundaries
	longest  int
	content  int
}

// Field is a field with one value for each token: a .npy file with one dimension. All
// fields of a sample have as many values as the attribute with its length states.
type Field struct {
	Name string
	// Pad fills the rows. Values of an unsigned type are widened to a signed one where Pad is
	// negative.
	Pad int64
}

// segment is an item in its row.
type segment struct {
	sample   int // of the batch
	row, at  int
	document int32 // number in the row
	cut      order.Cut
}

// optionsError is a reader.ErrOptions with the text of the error that it wraps.
type optionsError struct{ error }

func (e optionsError) Unwrap() error        { return e.error }
func (e optionsError) Is(target error) bool { return target == reader.ErrOptions }

// FieldError is an error about a field of a sample.
type FieldError struct {
	Number     uint64 // of the sample in storage order
	Key, Field string
	Err        error
}

// Error names the key and the field.
func (e *FieldError) Error() string {
	return fmt.Sprintf("reader: sample %q: field %q: %v", e.Key, e.Field, e.Err)
}

// Unwrap returns Err.
func (e *FieldError) Unwrap() error { return e.Err }

// New returns the layout of sequences of a length. Fields must not be empty.
func New(length int, fields []Field) (*Layout, error) {
	if len(fields) == 0 {
		return nil, optionsError{errors.New("reader: sequences without fields: give those with one value a token")}
	}
	q := &Layout{length: length, fields: fields, columns: make([]tokenColumn, len(fields))}
	for i := range fields {
		q.columns[i].pad = fields[i].Pad
	}
	return q, nil
}

// Set lays out a batch. It checks all fields before anything of the batch is delivered: the error
// is a *FieldError for the first sample in which a field is missing, is no array of the type that
// the samples before have, or has another number of values than the
// attribute states.
func (q *Layout) Set(b *reader.Batch) error {
	if int64(b.Units)*int64(q.length) > math.MaxInt32 {
		return optionsError{fmt.Errorf("reader: a batch of %d sequences of %d tokens: give fewer, so that their tokens are below 2^31", b.Units, q.length)}
	}
	q.rows, q.longest, q.content = b.Units, 0, 0
	q.segments, q.limits = q.segments[:0], append(q.limits[:0], 0)
	for i := range q.columns {
		q.columns[i].data = q.columns[i].data[:0]
	}
	row, at, document := 0, 0, int32(0)
	for i := range b.Samples {
		s := &b.Samples[i]
		if s.Padding {
			continue
		}
		cut := b.Cut(i)
		for row < int(cut.Unit) {
			q.endRow(row, at)
			row, at, document = row+1, 0, 0
		}
		for c := range q.columns {
			if err := q.columns[c].take(s, q.fields[c].Name, &cut); err != nil {
				return &FieldError{s.Number, string(s.Key), q.fields[c].Name, err}
			}
		}
		q.segments = append(q.segments, segment{i, row, at, document, cut})
		at, document, q.content = at+int(cut.Length), document+1, q.content+int(cut.Length)
		q.bound(row*q.length + at)
	}
	for ; row < q.rows; row, at = row+1, 0 {
		q.endRow(row, at)
	}
	return nil
}

// endRow makes the rest of a row a segment.
func (q *Layout) endRow(row, at int) {
	if at < q.length {
		q.bound((row + 1) * q.length)
	}
}

func (q *Layout) bound(at int) {
	q.longest = max(q.longest, at-int(q.limits[len(q.limits)-1]))
	q.limits = append(q.limits, int32(at))
}

// Rows returns the number of sequences.
func (q *Layout) Rows() int { return q.rows }

// Boundaries returns where segments begin and end in the rows laid end to end, from 0 to
// Rows·length: the items, and the padding of each row. It is the cu_seqlens of kernels for
// sequences of variable length. It is valid until the next Set.
func (q *Layout) Boundaries() []int32 { return q.limits }

// Longest returns the length of the longest segment, padding included: max_seqlen.
func (q *Layout) Longest() int { return q.longest }

// Fill returns the share of the rows that is not padding.
func (q *Layout) Fill() float64 {
	if q.rows == 0 {
		return 0
	}
	return float64(q.content) / (float64(q.rows) * float64(q.length))
}

// Descr returns the type of the values of a field as an .npy header writes it: "<i4". It is that of
// the first batch with a sample, "<i4" before.
func (q *Layout) Descr(field int) string {
	c := &q.columns[field]
	if c.out == 0 {
		return "<i4"
	}
	if c.out == 1 {
		return fmt.Sprintf("|%c1", c.outKind())
	}
	return fmt.Sprintf("<%c%d", c.outKind(), c.out)
}

// Size returns the bytes that Tokens writes.
func (q *Layout) Size(field int) int {
	size := q.columns[field].out
	if size == 0 {
		size = 4 // as in Descr
	}
	return q.rows * q.length * size
}

// Tokens writes the values of a field, row by row, to dst, which has Size bytes.
func (q *Layout) Tokens(field int, dst []byte) {
	c := &q.columns[field]
	if c.out == 0 { // no sample yet
		clear(dst)
		return
	}
	end := 0 // of what is written, in values
	for i := range q.segments {
		s := &q.segments[i]
		at := s.row*q.length + s.at
		c.fill(dst[end*c.out : at*c.out])
		end = at + int(s.cut.Length)
		c.copy(dst[at*c.out:end*c.out], c.data[i])
	}
	c.fill(dst[end*c.out:])
}

// Positions writes the position of each token in its item, counted from the beginning of the piece,
// as little-endian int32; 0 in padding. dst has 4·Rows·length bytes.
func (q *Layout) Positions(dst []byte) {
	q.each(dst, 0, func(piece []byte, _ *segment) {
		for k := 0; k < len(piece); k += 4 {
			binary.LittleEndian.PutUint32(piece[k:], uint32(k/4))
		}
	})
}

// Documents writes the number of the item in its row for each token, from 0, as little-endian
// int32; -1 in padding. dst has 4·Rows·length bytes.
func (q *Layout) Documents(dst []byte) {
	q.each(dst, 0xFF, func(piece []byte, s *segment) {
		for k := 0; k < len(piece); k += 4 {
			binary.LittleEndian.PutUint32(piece[k:], uint32(s.document))
		}
	})
}

// each writes int32 values item by item, and a byte between them.
func (q *Layout) each(dst []byte, pad byte, write func([]byte, *segment)) {
	end := 0
	between := func(gap []byte) {
		for i := range gap {
			gap[i] = pad
		}
	}
	for i := range q.segments {
		s := &q.segments[i]
		at := 4 * (s.row*q.length + s.at)
		between(dst[end:at])
		end = at + 4*int(s.cut.Length)
		write(dst[at:end], s)
	}
	between(dst[end:])
}

// tokenColumn is the values of one field.
type tokenColumn struct {
	pad    int64
	kind   byte // of the values: i, u or f; 0 until the first
	in     int  // bytes of a value
	out    int  // bytes of a value in the rows: more where unsigned values are widened
	padded []byte
	header []byte           // of the file before
	values int64            // in its shape
	known  map[string]int64 // the values of headers of this type
	data   [][]byte         // of each segment
}

// mostHeaders bounds the headers that a column remembers: parsing one takes longer than copying a
// thousand tokens.
const mostHeaders = 1 << 14

// take takes a piece of a sample.
func (c *tokenColumn) take(s *reader.Sample, field string, cut *order.Cut) error {
	file, ok := s.Field(field)
	if !ok {
		return errors.New("the sample has no such field")
	}
	n, err := npy.HeaderLen(file[:min(len(file), npy.Lead)])
	if err == nil && n > int64(len(file)) {
		err = fmt.Errorf("an npy file of %d bytes, cut short in its header of %d", len(file), n)
	}
	if err != nil {
		return err
	}
	if header := file[:n]; c.header == nil || !bytes.Equal(c.header, header) {
		if values, ok := c.known[string(header)]; ok {
			c.header, c.values = append(c.header[:0], header...), values
		} else if err := c.newHeader(header); err != nil {
			return err
		}
	}
	values := file[n:]
	if int64(len(values)) != c.values*int64(c.in) {
		return fmt.Errorf("an npy file with %d bytes of data, its header says %d", len(values), c.values*int64(c.in))
	}
	if c.values != int64(cut.Whole) {
		return fmt.Errorf("%d values, but the index says that the sample has %d: pack the data set again, with lengths that are right", c.values, cut.Whole)
	}
	c.data = append(c.data, values[int(cut.Offset)*c.in:int(cut.Offset+cut.Length)*c.in])
	return nil
}

// newHeader learns the type and the length from a header. The type must be that of the samples
// before.
func (c *tokenColumn) newHeader(header []byte) error {
	h, err := npy.Parse(header)
	switch {
	case err != nil:
		return err
	case len(h.Shape) != 1:
		return fmt.Errorf("an array of shape %v: give one with one dimension, a value a token", h.Shape)
	case h.Kind != 'i' && h.Kind != 'u' && h.Kind != 'f' || h.Big:
		return fmt.Errorf("an array of type %q: give integers or floating point, little-endian", h.Descr)
	case c.kind != 0 && (h.Kind != c.kind || h.Size != c.in):
		return fmt.Errorf("an array of type %q, the samples before have %c%d", h.Descr, c.kind, c.in)
	}
	if c.kind == 0 {
		if err := c.newType(h.Kind, h.Size); err != nil {
			return err
		}
	}
	c.header, c.values = append(c.header[:0], header...), h.Shape[0]
	if c.known == nil || len(c.known) >= mostHeaders {
		c.known = map[string]int64{}
	}
	c.known[string(header)] = c.values
	return nil
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

// fill writes padding.
func (c *tokenColumn) fill(dst []byte) {
	if len(dst) == 0 {
		return
	}
	for n := copy(dst, c.padded); n < len(dst); n *= 2 {
		copy(dst[n:], dst[:n])
	}
}
