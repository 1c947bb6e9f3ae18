package export

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/apache/arrow/go/v17/arrow/float16"
	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/schema"

	"github.com/shardtool/shardtool/internal/format/npy"
	"github.com/shardtool/shardtool/internal/input/kinds"
)

// tableNode is a column or a part of one: a struct, whose parts have names, a list, which has one
// part, or a leaf.
type tableNode struct {
	def, rep int16 // the levels from which it is not null, and of what it repeats in
	names    []string
	parts    []*tableNode
	leaf     *leaf
}

// leaf has the values of a row group of a leaf of the schema, in the slice of its physical type.
type leaf struct {
	kinds.Scalar
	def        int16
	nested     bool // it has repetition levels
	defs, reps []int16
	bools      []bool
	i32        []int32
	i64        []int64
	f32        []float32
	f64        []float64
	fixed      []parquet.FixedLenByteArray
	texts      []parquet.ByteArray
}

// tree returns the node of what is stored below these levels, and adds its leaves to the column.
func (c *tableColumn) tree(stored *kinds.Storage, def, rep int16) *tableNode {
	n := &tableNode{def: def + 1, rep: rep, names: stored.Names}
	if len(stored.Parts) == 0 {
		n.leaf = &leaf{Scalar: stored.Scalar, def: n.def, nested: rep > 0}
		c.leaves = append(c.leaves, n.leaf)
		return n
	}
	if def++; n.names == nil {
		def, rep = def+1, rep+1
	}
	for _, part := range stored.Parts {
		n.parts = append(n.parts, c.tree(part, def, rep))
	}
	return n
}

// schema returns the node's place in the schema of a file.
func (n *tableNode) schema(name string) (schema.Node, error) {
	if n.leaf != nil {
		return n.leaf.schema(name)
	}
	var fields schema.FieldList
	for i, part := range n.parts {
		of := "element"
		if n.names != nil {
			of = n.names[i]
		}
		node, err := part.schema(of)
		if err != nil {
			return nil, err
		}
		fields = append(fields, node)
	}
	if n.names != nil {
		return schema.NewGroupNode(name, parquet.Repetitions.Optional, fields, -1)
	}
	list, err := schema.NewGroupNode("list", parquet.Repetitions.Repeated, fields, -1)
	if err != nil {
		return nil, err
	}
	return schema.NewGroupNodeLogical(name, parquet.Repetitions.Optional, schema.FieldList{list},
		schema.NewListLogicalType(), -1)
}

// timeUnit is the unit of times in Parquet, which has no seconds.
func timeUnit(unit time.Duration) schema.TimeUnitType {
	switch unit {
	case time.Nanosecond:
		return schema.TimeUnitNanos
	case time.Microsecond:
		return schema.TimeUnitMicros
	}
	return schema.TimeUnitMillis
}

// physical returns the physical type of the values, and the length of fixed ones, else -1.
func (l *leaf) physical() (is parquet.Type, length int) {
	switch l.Base {
	case kinds.Int, kinds.Uint:
		if l.Bits == 64 {
			return parquet.Types.Int64, -1
		}
		return parquet.Types.Int32, -1
	case kinds.Float:
		switch l.Bits {
		case 16:
			return parquet.Types.FixedLenByteArray, 2
		case 32:
			return parquet.Types.Float, -1
		}
		return parquet.Types.Double, -1
	case kinds.Bool:
		return parquet.Types.Boolean, -1
	case kinds.Fixed:
		return parquet.Types.FixedLenByteArray, l.Bits
	case kinds.Decimal:
		return parquet.Types.FixedLenByteArray, l.decimalBytes()
	case kinds.Time:
		if l.Unit >= time.Millisecond {
			return parquet.Types.Int32, -1
		}
		return parquet.Types.Int64, -1
	case kinds.Timestamp, kinds.Duration:
		return parquet.Types.Int64, -1
	case kinds.Date, kinds.Null:
		return parquet.Types.Int32, -1
	}
	return parquet.Types.ByteArray, -1
}

