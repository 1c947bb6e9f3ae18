package format

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/shardtool/shardtool/internal/npy"
)

// Stacked shards (SPEC 11) hold samples that all have the same fields, each an array of one type
// and shape. A block is one array a field, with a row for each sample.
const (
	typeLayout = "LAYT" // what rows are: of a shard in its index, of the shards of a part in tables
	// layoutStacked is the only kind of layout so far.
	layoutStacked = 1
	// keyField is the member of a stacked block that holds keys which are not numbered.
	keyField = "__key__.npy"
	// MaxStacked is the most samples of a stacked shard. It bounds what an index without a byte for
	// each sample can make a reader allocate.
	MaxStacked = 1 << 24
	// maxDims is the most dimensions of a row: NumPy's limit of 64 less that of the block.
	maxDims = 63
)

// rowTypes are the element types that a row may have, and their sizes in bytes.
var rowTypes = map[string]int64{
	"|b1": 1, "|i1": 1, "|u1": 1, "<i2": 2, "<u2": 2, "<f2": 2, "<i4": 4, "<u4": 4, "<f4": 4,
	"<i8": 8, "<u8": 8, "<f8": 8, "<c8": 8, "<c16": 16,
}

// Layout is what a row of a stacked shard is: its fields in ascending order of names. Nil is the
// layout of an ordinary shard, whose samples may be anything.
type Layout struct {
	Fields []RowField
}

// RowField is a field of a stacked shard. As a sample has it, it is an NPY file: Header, then Row
// bytes.
type RowField struct {
	// Name is that of the field in a sample.
	Name string
	// DType is the element type as NumPy writes it, little-endian, such as <u2.
	DType string
	// Shape is that of one row; it may be empty, and has no 0.
	Shape []int64
}

// member returns the field of the block's member: Name, with .npy after it unless it is there.
func (f *RowField) member() string {
	if f.Name == "npy" || strings.HasSuffix(f.Name, ".npy") {
		return f.Name
	}
	return JoinName(f.Name, "npy")
}

// Row returns the length of a row in bytes.
func (f *RowField) Row() int64 {
	n := rowTypes[f.DType]
	for _, d := range f.Shape {
		n *= d
	}
	return n
}

// Header returns what precedes a row where it is a field of one sample.
func (f *RowField) Header() []byte { return npy.AppendHeader(nil, f.DType, f.Shape...) }

// Size returns the length of the field of one sample: its header and a row.
func (f *RowField) Size() int64 { return int64(len(f.Header())) + f.Row() }

// String describes the array, for errors.
func (f *RowField) String() string {
	text := make([]string, len(f.Shape))
	for i, d := range f.Shape {
		text[i] = strconv.FormatInt(d, 10)
	}
	return fmt.Sprintf("%s (%s)", f.DType, strings.Join(text, ", "))
}

// Equal reports whether two layouts are the same. Both may be nil.
func (l *Layout) Equal(o *Layout) bool {
	if l == nil || o == nil {
		return l == o
	}
	return string(l.append(nil)) == string(o.append(nil))
}

// Row returns the length of a sample's rows in bytes: what it adds to a block.
func (l *Layout) Row() (n int64) {
	for i := range l.Fields {
		n += l.Fields[i].Row()
	}
	return n
}

