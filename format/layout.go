package format

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/shardtool/shardtool/internal/npy"
)

// Stacked shards (SPEC 11) hold samples that all have the same fields, each an array of one type
// and shape. A block is one array a field, with a row for each sample.
const (
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
	return slices.EqualFunc(l.Fields, o.Fields, func(a, b RowField) bool {
		return a.Name == b.Name && a.DType == b.DType && slices.Equal(a.Shape, b.Shape)
	})
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
