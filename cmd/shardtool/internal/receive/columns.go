package receive

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"strconv"

	"github.com/shardtool/shardtool/internal/format/npy"
	"github.com/shardtool/shardtool/writer"
)

// columns is the body of COLUMNS.
type columns struct {
	rows, next int
	all        []column
	key        *column
	arena      []byte // payloads of the current row that are not in the frame
}

// columnsHead is its JSON.
type columnsHead struct {
	Rows int `json:"rows"`
	// Columns are in ascending order of the fields' names; the columns of keys and attributes come
	// last.
	Columns []column `json:"columns"`
	Buffers []int64  `json:"buffers"`
}

// column is a column of values and the buffers that hold them, of which the last has the validity
// bits if Nulls is set.
type column struct {
	// Role is field, key or attr; Name the name of the field or attribute.
	Role string `json:"role"`
	Name string `json:"name"`
	// Type is the field's type in META, or the attribute's kind.
	Type string `json:"type"`
	// Kind is one of the kinds below.
	Kind string `json:"kind"`
	// Dtype is the type of number as in npy files, Width its bytes.
	Dtype string `json:"dtype"`
	Width int    `json:"width"`
	Nulls bool   `json:"nulls"`
	// Bit is the number of the first row's bit in the validity bits, DataBit in the data.
	Bit     int `json:"bit"`
	DataBit int `json:"data_bit"`

	values, offsets, valid, prefix []byte
	headers                        map[int64][]byte // of npy files, by length
	known                          bool
}

// Kinds of columns and their buffers.
const (
	kindVar    = "var"    // offsets of 4 or 8 bytes (Width), bytes: payloads
	kindFixed  = "fixed"  // a prefix of all payloads, rows of Width bytes
	kindNumber = "number" // numbers of Dtype: text
	kindBools  = "bools"  // bits: JSON
	kindList   = "list"   // offsets of 8 bytes that count items, numbers of Dtype: npy files
)

// openColumns checks a frame: after that, no row exceeds it.
func openColumns(body []byte) (*columns, error) {
	bad := func(msg string, args ...any) (*columns, error) {
		return nil, fmt.Errorf("%w: COLUMNS: %s", ErrProtocol, fmt.Sprintf(msg, args...))
	}
	const lead = 8
	if len(body) < lead || int64(binary.LittleEndian.Uint32(body[4:])) > int64(len(body)-lead) {
		return bad("%d bytes", len(body))
	}
	out, n := binary.LittleEndian.Uint32(body), binary.LittleEndian.Uint32(body[4:])
	var h columnsHead
	if err := json.Unmarshal(body[lead:lead+n], &h); err != nil {
		return bad("%v", err)
	}
	if h.Rows < 0 || h.Rows > math.MaxInt32 {
		return bad("%d rows", h.Rows)
	}
	rest := body[lead+n:]
	var buffers [][]byte
	for _, size := range h.Buffers {
		if size < 0 || size > int64(len(rest)) {
			return bad("a buffer of %d bytes, of %d", size, len(rest))
		}
		buffers, rest = append(buffers, rest[:size:size]), rest[size:]
	}
	c := &columns{rows: h.Rows, next: int(out), all: h.Columns}
	for i := range c.all {
		col := &c.all[i]
		var err error
		if buffers, err = col.open(buffers, h.Rows); err != nil {
			return bad("column %q: %v", col.Name, err)
		}
		switch col.Role {
		case "key":
			c.key = col
		case "attr":
			if col.Type != "int" && col.Type != "float" && col.Type != "str" {
				return bad("attribute %q of kind %q", col.Name, col.Type)
			}
		}
	}
	return c, nil
}

// open takes the column's buffers and checks that they have all rows.
func (c *column) open(buffers [][]byte, rows int) ([][]byte, error) {
	short := false
	take := func(want int) (b []byte) {
		if len(buffers) == 0 || len(buffers[0]) < want {
			short = true
			return nil
		}
		b, buffers = buffers[0], buffers[1:]
		return b
	}
	if c.Width < 1 || c.Width > math.MaxInt32 || c.Bit < 0 || c.Bit > 7 || c.DataBit < 0 || c.DataBit > 7 {
		return nil, fmt.Errorf("a width of %d bytes, bits from %d and %d", c.Width, c.Bit, c.DataBit)
	}
	unit := 1
	switch c.Kind {
	case kindVar, kindList:
		size := 8
		if c.Kind == kindVar {
			size = c.Width
		} else {
			unit = c.Width
			c.headers = map[int64][]byte{}
		}
		if size != 4 && size != 8 {
			return nil, fmt.Errorf("offsets of %d bytes", size)
		}
		c.offsets, c.values = take(size*(rows+1)), take(0)
		c.Width = size
	case kindFixed:
		c.prefix, c.values = take(0), take(rows*c.Width)
	case kindNumber:
		if _, err := appendNumber(nil, make([]byte, 8), c.Dtype); err != nil || c.Width != int(c.Dtype[2]-'0') {
			return nil, fmt.Errorf("numbers of type %q in %d bytes", c.Dtype, c.Width)
		}
		c.values = take(rows * c.Width)
	case kindBools:
		c.values = take((c.DataBit + rows + 7) / 8)
	default:
		return nil, fmt.Errorf("kind %q", c.Kind)
	}
	if c.Nulls {
		c.valid = take((c.Bit + rows + 7) / 8)
	}
	if short {
		return nil, fmt.Errorf("its buffers have fewer than %d rows", rows)
	}
	last := int64(0)
	for i := 0; c.offsets != nil && i <= rows; i++ {
		at := c.offset(i)
		if at < last || unit > 0 && at > int64(len(c.values)/unit) {
			return nil, fmt.Errorf("offset %d of row %d after %d, of %d bytes", at, i, last, len(c.values))
		}
		last = at
	}
	if c.Kind == kindList {
		c.DataBit = unit // bytes of an item
	}
	return buffers, nil
}