// Check returns an error that wraps ErrName or ErrTooLarge unless blocks can have this layout.
func (l *Layout) Check() error {
	if len(l.Fields) == 0 {
		return fmt.Errorf("%w: a layout without fields", ErrName)
	}
	room := int64(MaxFrame)
	for i := range l.Fields {
		f := &l.Fields[i]
		switch {
		case f.Name == "":
			return fmt.Errorf("%w: a field without a name is not stacked", ErrName)
		case slices.ContainsFunc(l.Fields[:i], func(o RowField) bool { return o.member() == f.member() }):
			return fmt.Errorf("%w: two fields are the array %s: give one another name", ErrName, f.member())
		case f.member() == keyField:
			return fmt.Errorf("%w: a stacked shard keeps keys in %s: give the field another name", ErrName, keyField)
		case i > 0 && f.Name <= l.Fields[i-1].Name:
			return fmt.Errorf("%w: field %q after %q", ErrName, f.Name, l.Fields[i-1].Name)
		}
		if err := CheckField(f.Name); err != nil {
			return err
		}
		n := rowTypes[f.DType]
		if n == 0 {
			return fmt.Errorf("%w: field %q has elements of type %q, which are not stacked", ErrName, f.Name, f.DType)
		}
		if len(f.Shape) > maxDims {
			return fmt.Errorf("%w: field %q has %d dimensions, at most %d are stacked", ErrTooLarge, f.Name, len(f.Shape), maxDims)
		}
		for _, d := range f.Shape {
			if d < 1 {
				return fmt.Errorf("%w: field %q has a dimension of %d: arrays without elements are not stacked", ErrName, f.Name, d)
			}
			if n > room/d {
				return fmt.Errorf("%w: field %q: a row of more than %d bytes is not stacked", ErrTooLarge, f.Name, int64(MaxFrame))
			}
			n *= d
		}
		if room -= n; room < 0 {
			return fmt.Errorf("%w: rows of more than %d bytes are not stacked", ErrTooLarge, int64(MaxFrame))
		}
	}
	if n := l.blockLen(1, 0); n > MaxFrame {
		return fmt.Errorf("%w: a block of one sample has %d bytes, at most %d are stacked", ErrTooLarge, n, int64(MaxFrame))
	}
	return nil
}

// append encodes a layout. A nil one is not encoded.
func (l *Layout) append(dst []byte) []byte {
	dst = appendUint32(dst, layoutStacked)
	dst = appendUint32(dst, uint32(len(l.Fields)))
	for i := range l.Fields {
		f := &l.Fields[i]
		dst = appendString(appendString(dst, f.Name), f.DType)
		dst = append(dst, byte(len(f.Shape)))
		for _, d := range f.Shape {
			dst = binary.LittleEndian.AppendUint64(dst, uint64(d))
		}
	}
	return dst
}

// readLayout decodes a layout and checks it.
func readLayout(r *fieldReader) (*Layout, error) {
	kind, n := r.u32(), r.u32()
	if r.err == nil && kind != layoutStacked {
		return nil, fmt.Errorf("%w: layout of kind %d: use a newer shardtool", ErrVersion, kind)
	}
	l := &Layout{}
	for range n {
		f := RowField{Name: r.str(), DType: r.str()}
		for range r.u8() {
			d := r.u64()
			if d > MaxFrame {
				return nil, corruptf("field %q has a dimension of %d", f.Name, d)
			}
			f.Shape = append(f.Shape, int64(d))
		}
		if r.err != nil {
			break
		}
		l.Fields = append(l.Fields, f)
	}
	if r.err != nil {
		return nil, r.err
	}
	if err := l.Check(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return l, nil
}

// decodeLayout decodes the section of a shard, whose samples have these fields.
func decodeLayout(raw []byte, s *Schema) (*Layout, error) {
	r := fieldReader{src: raw}
	l, err := readLayout(&r)
	if err == nil {
		err = r.end()
	}
	if err != nil {
		return nil, fmt.Errorf("section %s: %w", typeLayout, err)
	}
	same := len(l.Fields) == len(s.Fields) && len(s.Shapes) == 1 && len(s.Shapes[0]) == len(s.Fields)
	for i := range l.Fields {
		same = same && l.Fields[i].Name == s.Fields[i]
	}
	if !same {
		return nil, corruptf("section %s has other fields than section %s", typeLayout, typeSchema)
	}
	return l, nil
}

// least returns the fewest decoded bytes of a block that n samples take.
func (l *Layout) least(n uint64) uint64 {
	if l == nil {
		return n * tarBlock
	}
	return n * uint64(l.Row())
}
