package parquet

import (
	"encoding/binary"
	"math"

	pq "github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/metadata"

	"github.com/shardtool/shardtool/writer/source/internal/rows"
)

// kind is what the cells of a column of the type are.
func (n *node) kind() rows.Kind {
	if n.shape != shapeScalar {
		return rows.List
	}
	return kindOf[n.leaf.scalar.class]
}

// kindOf are the kinds of cells by the classes of values.
var kindOf = [...]rows.Kind{
	classBinary: rows.Text, classText: rows.Text, classJSON: rows.Text, classBSON: rows.Text, classInteger: rows.Integer,
	classUnsigned: rows.Unsigned, classHalf: rows.Float, classFloat: rows.Float, classDouble: rows.Float,
	classBool: rows.Bool, classDecimal: rows.Decimal, classDate: rows.Time, classTime: rows.Text,
	classTimestamp: rows.Time, classLegacyTime: rows.Time, classUUID: rows.Text, classNull: rows.Null, classOther: rows.Text,
}

// set sets a cell to a value that is not null.
func (l *leafType) set(c *rows.Cell, v value) {
	s := l.scalar
	c.Kind, c.B = kindOf[s.class], v.b
	switch s.class {
	case classInteger, classUnsigned:
		c.N = uint64(s.integer(v))
	case classHalf, classFloat, classDouble:
		c.N = math.Float64bits(s.float(v))
	case classDate, classTimestamp, classLegacyTime:
		t := s.instant(v)
		c.N, c.Nano = uint64(t.Unix()), uint32(t.Nanosecond())
	case classBool, classDecimal, classTime, classUUID:
		c.B = l.appendText(nil, v)
	}
}

// neverWithin reports whether the statistics of a row group prove that no row matches.
func neverWithin(f *rows.Condition, l *leafType, stats metadata.TypedStatistics, count int64) bool {
	if stats == nil {
		return false
	}
	if stats.HasNullCount() {
		switch n := stats.NullCount(); {
		case f.Op == "is null":
			return n == 0
		case n == count:
			return true
		}
	}
	if f.Nulls() || !stats.HasMinMax() {
		return false
	}
	least, ok := plainValue(l.physical, stats.EncodeMin())
	most, ok2 := plainValue(l.physical, stats.EncodeMax())
	if !ok || !ok2 {
		return false
	}
	switch l.scalar.class {
	case classFloat, classDouble:
		if f.Unordered { // statistics leave out NaN
			return false
		}
	case classInteger, classUnsigned, classDate, classTimestamp, classText:
	default: // the order of their statistics differs or is not specified
		return false
	}
	var first, last rows.Cell
	l.set(&first, least)
	l.set(&last, most)
	low, ok := f.Compare(&first)
	high, ok2 := f.Compare(&last)
	if !ok || !ok2 {
		return false
	}
	switch f.Op {
	case "=":
		return low > 0 || high < 0
	case "!=":
		exact := l.scalar.class == classInteger || l.scalar.class == classUnsigned
		return exact && low == 0 && high == 0
	case "<":
		return low >= 0
	case "<=":
		return low > 0
	case ">":
		return high <= 0
	}
	return high < 0
}

// plainValue decodes a value in plain encoding. Byte strings have no length prefix.
func plainValue(physical pq.Type, raw []byte) (value, bool) {
	switch physical {
	case pq.Types.Int32, pq.Types.Float:
		if len(raw) == 4 {
			return value{u: uint64(binary.LittleEndian.Uint32(raw))}, true
		}
	case pq.Types.Int64, pq.Types.Double:
		if len(raw) == 8 {
			return value{u: binary.LittleEndian.Uint64(raw)}, true
		}
	case pq.Types.ByteArray:
		return value{b: raw}, true
	}
	return value{}, false
}