func (c *column) offset(i int) int64 {
	if c.Width == 4 {
		return int64(int32(binary.LittleEndian.Uint32(c.offsets[4*i:])))
	}
	return int64(binary.LittleEndian.Uint64(c.offsets[8*i:]))
}

func (c *column) null(i int) bool {
	i += c.Bit
	return c.valid != nil && c.valid[i/8]>>(i%8)&1 == 0
}

// payload returns the payload of a row, appended to arena unless it is in the frame.
func (c *column) payload(i int, arena []byte) (data, grown []byte, err error) {
	at := len(arena)
	switch c.Kind {
	case kindVar:
		return c.values[c.offset(i):c.offset(i+1)], arena, nil
	case kindFixed:
		arena = append(append(arena, c.prefix...), c.values[i*c.Width:(i+1)*c.Width]...)
	case kindNumber:
		arena, err = appendNumber(arena, c.values[i*c.Width:], c.Dtype)
	case kindBools:
		bit := i + c.DataBit
		arena = strconv.AppendBool(arena, c.values[bit/8]>>(bit%8)&1 != 0)
	case kindList:
		from, to := c.offset(i), c.offset(i+1)
		header, ok := c.headers[to-from]
		if !ok {
			header = npy.AppendHeader(nil, c.Dtype, to-from)
			c.headers[to-from] = header
		}
		unit := int64(c.DataBit)
		arena = append(append(arena, header...), c.values[from*unit:to*unit]...)
	}
	return arena[at:len(arena):len(arena)], arena, err
}

// row takes the next row as a sample.
func (c *columns) row(s *Source) error {
	i := c.next
	c.next++
	s.beginSample(c.key == nil)
	arena := c.arena[:0]
	for k := range c.all {
		col := &c.all[k]
		if col.null(i) {
			if col.Role == "key" {
				return fmt.Errorf("%w: COLUMNS: row %d has no key", ErrProtocol, i)
			}
			continue
		}
		data, grown, err := col.payload(i, arena)
		if err == nil && s.at.Stacked && col.Role == "field" {
			at, ok := len(grown), false
			if grown, ok, err = appendArray(grown, col.Type, data); ok {
				data = grown[at:len(grown):len(grown)]
			} else if err != nil {
				err = s.failed(col.Name, err)
			}
		}
		if err != nil {
			return err
		}
		arena = grown
		switch col.Role {
		case "key":
			s.sample.Key = string(data)
		case "attr":
			err = s.addAttr(col.Name, col.Type, data)
		default:
			s.sample.Fields = append(s.sample.Fields, writer.Field{Name: col.Name, Data: data})
			if !col.known {
				s.know(col.Name, col.Type)
				col.known = true
			}
		}
		if err != nil {
			return err
		}
	}
	c.arena = arena
	s.count()
	return nil
}

// appendNumber appends the text of the number at the beginning of b.
func appendNumber(dst, b []byte, dtype string) ([]byte, error) {
	le := binary.LittleEndian
	switch dtype {
	case "|i1":
		return strconv.AppendInt(dst, int64(int8(b[0])), 10), nil
	case "<i2":
		return strconv.AppendInt(dst, int64(int16(le.Uint16(b))), 10), nil
	case "<i4":
		return strconv.AppendInt(dst, int64(int32(le.Uint32(b))), 10), nil
	case "<i8":
		return strconv.AppendInt(dst, int64(le.Uint64(b)), 10), nil
	case "|u1":
		return strconv.AppendUint(dst, uint64(b[0]), 10), nil
	case "<u2":
		return strconv.AppendUint(dst, uint64(le.Uint16(b)), 10), nil
	case "<u4":
		return strconv.AppendUint(dst, uint64(le.Uint32(b)), 10), nil
	case "<u8":
		return strconv.AppendUint(dst, le.Uint64(b), 10), nil
	case "<f4":
		return strconv.AppendFloat(dst, float64(math.Float32frombits(le.Uint32(b))), 'g', -1, 64), nil
	case "<f8":
		return strconv.AppendFloat(dst, math.Float64frombits(le.Uint64(b)), 'g', -1, 64), nil
	}
	return dst, fmt.Errorf("numbers of type %q", dtype)
}