func (l *leaf) schema(name string) (schema.Node, error) {
	var logical schema.LogicalType = schema.NoLogicalType{}
	switch l.Base {
	case kinds.Int, kinds.Uint:
		logical = schema.NewIntLogicalType(int8(l.Bits), l.Base == kinds.Int)
	case kinds.Float:
		if l.Bits == 16 {
			logical = schema.Float16LogicalType{}
		}
	case kinds.Text:
		logical = schema.StringLogicalType{}
	case kinds.JSON:
		logical = schema.JSONLogicalType{}
	case kinds.Date:
		logical = schema.DateLogicalType{}
	case kinds.Time:
		logical = schema.NewTimeLogicalType(false, timeUnit(l.Unit))
	case kinds.Timestamp:
		logical = schema.NewTimestampLogicalType(l.Zone, timeUnit(l.Unit))
	case kinds.Decimal:
		logical = schema.NewDecimalLogicalType(int32(l.Precision), int32(l.Scale))
	case kinds.Null:
		logical = schema.NullLogicalType{}
	}
	physical, length := l.physical()
	return schema.NewPrimitiveNodeLogical(name, parquet.Repetitions.Optional, logical, physical, length, -1)
}

func (l *leaf) decimalBytes() int {
	if l.Precision > 38 {
		return 32
	}
	return 16
}

// level adds the levels of a value, with a repetition level only in a list.
func (l *leaf) level(def, rep int16) {
	l.defs = append(l.defs, def)
	if l.nested {
		l.reps = append(l.reps, rep)
	}
}

// none adds an entry without a value to all leaves of the node.
func (n *tableNode) none(rep, def int16) {
	if n.leaf != nil {
		n.leaf.level(def, rep)
	}
	for _, part := range n.parts {
		part.none(rep, def)
	}
}

// json adds a value that is written as JSON, as pack writes nested values: bytes in base64, and as
// strings what is neither a number nor a truth value.
func (n *tableNode) json(data json.RawMessage, rep int16) error {
	data = bytes.TrimSpace(data)
	switch {
	case len(data) == 0 || string(data) == "null":
		n.none(rep, n.def-1)
		return nil
	case n.names != nil:
		var members map[string]json.RawMessage
		if err := json.Unmarshal(data, &members); err != nil {
			return err
		}
		known := 0
		for i, name := range n.names {
			value, ok := members[name]
			if ok {
				known++
			}
			if err := n.parts[i].json(value, rep); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		if known < len(members) {
			return fmt.Errorf("it has %d members, and the type of the field has %d of them", len(members), known)
		}
		return nil
	case n.leaf == nil:
		var items []json.RawMessage
		if err := json.Unmarshal(data, &items); err != nil {
			return err
		}
		if len(items) == 0 {
			n.none(rep, n.def)
		}
		for _, item := range items {
			if err := n.parts[0].json(item, rep); err != nil {
				return err
			}
			rep = n.rep + 1
		}
		return nil
	}
	n.leaf.level(n.def, rep)
	if n.leaf.Base == kinds.JSON || data[0] != '"' {
		return n.leaf.text(data)
	}
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return err
	}
	if n.leaf.Base != kinds.Binary && n.leaf.Base != kinds.Fixed {
		return n.leaf.text([]byte(text))
	}
	content, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return err
	}
	return n.leaf.text(content)
}

// text adds a value that is written as text, or bytes.
func (l *leaf) text(data []byte) error {
	var err error
	number := func() string { return strings.TrimSpace(string(data)) }
	switch l.Base {
	case kinds.Text, kinds.JSON, kinds.Binary:
		if l.Base != kinds.Binary && !utf8.Valid(data) {
			return fmt.Errorf("%q is not UTF-8, which a text must be", data[:min(len(data), 80)])
		}
		l.texts = append(l.texts, bytes.Clone(data))
	case kinds.Fixed:
		if len(data) != l.Bits {
			return fmt.Errorf("it has %d bytes, and the values of the field have %d", len(data), l.Bits)
		}
		l.fixed = append(l.fixed, bytes.Clone(data))
	case kinds.Int, kinds.Uint, kinds.Duration:
		var i int64
		if l.Base == kinds.Uint {
			var u uint64
			u, err = strconv.ParseUint(number(), 10, l.Bits)
			i = int64(u)
		} else {
			i, err = strconv.ParseInt(number(), 10, l.Bits) // 0 for all bits
		}
		l.integer(i)
	case kinds.Float:
		var f float64
		f, err = strconv.ParseFloat(number(), min(max(l.Bits, 32), 64))
		switch l.Bits {
		case 16:
			l.fixed = append(l.fixed, float16.New(float32(f)).ToLEBytes())
		case 32:
			l.f32 = append(l.f32, float32(f))
		default:
			l.f64 = append(l.f64, f)
		}
	case kinds.Bool:
		var b bool
		b, err = strconv.ParseBool(number())
		l.bools = append(l.bools, b)
	case kinds.Null:
		err = errors.New("it is not null")
	case kinds.Decimal:
		err = l.decimal(number())
	default:
		var i int64
		i, err = l.instant(number())
		l.integer(i)
	}
	if err != nil {
		if of := errors.Unwrap(err); of != nil {
			err = of
		}
		return fmt.Errorf("%q is no %v: %w", data[:min(len(data), 80)], l.Scalar, err)
	}
	return nil
}

