package lines

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

// kind is the type of a value.
type kind uint8

const (
	kindNull    kind = iota
	kindText         // a string of JSON, decoded
	kindCell         // a cell of CSV
	kindInteger      // a number of JSON without point and exponent
	kindNumber       // any other number of JSON
	kindBool
	kindList
	kindObject
	kindBytes // a byte string of TFRecord or MDS
	kindArray // an array of TFRecord or MDS, as .npy
	kindJPEG
	kindPNG
)

var kindNames = [...]string{"null", "a string", "a cell", "an integer", "a number", "a truth value", "a list",
	"an object", "a byte string", "an array", "an image", "an image"}

// value is a decoded string, or JSON as written in the file.
type value struct {
	kind kind
	b    []byte
}

// integer returns the value as an integer attribute.
func (v value) integer() (int64, bool) {
	switch v.kind {
	case kindBool:
		if v.b[0] == 't' {
			return 1, true
		}
		return 0, true
	case kindInteger, kindCell:
		if v.kind == kindCell && !where.Decimal(v.b) {
			return 0, false
		}
		n, err := strconv.ParseInt(string(v.b), 10, 64)
		return n, err == nil
	case kindArray:
		if descr, b := v.scalar(); descr == "<i8" {
			return int64(binary.LittleEndian.Uint64(b)), true
		}
	}
	return 0, false
}

// number returns the value as a number attribute.
func (v value) number() (float64, bool) {
	switch v.kind {
	case kindInteger, kindNumber:
	case kindCell:
		if !where.Decimal(v.b) {
			return 0, false
		}
	case kindArray:
		if descr, b := v.scalar(); descr == "<f4" {
			return float64(math.Float32frombits(binary.LittleEndian.Uint32(b))), true
		}
		n, ok := v.integer()
		return float64(n), ok
	default:
		return 0, false
	}
	f, err := strconv.ParseFloat(string(v.b), 64)
	return f, err == nil
}

// digitsOnly reports whether a cell is an integer.
func digitsOnly(b []byte) bool {
	b = bytes.TrimPrefix(b, []byte("-"))
	return len(b) > 0 && skipDigits(b, 0) == len(b)
}

// value converts v to the attribute.
func (a *attr) value(v value) (out format.AttrValue, err error) {
	out.Attribute = a.Attribute
	var ok bool
	switch a.Kind {
	case format.AttrInteger:
		out.Integer, ok = v.integer()
	case format.AttrNumber:
		out.Number, ok = v.number()
	default:
		ok = v.kind != kindList && v.kind != kindObject && v.kind != kindArray && utf8.Valid(v.b)
		out.Label = string(v.b)
	}
	if !ok {
		text := v.b
		if len(text) > 40 {
			text = append(bytes.Clone(text[:40]), "…"...)
		}
		want := map[format.AttrKind]string{format.AttrInteger: "an integer", format.AttrNumber: "a number",
			format.AttrLabel: "a string or number"}[a.Kind]
		err = hint.With(fmt.Errorf("attribute %s, column %s: %s is not %s, as in the first rows: leave such rows out by a condition", a.Name, a.column, text, want), hint.Option("where"))
	}
	return out, err
}

// condition is a condition with its parsed value.
type condition struct {
	where.Condition
	word     []byte
	number   where.Number
	isNumber bool // the value of the condition is one
}

func newCondition(parsed *where.Condition) *condition {
	c := &condition{Condition: *parsed, word: []byte(parsed.Word)}
	c.number, c.isNumber = parsed.Number()
	return c
}

// holds reports whether the condition holds for a value. JSON strings compare as bytes, numbers as
// numbers. A CSV cell compares as a number if the value of the condition is a number without
// quotes.
func (c *condition) holds(v value) bool {
	if v.kind == kindNull {
		return c.Holds(true, 0, false)
	}
	order, ok := c.compare(v)
	return c.Holds(false, order, ok)
}

func (c *condition) compare(v value) (order int, ok bool) {
	switch v.kind {
	case kindText, kindBytes:
		return bytes.Compare(v.b, c.word), true
	case kindBool:
		want, err := strconv.ParseBool(c.Word)
		if err != nil || c.Op != "=" && c.Op != "!=" {
			return 0, false
		}
		if want == (v.b[0] == 't') {
			return 0, true
		}
		return 1, true
	case kindCell:
		if !c.isNumber {
			return bytes.Compare(v.b, c.word), true
		}
	case kindList, kindObject:
		return 0, false
	}
	if !c.isNumber {
		return 0, false
	}
	if n, ok := v.integer(); ok {
		return c.number.CompareInt(n)
	}
	f, ok := v.number()
	if v.kind == kindArray {
		return c.compareFloat(f, ok)
	}
	if n, err := strconv.ParseUint(string(v.b), 10, 64); ok && err == nil {
		return c.number.CompareUint(n)
	}
	return c.compareFloat(f, ok)
}

// compareFloat compares a number that is not an integer.
func (c *condition) compareFloat(f float64, ok bool) (int, bool) {
	if !ok {
		return 0, false
	}
	return c.number.CompareFloat(f)
}

// attr is an attribute and the column of its values.
type attr struct {
	format.Attribute
	column string
}

// scalar returns the only element of an array of one dimension, and its type, which is empty for
// other arrays.
func (v value) scalar() (descr string, element []byte) {
	h, _, err := npy.Read(v.b, int64(len(v.b)))
	if err != nil || len(h.Shape) != 1 || h.Shape[0] != 1 {
		return "", nil
	}
	return h.Descr, v.b[len(v.b)-h.Size:]
}
