package receive

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/shardtool/shardtool/internal/format/npy"
	"github.com/shardtool/shardtool/internal/format/stacked"
	"github.com/shardtool/shardtool/writer"
)

// Stacked samples have arrays only, so their numbers are arrays without a dimension: an int is an
// array of <i8, a float is an array of <f8. Batches have the same types for numbers that are text.

// mostStacked bounds the rows that are stacked unless the parent asks for more: it saves 1 KiB a
// sample, and a block should hold several.
const mostStacked = 64 << 10

// textNames are the extensions of members that WebDataset decodes as a number in text.
var textNames = []string{"cls", "cls2", "class", "count", "index", "inx", "id"}

// Stacks reports, once the first sample is there, whether samples are rows of arrays: the parent
// asked for it, or left it open and began with columns that are arrays of one type and shape, or
// numbers.
func (s *Source) Stacks() bool { return s.at.Stacked }

// decide decides about the layout before the first sample, if the parent left it open.
func (s *Source) decide(rows bool) {
	if !s.decided {
		s.decided, s.at.Stacked = true, rows
	}
}

// stackable reports whether all rows have the same fields, each an array of one type and shape or a
// number, and a shard can have rows of them.
func (c *columns) stackable() bool {
	size, l := int64(0), stacked.Layout{}
	for i := range c.all {
		if col := &c.all[i]; col.Role == "field" {
			n := col.rowLen(c.rows)
			if n <= 0 {
				return false
			}
			size += n
			l.Fields = append(l.Fields, col.array())
		}
	}
	slices.SortFunc(l.Fields, func(a, b stacked.Field) int { return strings.Compare(a.Name, b.Name) })
	return c.rows > 0 && size <= mostStacked && l.Check() == nil
}

// array returns the array that a column becomes. rowLen must know the column's length.
func (c *column) array() stacked.Field {
	f := stacked.Field{Name: c.Name, DType: c.Dtype}
	switch c.Kind {
	case kindFixed:
		h, _ := npy.Parse(c.prefix)
		f.DType, f.Shape = h.Descr, h.Shape
	case kindList:
		f.Shape = []int64{c.offset(1) - c.offset(0)}
	}
	return f
}

// rowLen returns the bytes of the column's array in each row, or 0 unless all rows have the same.
func (c *column) rowLen(rows int) int64 {
	if c.Nulls {
		return 0
	}
	switch c.Kind {
	case kindFixed:
		if _, err := npy.Parse(c.prefix); err != nil {
			return 0
		}
		return int64(c.Width)
	case kindNumber:
		if c.Dtype == "<u8" { // text holds any of them, an <i8 only most
			return 0
		}
		if slices.Contains(textNames, c.Name[strings.LastIndexByte(c.Name, '.')+1:]) {
			return 0
		}
		return 8
	case kindList:
		n := c.offset(1) - c.offset(0)
		for i := range rows {
			if c.offset(i+1)-c.offset(i) != n {
				return 0
			}
		}
		return n * int64(c.DataBit)
	}
	return 0
}

var intHeader, floatHeader = npy.AppendHeader[int](nil, "<i8"), npy.AppendHeader[int](nil, "<f8")

// appendArray appends the array of a number's text. ok is false for fields of other types, which
// stay as they are.
func appendArray(dst []byte, kind string, text []byte) (_ []byte, ok bool, err error) {
	switch kind {
	case "int":
		v, err := strconv.ParseInt(string(text), 10, 64)
		if err != nil {
			return dst, false, fmt.Errorf("%.40q is not a whole number of 64 bits, of which rows are made: give layout=\"samples\"", text)
		}
		return binary.LittleEndian.AppendUint64(append(dst, intHeader...), uint64(v)), true, nil
	case "float":
		v, err := strconv.ParseFloat(string(text), 64)
		if err != nil && !math.IsInf(v, 0) {
			return dst, false, fmt.Errorf("%.40q is no number", text)
		}
		return binary.LittleEndian.AppendUint64(append(dst, floatHeader...), math.Float64bits(v)), true, nil
	}
	return dst, false, nil
}

// failed returns the error of a field of the sample.
func (s *Source) failed(field string, err error) error {
	return &writer.SampleError{Key: s.sample.Key, Row: s.sample.Row, Err: fmt.Errorf("field %q: %w", field, err)}
}

// arrays makes arrays of the numbers of a sample of a run.
func (s *Source) arrays() error {
	arena := s.arena[:0]
	if need := len(s.run.layout.Fields) * (len(intHeader) + 8); cap(arena) < need {
		arena = make([]byte, 0, need)
	}
	for i := range s.run.layout.Fields {
		at := len(arena)
		grown, ok, err := appendArray(arena, s.run.layout.Fields[i].Type, s.sample.Fields[i].Data)
		if err != nil {
			return s.failed(s.run.layout.Fields[i].Name, err)
		}
		if arena = grown; ok {
			s.sample.Fields[i].Data = arena[at:len(arena):len(arena)]
		}
	}
	s.arena = arena
	return nil
}