// integer adds an integer to the slice of the leaf's physical type.
func (l *leaf) integer(i int64) {
	if is, _ := l.physical(); is == parquet.Types.Int32 {
		l.i32 = append(l.i32, int32(i))
	} else {
		l.i64 = append(l.i64, i)
	}
}

// decimal adds a decimal, in two's complement.
func (l *leaf) decimal(text string) error {
	digits, fraction, _ := strings.Cut(text, ".")
	bad := errors.New("it is not written so")
	if len(fraction) > l.Scale || len(text) > 2*len("-.")+76 { // before it is parsed: the time of that is quadratic
		return bad
	}
	n, ok := new(big.Int).SetString(digits+fraction+strings.Repeat("0", max(0, l.Scale-len(fraction))), 10)
	if !ok {
		return bad
	}
	if len(new(big.Int).Abs(n).String()) > l.Precision {
		return errors.New("it has more digits")
	}
	size := l.decimalBytes()
	if n.Sign() < 0 {
		n.Add(n, new(big.Int).Lsh(big.NewInt(1), uint(8*size)))
	}
	l.fixed = append(l.fixed, n.FillBytes(make([]byte, size)))
	return nil
}

// instant parses a date, a time or both, as pack writes them: years may have more than four digits.
// Times are numbers of their unit, and were text once.
func (l *leaf) instant(text string) (n int64, err error) {
	bad := errors.New("it is not written so")
	unit := min(l.Unit, time.Millisecond)
	if n, err := strconv.ParseUint(text, 10, 63); l.Base == kinds.Time && err == nil { // in its unit
		if n >= uint64(24*time.Hour/l.Unit) {
			return 0, bad
		}
		return int64(n) * int64(l.Unit/unit), nil
	}
	day, clock, both := strings.Cut(strings.TrimSuffix(text, "Z"), "T")
	if l.Base == kinds.Time {
		day, clock = "1970-01-01", text
	} else if both != (l.Base == kinds.Timestamp) {
		return 0, bad
	}
	cut := len(day) - len("-01-01")
	if cut < 1 {
		return 0, bad
	}
	year, err := strconv.ParseInt(day[:cut], 10, 32)
	if err != nil {
		return 0, bad
	}
	in, err := time.Parse(time.DateOnly, "2000"+day[cut:]) // a leap year
	date := time.Date(int(year), in.Month(), in.Day(), 0, 0, 0, 0, time.UTC)
	if err != nil || date.Day() != in.Day() {
		return 0, bad
	}
	seconds := date.Unix()
	if l.Base == kinds.Date {
		if n = seconds / 86400; n != int64(int32(n)) {
			return 0, bad
		}
		return n, nil
	}
	of, err := time.Parse("15:04:05", clock)
	if err != nil {
		return 0, bad
	}
	seconds += int64(of.Hour()*3600 + of.Minute()*60 + of.Second())
	perSecond := int64(time.Second / unit)
	if of.Nanosecond()%int(l.Unit) != 0 || seconds > math.MaxInt64/perSecond-1 || seconds < math.MinInt64/perSecond+1 {
		return 0, errors.New("it is finer or farther than the unit of the field")
	}
	return seconds*perSecond + int64(of.Nanosecond())/int64(unit), nil
}

// item adds an item of an array.
func (l *leaf) item(b []byte, h *npy.Header, order binary.ByteOrder) {
	var u uint64
	switch h.Size {
	case 1:
		u = uint64(b[0])
	case 2:
		u = uint64(order.Uint16(b))
	case 4:
		u = uint64(order.Uint32(b))
	case 8:
		u = order.Uint64(b)
	}
	switch {
	case h.Kind == 'b':
		l.bools = append(l.bools, u != 0)
	case h.Kind == 'f' && h.Size == 2:
		l.fixed = append(l.fixed, binary.LittleEndian.AppendUint16(nil, uint16(u)))
	case h.Kind == 'f' && h.Size == 4:
		l.f32 = append(l.f32, math.Float32frombits(uint32(u)))
	case h.Kind == 'f':
		l.f64 = append(l.f64, math.Float64frombits(u))
	case h.Size == 8:
		l.i64 = append(l.i64, int64(u))
	case h.Kind == 'i':
		shift := 64 - 8*h.Size
		l.i32 = append(l.i32, int32(int64(u<<shift)>>shift))
	default:
		l.i32 = append(l.i32, int32(uint32(u)))
	}
}
