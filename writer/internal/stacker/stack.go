// Package stacker makes rows of samples: it learns the types and shapes of a sample's arrays from
// their NPY headers, and takes the rows out of samples with the same types and shapes.
//
//	first sample ──Learn──▶ Stack (stacked.Layout)
//	each sample  ──Fits (names, sizes)──▶ laid out ──Row (header)──▶ row of a stacked.Block
package stacker

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"slices"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/hint"
	"github.com/shardtool/shardtool/internal/format/npy"
	"github.com/shardtool/shardtool/internal/format/stacked"
)

// ErrRow reports that a sample cannot be a row, or not one of the rows before it.
var ErrRow = hint.New("the sample cannot be stacked; the layout of samples stores it",
	hint.Set("layout", "samples", ""), hint.Set("layout", "auto", ""))

// File is a field of a sample: an NPY file, or its beginning.
type File struct {
	Name string
	Size int64
	// First is the beginning of the file: all of the header.
	First []byte
}

// Stack is what the rows of consecutive samples are. It is not changed after Learn.
type Stack struct {
	Layout *stacked.Layout

	sizes []int64  // of the files of the first sample
	heads [][]byte // their headers
	made  []int64  // sizes of the files that a reader makes
	row   int64
}

// Learn returns the stack whose first sample has these fields, in ascending order of names. Its
// errors wrap ErrRow.
func Learn(files []File) (*Stack, error) {
	s := &Stack{Layout: &stacked.Layout{}}
	for i := range files {
		f := &files[i]
		field, head, err := parse(f)
		if err != nil {
			return nil, fmt.Errorf("%w: field %q: %w", ErrRow, f.Name, err)
		}
		s.Layout.Fields = append(s.Layout.Fields, field)
		s.sizes, s.heads = append(s.sizes, f.Size), append(s.heads, slices.Clone(head))
		s.made = append(s.made, field.Size())
	}
	if err := s.Layout.Check(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRow, err)
	}
	for i := range files {
		if err := s.whole(i, int64(len(s.heads[i])), files[i].Size); err != nil {
			return nil, err
		}
	}
	if s.row = s.Layout.Row(); s.row > format.MaxFrame-s.Headers() {
		return nil, fmt.Errorf("%w: %w: rows of %d bytes", ErrRow, format.ErrTooLarge, s.row)
	}
	return s, nil
}

// Of returns the stack of a layout, whose files have the headers that a reader makes.
func Of(l *stacked.Layout) *Stack {
	s := &Stack{Layout: l, row: l.Row()}
	for i := range l.Fields {
		f := &l.Fields[i]
		s.sizes, s.heads = append(s.sizes, f.Size()), append(s.heads, f.Header())
		s.made = append(s.made, f.Size())
	}
	return s
}

// whole checks that a file of size bytes holds its row, after the header.
func (s *Stack) whole(i int, head, size int64) error {
	f := &s.Layout.Fields[i]
	if want := head + f.Row(); size != want {
		return fmt.Errorf("%w: field %q: %w: an array %s has %d bytes, not %d: it is truncated, or bytes follow it",
			ErrRow, f.Name, format.ErrCorrupt, f.String(), want, size)
	}
	return nil
}

// parse reads the header of an array that is to become a row.
func parse(f *File) (field stacked.Field, head []byte, err error) {
	if !bytes.HasPrefix(f.First, []byte(npy.Magic)) && path.Ext("."+f.Name) != ".npy" {
		return field, nil, errors.New("it is not an .npy file: only arrays of numbers and truth values are stacked")
	}
	h, rest, err := npy.Read(f.First, f.Size)
	switch {
	case err != nil:
		return field, nil, fmt.Errorf("%w: %w", format.ErrCorrupt, err)
	case h.Kind == 0 || h.Kind == 'O' || h.Size == 0:
		return field, nil, fmt.Errorf("its elements are of type %s: only numbers and truth values are stacked", h.Descr)
	case h.Big && h.Size > 1:
		return field, nil, fmt.Errorf("its elements are big-endian (%s)", h.Descr)
	case h.Fortran && len(h.Shape) > 1:
		return field, nil, errors.New("its first dimension varies fastest (Fortran order)")
	}
	field = stacked.Field{Name: f.Name, DType: descr(h), Shape: h.Shape}
	return field, f.First[:len(f.First)-len(rest)], nil
}

// descr returns the type as SPEC 11 has it: elements of one byte have no order.
func descr(h npy.Header) string {
	order := "<"
	if h.Size == 1 {
		order = "|"
	}
	return fmt.Sprintf("%s%c%d", order, h.Kind, h.Size)
}

// FieldSize returns the length of the i-th field of a sample as a reader makes it.
func (s *Stack) FieldSize(i int) int64 { return s.made[i] }

// RowLen returns the length of a row: all fields together.
func (s *Stack) RowLen() int64 { return s.row }

// Fits returns an error that wraps ErrRow unless a sample has the fields of the first one, with the
// same sizes. Headers are compared by Row.
func (s *Stack) Fits(n int, field func(i int) (name string, size int64)) error {
	if n != len(s.sizes) {
		return fmt.Errorf("%w: it has %d fields, earlier samples have %d", ErrRow, n, len(s.sizes))
	}
	for i := range n {
		f := &s.Layout.Fields[i]
		switch name, size := field(i); {
		case name != f.Name:
			return fmt.Errorf("%w: it has the field %q, earlier samples have %q", ErrRow, name, f.Name)
		case size != s.sizes[i] && size != s.made[i]:
			return fmt.Errorf("%w: field %q has %d bytes, earlier samples have arrays %s of %d", ErrRow, name, size,
				f.String(), s.sizes[i])
		}
	}
	return nil
}

// Differ returns an error that wraps ErrRow and describes how the arrays of a sample differ from
// the first one's; err where they do not.
func (s *Stack) Differ(l *stacked.Layout, err error) error {
	for i := range min(len(l.Fields), len(s.Layout.Fields)) {
		f, want := &l.Fields[i], &s.Layout.Fields[i]
		if f.Name == want.Name && (f.DType != want.DType || !slices.Equal(f.Shape, want.Shape)) {
			return fmt.Errorf("%w: field %q is an array %s, earlier samples have %s", ErrRow, f.Name, f.String(),
				want.String())
		}
	}
	return err
}

// Row returns the row in the file of the i-th field. Its errors wrap ErrRow.
func (s *Stack) Row(i int, file []byte) ([]byte, error) {
	if head := s.heads[i]; int64(len(file)) == s.sizes[i] && bytes.HasPrefix(file, head) {
		return file[len(head):], nil
	}
	want := &s.Layout.Fields[i]
	field, head, err := parse(&File{Name: want.Name, Size: int64(len(file)), First: file})
	if err != nil {
		return nil, fmt.Errorf("%w: field %q: %w", ErrRow, want.Name, err)
	}
	if field.DType != want.DType || !slices.Equal(field.Shape, want.Shape) {
		return nil, fmt.Errorf("%w: field %q is an array %s, earlier samples have %s", ErrRow, want.Name,
			field.String(), want.String())
	}
	return file[len(head):], s.whole(i, int64(len(head)), int64(len(file)))
}

// Headers bounds the bytes of a block that are not rows.
func (s *Stack) Headers() int64 {
	const member = 4096 + 512 + 1024 + 512 // long name, its header, header, padding
	return int64(len(s.sizes)+1) * member
}
