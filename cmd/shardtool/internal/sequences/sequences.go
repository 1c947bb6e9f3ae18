// Package sequences lays out batches of packed sequences as arrays of tokens.
//
//	Order.Units of kind units.Pack ──▶ reader.Batch ──▶ Layout.Set ──▶ Tokens, Positions, Documents
//	                                                               └─▶ Boundaries, Longest, Fill
package sequences

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/shardtool/shardtool/internal/sys/plain"
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

	counted  []byte // 0, 1, 2 … up to length, as little-endian int32
	rows     int
	segments []segment
	limits   []int32 // see Boundaries
	longest  int
	content  int
}

// Field is a field with one value for each token: a .npy file with one dimension. All
// fields of a sample have as many values as the attribute with its length states.
type Field struct {
	Name string `json:"name"`
	// Pad fills the rows. Values of an unsigned type are widened to a signed one where Pad is
	// negative.
	Pad int64 `json:"pad"`
}

// segment is an item in its row.
type segment struct {
	sample   int // of the batch
	row, at  int
	document int32 // number in the row
	cut      order.Cut
}

// FieldError is an error about a field of a sample.
type FieldError struct {
	Number     uint64 // of the sample in storage order
	Key, Field string
	Err        error
}

// Error names the key and the field.
func (e *FieldError) Error() string {
	return fmt.Sprintf("sample %q: field %q: %v", e.Key, e.Field, e.Err)
}

// Unwrap returns Err.
func (e *FieldError) Unwrap() error { return e.Err }

// New returns the layout of sequences of a length. Fields must not be empty.
func New(length int, fields []Field) (*Layout, error) {
	if len(fields) == 0 {
		return nil, fmt.Errorf("sequences without fields: give those with one value a token%w",
			plain.Silent(reader.ErrOptions))
	}
	q := &Layout{length: length, fields: fields, columns: make([]tokenColumn, len(fields))}
	for i := range fields {
		q.columns[i].pad = fields[i].Pad
	}
	return q, nil
}

// Set lays out a batch. It checks all fields before anything of the batch is delivered. The error
// is a *FieldError for the first sample in which a field is missing, is not an array of the type
// that earlier samples have, or has another number of values than the attribute states.
func (q *Layout) Set(b *reader.Batch) error {
	if int64(b.Units)*int64(q.length) > math.MaxInt32 {
		return fmt.Errorf("a batch of %d sequences of %d tokens: give fewer, so that their tokens are below 2^31%w",
			b.Units, q.length, plain.Silent(reader.ErrOptions))
	}
	q.rows, q.longest, q.content = b.Units, 0, 0
	q.segments, q.limits = q.segments[:0], append(q.limits[:0], 0)
	for i := range q.columns {
		q.columns[i].data = q.columns[i].data[:0]
	}
	row, at, document := 0, 0, int32(0)
	for i := range b.Samples {
		s := &b.Samples[i]
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

// Descr returns the type of the values of a field as an .npy header writes it: "<i4". It is the
// type of the first batch with a sample, "<i4" before.
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
		fill(dst[end*c.out:at*c.out], c.padded)
		end = at + int(s.cut.Length)
		c.copy(dst[at*c.out:end*c.out], c.data[i])
	}
	fill(dst[end*c.out:], c.padded)
}

// Positions writes the position of each token in its item, counted from the beginning of the piece,
// as little-endian int32; 0 in padding. dst has 4·Rows·length bytes.
func (q *Layout) Positions(dst []byte) {
	longest := 0
	for i := range q.segments {
		longest = max(longest, int(q.segments[i].cut.Length))
	}
	for n := len(q.counted) / 4; n < longest; n++ {
		q.counted = binary.LittleEndian.AppendUint32(q.counted, uint32(n))
	}
	q.each(dst, 0, func(piece []byte, _ *segment) { copy(piece, q.counted) })
}

// Documents writes the number of the item in its row for each token, from 0, as little-endian
// int32; -1 in padding. dst has 4·Rows·length bytes.
func (q *Layout) Documents(dst []byte) {
	q.each(dst, -1, func(piece []byte, s *segment) { fillInt32(piece, s.document) })
}

// each writes int32 values item by item, and a value between them.
func (q *Layout) each(dst []byte, pad int32, write func([]byte, *segment)) {
	end := 0
	for i := range q.segments {
		s := &q.segments[i]
		at := 4 * (s.row*q.length + s.at)
		fillInt32(dst[end:at], pad)
		end = at + 4*int(s.cut.Length)
		write(dst[at:end], s)
	}
	fillInt32(dst[end:], pad)
}

// fillInt32 repeats a little-endian value.
func fillInt32(dst []byte, v int32) {
	var pattern [4]byte
	binary.LittleEndian.PutUint32(pattern[:], uint32(v))
	fill(dst, pattern[:])
}

// fill repeats a pattern.
func fill(dst, pattern []byte) {
	if len(dst) == 0 {
		return
	}
	for n := copy(dst, pattern); n < len(dst); n *= 2 {
		copy(dst[n:], dst[:n])
	}
}
