// Package stacked answers how samples are rows of arrays (SPEC 11). A [Layout] has the arrays of a
// shard; a [Block] is a decoded block, in which the address of a row is arithmetic.
package stacked

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/npy"
)

// Stacked shards (SPEC 11) hold samples that all have the same fields, each an array of one type
// and shape. A block is one array a field, with a row for each sample.
const (
	// keyField is the member of a stacked block that holds keys which are not numbered.
	keyField = "__key__.npy"
	// MaxSamples is the most samples of a stacked shard. It bounds what an index without a byte for
	// each sample can make a reader allocate.
	MaxSamples = 1 << 24
	// maxDims is the most dimensions of a row: NumPy's limit of 64, less the dimension of the block.
	maxDims = 63
)

// rowTypes are the element types that a row may have, and their sizes in bytes.
var rowTypes = map[string]int64{
	"|b1": 1, "|i1": 1, "|u1": 1, "<i2": 2, "<u2": 2, "<f2": 2, "<i4": 4, "<u4": 4, "<f4": 4,
	"<i8": 8, "<u8": 8, "<f8": 8, "<c8": 8, "<c16": 16,
}

// Layout describes a row of a stacked shard: its fields in ascending order of names. Nil is the
// layout of an ordinary shard, whose samples may be anything.
type Layout struct {
	Fields []Field
}

// Field is a field of a stacked shard. As a sample has it, it is an NPY file: Header, then Row
// bytes.
type Field struct {
	// Name is the name of the field in a sample.
	Name string
	// DType is the element type as NumPy writes it, little-endian, such as <u2.
	DType string
	// Shape is the shape of one row; it may be empty, and has no 0.
	Shape []int64
}

// member returns the field of the block's member: Name, with .npy after it unless it is there.
func (f *Field) member() string {
	if f.Name == "npy" || strings.HasSuffix(f.Name, ".npy") {
		return f.Name
	}
	return format.JoinName(f.Name, "npy")
}

// Row returns the length of a row in bytes.
func (f *Field) Row() int64 {
	n := rowTypes[f.DType]
	for _, d := range f.Shape {
		n *= d
	}
	return n
}

// Header returns what precedes a row where it is a field of one sample.
func (f *Field) Header() []byte { return npy.AppendHeader(nil, f.DType, f.Shape...) }

// Size returns the length of the field of one sample: its header and a row.
func (f *Field) Size() int64 { return int64(len(f.Header())) + f.Row() }

// String describes the array, for errors.
func (f *Field) String() string {
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
	return slices.EqualFunc(l.Fields, o.Fields, func(a, b Field) bool {
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
		return fmt.Errorf("%w: a layout without fields", format.ErrName)
	}
	room := int64(format.MaxFrame)
	for i := range l.Fields {
		f := &l.Fields[i]
		switch {
		case f.Name == "":
			return fmt.Errorf("%w: a field without a name is not stacked", format.ErrName)
		case slices.ContainsFunc(l.Fields[:i], func(o Field) bool { return o.member() == f.member() }):
			return fmt.Errorf("%w: two fields are the array %s: give one another name", format.ErrName, f.member())
		case f.member() == keyField:
			return fmt.Errorf("%w: a stacked shard keeps keys in %s: give the field another name", format.ErrName,
				keyField)
		case i > 0 && f.Name <= l.Fields[i-1].Name:
			return fmt.Errorf("%w: field %q after %q", format.ErrName, f.Name, l.Fields[i-1].Name)
		}
		if err := format.CheckField(f.Name); err != nil {
			return err
		}
		n := rowTypes[f.DType]
		if n == 0 {
			return fmt.Errorf("%w: field %q has elements of type %q, which are not stacked", format.ErrName, f.Name,
				f.DType)
		}
		if len(f.Shape) > maxDims {
			return fmt.Errorf("%w: field %q has %d dimensions, at most %d are stacked", format.ErrTooLarge, f.Name,
				len(f.Shape), maxDims)
		}
		for _, d := range f.Shape {
			if d < 1 {
				return fmt.Errorf("%w: field %q has a dimension of %d: arrays without elements are not stacked",
					format.ErrName, f.Name, d)
			}
			if n > room/d {
				return fmt.Errorf("%w: field %q: a row of more than %d bytes is not stacked", format.ErrTooLarge,
					f.Name, int64(format.MaxFrame))
			}
			n *= d
		}
		if room -= n; room < 0 {
			return fmt.Errorf("%w: rows of more than %d bytes are not stacked", format.ErrTooLarge,
				int64(format.MaxFrame))
		}
	}
	if n := l.blockLen(1, 0); n > format.MaxFrame {
		return fmt.Errorf("%w: a block of one sample has %d bytes, at most %d are stacked", format.ErrTooLarge, n,
			int64(format.MaxFrame))
	}
	return nil
}
