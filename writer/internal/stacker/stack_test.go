package stacker

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/npy"
)

// array returns an NPY file with a row of bytes that count up from first.
func array(descr string, size int, first byte, shape ...int64) []byte {
	out := npy.AppendHeader(nil, descr, shape...)
	for i := range size {
		out = append(out, first+byte(i))
	}
	return out
}

func file(name string, data []byte) File {
	return File{Name: name, Size: int64(len(data)), First: data}
}

// TestRows learns a layout from one sample and takes the rows out of others.
func TestRows(t *testing.T) {
	s, err := Learn([]File{file("label", array("|u1", 1, 9)), file("x.npy", array("<u2", 6, 1, 3))})
	if err != nil {
		t.Fatal(err)
	}
	if f := s.Layout.Fields; len(f) != 2 || f[0].String() != "|u1 ()" || f[1].String() != "<u2 (3)" || s.RowLen() != 7 {
		t.Fatalf("%+v, rows of %d bytes", f, s.RowLen())
	}
	later := [][]byte{array("|u1", 1, 200), array("<u2", 6, 50, 3)}
	fields := func(i int) (string, int64) { return s.Layout.Fields[i].Name, int64(len(later[i])) }
	if err := s.Fits(2, fields); err != nil {
		t.Fatal(err)
	}
	for i, want := range [][]byte{{200}, {50, 51, 52, 53, 54, 55}} {
		if row, err := s.Row(i, later[i]); err != nil || !bytes.Equal(row, want) {
			t.Errorf("row %d is %v: %v", i, row, err)
		}
		if s.FieldSize(i) != int64(len(later[i])) {
			t.Errorf("field %d has %d bytes", i, s.FieldSize(i))
		}
	}
	if of := Of(s.Layout); of.RowLen() != s.RowLen() || of.Fits(2, fields) != nil {
		t.Error("the stack of a layout differs")
	}
}

// TestHeaders takes the row out of a file whose header has the same array in other words, which is
// what other programs write.
func TestHeaders(t *testing.T) {
	s, err := Learn([]File{file("x.npy", array("<u2", 4, 1, 2))})
	if err != nil {
		t.Fatal(err)
	}
	head := "{'fortran_order': True, 'shape':(2,), 'descr':'<u2'}"
	head += strings.Repeat(" ", 118-len(head)-1) + "\n"
	other := append([]byte("\x93NUMPY\x01\x00\x76\x00"), head...)
	if row, err := s.Row(0, append(other, 7, 0, 8, 0)); err != nil || !bytes.Equal(row, []byte{7, 0, 8, 0}) {
		t.Errorf("%v: %v", row, err)
	}
}

// TestNoStack refuses first samples whose arrays cannot be rows.
func TestNoStack(t *testing.T) {
	for name, data := range map[string][]byte{
		"object":      array("|O", 8, 1),
		"text":        array("<U1", 4, 1),
		"structured":  append([]byte("\x93NUMPY\x01\x00\x36\x00{'descr': [('a', '<i4')], 'fortran_order': False, 'shape': ()}"), 1, 0, 0, 0),
		"big-endian":  array(">u2", 2, 1, 1),
		"no elements": array("<u2", 0, 1, 0),
		"truncated":   array("<u2", 5, 1, 3),
		"more bytes":  array("<u2", 7, 1, 3),
		"no array":    []byte("hello, this is not an array, although it has some bytes in it"),
		"empty":       nil,
		"cut header":  array("<u2", 6, 1, 3)[:40],
	} {
		if _, err := Learn([]File{file("x.npy", data)}); !errors.Is(err, ErrRow) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Learn(nil); !errors.Is(err, ErrRow) {
		t.Error("a sample without fields is stacked")
	}
}

// TestAnother refuses samples that differ from the first one, by field and array.
func TestAnother(t *testing.T) {
	s, err := Learn([]File{file("x.npy", array("<u2", 4, 1, 2))})
	if err != nil {
		t.Fatal(err)
	}
	fits := func(name string, size int64) error {
		return s.Fits(1, func(int) (string, int64) { return name, size })
	}
	for name, err := range map[string]error{
		"fields": s.Fits(2, func(int) (string, int64) { return "x.npy", 132 }),
		"name":   fits("y.npy", 132),
		"size":   fits("x.npy", 133),
	} {
		if !errors.Is(err, ErrRow) {
			t.Errorf("another %s: %v", name, err)
		}
	}
	for name, data := range map[string][]byte{
		"type":   array("<i2", 4, 1, 2), // of the same size
		"shape":  array("<u2", 4, 1, 2, 1),
		"damage": bytes.Repeat([]byte{1}, 132),
	} {
		_, err := s.Row(0, data)
		if !errors.Is(err, ErrRow) || !strings.Contains(err.Error(), `"x.npy"`) || name == "damage" && !errors.Is(err, format.ErrCorrupt) {
			t.Errorf("another %s: %v", name, err)
		}
	}
	if _, err := Learn([]File{file("t.txt", []byte("hello"))}); !errors.Is(err, ErrRow) || errors.Is(err, format.ErrCorrupt) || !strings.Contains(err.Error(), "not an .npy file") {
		t.Errorf("text: %v", err)
	}
	o, err := Learn([]File{file("x.npy", array("<f4", 8, 1, 2))})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Differ(o.Layout, nil); !errors.Is(err, ErrRow) || !strings.Contains(err.Error(), "<f4 (2), earlier samples have <u2 (2)") {
		t.Error(err)
	}
}
