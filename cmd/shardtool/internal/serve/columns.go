package serve

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/npy"
	"github.com/shardtool/shardtool/reader"
)

// Kinds of columns, and flags of their rows.
const (
	columnBytes  = 0
	columnArray  = 1
	columnArrays = 2
	columnNpy    = 3
	columnWhole  = 4 // one array, not one of each sample

	columnFixed  = 1
	columnAbsent = 2
)

// columns turns samples into views of payloads, column by column. It keeps its memory from batch to
// batch. The views point into the samples and are valid as long as they are. It is for one
// goroutine.
type columns struct {
	wanted []Column
	made   []column
	arena  []byte // numbers that were text
	inRows bool   // the batches have rows
}

// column holds what was found of one field in the samples of a batch.
type column struct {
	views  [][]byte // by sample; nil: absent
	kind   uint16
	flags  uint16
	stride int    // of all payloads when fixed
	typ    []byte // JSON of the array's type; empty for bytes
	hint   int    // where the field was in the sample before

	header  []byte // of the npy file before, and its type
	npyType []byte
	npySize int  // bytes of data; -1 if the array has no plain type
	uniform bool // the batch before was one array

	whole    int                    // bytes of a columnWhole,
	fill     func(dst []byte)       // which writes it
	count    int                    // rows,
	copyRows func(dst []byte) error // which copies them
}

func newColumns(wanted []Column) *columns {
	c := &columns{wanted: wanted, made: make([]column, len(wanted))}
	for i := range wanted {
		if w := &wanted[i]; w.ItemSize > 0 {
			c.made[i].typ = arrayType{Dtype: w.Dtype, Shape: w.Shape}.json()
		}
	}
	return c
}

// gather finds the payloads of all columns.
func (c *columns) gather(samples []reader.Sample) error {
	if need := 8 * len(samples) * len(c.made); cap(c.arena) < need {
		c.arena = make([]byte, 0, need)
	}
	c.arena = c.arena[:0]
	for i := range c.made {
		if err := c.column(&c.made[i], &c.wanted[i], samples); err != nil {
			return err
		}
	}
	return nil
}

func (c *columns) column(m *column, w *Column, samples []reader.Sample) error {
	m.views, m.flags, m.kind, m.stride = m.views[:0], 0, columnBytes, 0
	for i := range samples {
		s := &samples[i]
		data, ok := m.field(s, w.Name)
		if !ok && !w.Optional {
			return wrong(s, w, errors.New("the sample has no such field"))
		}
		if !ok {
			m.views = append(m.views, nil)
			m.flags |= columnAbsent
			continue
		}
		view, err := c.decode(w, data)
		if err != nil {
			return wrong(s, w, err)
		}
		m.views = append(m.views, view)
	}
	switch {
	case w.Decode == "npy":
		return m.npy(w, samples)
	case w.row > 0 || w.row == 0 && w.ItemSize > 0:
		m.kind, m.flags, m.stride = columnArray, m.flags|columnFixed, w.row
		return nil
	case w.row < 0:
		m.kind = columnArrays
	}
	m.fixed()
	return nil
}

// wrong returns the error of a payload that does not match its column.
func wrong(s *reader.Sample, w *Column, err error) error {
	return &decodeError{s.SourceNumber(), s.Number, string(s.Key), w.Name, err}
}

// field finds a field where it was in the sample before, or anywhere.
func (m *column) field(s *reader.Sample, name string) (data []byte, ok bool) {
	if m.hint >= len(s.Fields) || string(s.Fields[m.hint].Name) != name {
		at := slices.IndexFunc(s.Fields, func(f format.FieldView) bool { return string(f.Name) == name })
		if at < 0 {
			return nil, false
		}
		m.hint = at
	}
	if data = s.Fields[m.hint].Data; data == nil {
		data = []byte{} // there, and empty
	}
	return data, true
}

// fixed sets the flag where all payloads are there and of one size. Arrays that begin at multiples
// of 64 have gaps otherwise.
func (m *column) fixed() {
	if m.flags&columnAbsent != 0 || len(m.views) == 0 {
		return
	}
	n := len(m.views[0])
	alike := !slices.ContainsFunc(m.views, func(v []byte) bool { return len(v) != n })
	if alike && (m.kind == columnBytes || n%dataAlign == 0) {
		m.flags, m.stride = m.flags|columnFixed, n
	}
}

