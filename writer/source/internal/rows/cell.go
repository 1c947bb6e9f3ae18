package rows

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/hint"
	"github.com/shardtool/shardtool/internal/curate/where"
	"github.com/shardtool/shardtool/internal/format/npy"
)

// Kind is what a cell holds.
type Kind uint8

// The kinds of cells.
const (
	Absent Kind = iota // the row lacks the column
	Null
	Text     // a string
	Word     // text that is a number where a number is asked for, as in CSV
	Digits   // an integer, in decimal
	Number   // any other number, in decimal
	Bool     // true or false
	List     // of values
	Object   // of members
	Bytes    // a byte string
	Array    // a .npy file
	JPEG     // an image
	PNG      // an image
	Integer  // N, with a sign
	Unsigned // N
	Float    // N has the bits of a float64
	Decimal  // a fraction, in decimal
	Time     // N seconds after 1970, and Nano nanoseconds
)

// kindNames are what errors call cells.
var kindNames = [...]string{"missing", "null", "a string", "a cell", "an integer", "a number", "a truth value", "a list",
	"an object", "a byte string", "an array", "an image", "an image", "an integer", "an integer", "a number",
	"a number", "a time"}

func (k Kind) String() string { return kindNames[k] }

// Cell is the value of a column in a row.
type Cell struct {
	Kind Kind
	Nano uint32
	N    uint64
	B    []byte // the value as its format writes it, unless it is in N
}

// appendText appends the cell as text.
func (c *Cell) appendText(dst []byte) []byte {
	switch c.Kind {
	case Integer:
		return strconv.AppendInt(dst, int64(c.N), 10)
	case Unsigned:
		return strconv.AppendUint(dst, c.N, 10)
	}
	return append(dst, c.B...)
}

// Integer returns the cell as an integer attribute.
func (c *Cell) Integer() (int64, bool) {
	switch c.Kind {
	case Bool:
		if c.B[0] == 't' {
			return 1, true
		}
		return 0, true
	case Digits, Word:
		if c.Kind == Word && !where.Decimal(c.B) {
			return 0, false
		}
		n, err := strconv.ParseInt(string(c.B), 10, 64)
		return n, err == nil
	case Array:
		if descr, b := c.single(); descr == "<i8" {
			return int64(binary.LittleEndian.Uint64(b)), true
		}
	}
	return int64(c.N), c.Kind == Integer || c.Kind == Unsigned && c.N <= math.MaxInt64
}

// Float returns the cell as a number attribute.
func (c *Cell) Float() (float64, bool) {
	switch c.Kind {
	case Digits, Number:
	case Word:
		if !where.Decimal(c.B) {
			return 0, false
		}
	case Array:
		if descr, b := c.single(); descr == "<f4" {
			return float64(math.Float32frombits(binary.LittleEndian.Uint32(b))), true
		}
		n, ok := c.Integer()
		return float64(n), ok
	default:
		return math.Float64frombits(c.N), c.Kind == Float
	}
	f, err := strconv.ParseFloat(string(c.B), 64)
	return f, err == nil
}

// single returns the only element of an array of one dimension, and its type, which is empty for
// other arrays.
func (c *Cell) single() (descr string, element []byte) {
	h, _, err := npy.Read(c.B, int64(len(c.B)))
	if err != nil || len(h.Shape) != 1 || h.Shape[0] != 1 {
		return "", nil
	}
	return h.Descr, c.B[len(c.B)-h.Size:]
}

// Attr is an attribute and the column of its values.
type Attr struct {
	format.Attribute
	Column string
	Labels []string // of the column's integers, by number
}

// Value returns the attribute of a row whose cell is c. ok is false if there is none.
func (a *Attr) Value(c *Cell) (out format.AttrValue, ok bool, err error) {
	if c.Kind <= Null {
		return out, false, nil
	}
	out.Attribute = a.Attribute
	switch {
	case a.Kind == format.AttrInteger:
		out.Integer, ok = c.Integer()
	case a.Kind == format.AttrNumber:
		out.Number, ok = c.Float()
	case c.Kind == Integer || c.Kind == Unsigned:
		if c.N >= uint64(len(a.Labels)) { // Hugging Face uses -1 for a missing label
			return out, false, nil
		}
		out.Label, ok = a.Labels[c.N], true
	default:
		ok = c.Kind == Text || c.Kind != List && c.Kind != Object && c.Kind != Array && utf8.Valid(c.B)
		out.Label = string(c.B)
	}
	if !ok {
		text := c.B
		if len(text) > 40 {
			text = append(bytes.Clone(text[:40]), "…"...)
		}
		want := map[format.AttrKind]string{format.AttrInteger: "an integer", format.AttrNumber: "a number",
			format.AttrLabel: "a string or number"}[a.Kind]
		if c.Kind == Unsigned {
			text, want = strconv.AppendUint(nil, c.N, 10), "below 2^63"
		}
		err = hint.With(fmt.Errorf("attribute %s, column %s: %s is not %s, as in the first rows: leave such rows out by a condition", a.Name, a.Column, text, want), hint.Option("where"))
	}
	return out, ok, err
}