// decode returns the bytes to hand on for a payload: the payload itself, or a number.
func (c *columns) decode(w *Column, data []byte) ([]byte, error) {
	if w.isNumber() && bytes.HasPrefix(data, []byte(npy.Magic)) {
		return scalarOf(w, data)
	}
	switch w.Decode {
	case "int":
		v, err := strconv.ParseInt(string(bytes.TrimSpace(data)), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%.40q is not a whole number of 64 bits", data)
		}
		return c.number(uint64(v)), nil
	case "float":
		v, err := strconv.ParseFloat(string(bytes.TrimSpace(data)), 64)
		if err != nil && !errors.Is(err, strconv.ErrRange) {
			return nil, fmt.Errorf("%.40q is no number", data)
		}
		return c.number(math.Float64bits(v)), nil
	case "array":
		switch {
		case w.row >= 0 && len(data) != w.row:
			return nil, fmt.Errorf("%d bytes, an array of %s and shape %v has %d", len(data), w.Dtype, w.Shape, w.row)
		case len(data)%w.ItemSize != 0:
			return nil, fmt.Errorf("%d bytes are not a whole number of items of %d bytes", len(data), w.ItemSize)
		}
	}
	return data, nil
}

var intHeader, floatHeader = npy.AppendHeader[int](nil, "<i8"), npy.AppendHeader[int](nil, "<f8")

// scalarOf returns the number in an array without a dimension, as stacked data has numbers.
func scalarOf(w *Column, file []byte) ([]byte, error) {
	usual := intHeader
	if w.Decode == "float" {
		usual = floatHeader
	}
	if len(file) == len(usual)+8 && bytes.HasPrefix(file, usual) {
		return file[len(usual):], nil
	}
	header, data, err := npy.Cut(file, int64(len(file)))
	if err != nil {
		return nil, err
	}
	t, size, plain, err := parseNpy(header)
	if err == nil && (!plain || t.Dtype != w.Dtype || len(t.Shape) > 0 || size != len(data)) {
		err = fmt.Errorf("an array of %s and shape %v, not a number of type %s: read the field as npy", t.Dtype,
			t.Shape, w.Dtype)
	}
	return data, err
}

func (c *columns) number(v uint64) []byte {
	at := len(c.arena)
	c.arena = binary.LittleEndian.AppendUint64(c.arena, v)
	return c.arena[at:]
}

// npy removes the headers if all are the same.
func (m *column) npy(w *Column, samples []reader.Sample) error {
	m.kind = columnArray
	same := m.flags&columnAbsent == 0
	var first []byte
	for i, file := range m.views {
		if file == nil {
			continue
		}
		header, data, err := npy.Cut(file, int64(len(file)))
		if err == nil && (m.header == nil || !bytes.Equal(header, m.header)) {
			err = m.newHeader(header)
		}
		if err == nil && m.npySize >= 0 && len(data) != m.npySize {
			err = fmt.Errorf("an npy file with %d bytes of data, its header says %d", len(data), m.npySize)
		}
		if err != nil {
			return wrong(&samples[i], w, err)
		}
		if first == nil {
			first = m.header
		}
		same = same && m.npySize >= 0 && bytes.Equal(first, m.header)
	}
	if first != nil {
		m.uniform = same
	}
	if !m.uniform || !same { // without samples, uniform is as in the batch before
		m.kind, m.typ = columnNpy, nil
		m.fixed()
		return nil
	}
	for i, file := range m.views {
		if file != nil {
			_, m.views[i], _ = npy.Cut(file, int64(len(file)))
		}
	}
	m.typ, m.flags, m.stride = m.npyType, m.flags|columnFixed, m.npySize
	return nil
}

// newHeader parses a header and keeps its type.
func (m *column) newHeader(header []byte) error {
	t, size, plain, err := parseNpy(header)
	if err != nil {
		return err
	}
	m.header, m.npySize, m.npyType = bytes.Clone(header), -1, nil // the copy is compared with headers of later batches
	if plain {
		m.npySize, m.npyType = size, t.json()
	}
	return nil
}
