package parquet

import (
	"bytes"
	"encoding/binary"
	"math/big"
	"slices"
	"strconv"
	"time"

	pq "github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/metadata"

	"github.com/shardtool/shardtool/internal/curate/where"
)

// filter is one condition on a row.
type filter struct {
	where.Condition
	col  *column
	with operand
}

// operand is the value of a condition in each form that a column's type may need.
type operand struct {
	n    where.Number
	true bool
	b    []byte
	t    time.Time
	r    *big.Rat
}

// bind parses the value of the condition as the type of the column.
func (f *filter) bind(c *column) error {
	f.col = c
	if f.Nulls() || c.first == nil {
		return nil
	}
	bad := func(want string) error {
		return f.WordErrorf("column %s is of type %v: %s", c.name, c.first, want)
	}
	if c.first.shape != shapeScalar {
		return bad("only `is null` and `is not null` go with it")
	}
	var ok bool
	var err error
	switch s := c.first.leaf.scalar; s.class {
	case classInteger, classUnsigned, classHalf, classFloat, classDouble:
		if i := slices.Index(c.labels, f.Word); i >= 0 && s.family() == "integer" {
			f.Word = strconv.Itoa(i)
		}
		if f.with.n, ok = where.ParseNumber(f.Word); !ok {
			return bad("compare it with a number")
		}
	case classBool:
		if f.with.true, err = strconv.ParseBool(f.Word); err != nil || f.Op != "=" && f.Op != "!=" {
			return bad("write =true or =false")
		}
	case classDecimal:
		if f.with.r, ok = new(big.Rat).SetString(f.Word); !ok {
			return bad("compare it with a number")
		}
	case classDate, classTimestamp, classLegacyTime:
		f.with.t, err = time.Parse(time.RFC3339Nano, f.Word)
		if err != nil {
			f.with.t, err = time.Parse(time.DateOnly, f.Word)
		}
		if err != nil {
			return bad("compare it with a date such as 2024-12-31 or a time such as 2024-12-31T23:59:59Z")
		}
	default:
		f.with.b = []byte(f.Word)
	}
	return nil
}

// compare orders a value and the operand. ok is false if they have no order.
func (f *filter) compare(l *leafType, v value) (order int, ok bool) {
	s := l.scalar
	switch s.class {
	case classBool:
		if (s.integer(v) != 0) == f.with.true {
			return 0, true
		}
		return 1, true
	case classInteger:
		return f.with.n.CompareInt(s.integer(v))
	case classUnsigned:
		return f.with.n.CompareUint(uint64(s.integer(v)))
	case classHalf, classFloat, classDouble:
		return f.with.n.CompareFloat(s.float(v))
	case classDecimal:
		n := new(big.Rat).SetInt(unscaled(v, l.physical))
		n.Quo(n, new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(s.scale)), nil)))
		return n.Cmp(f.with.r), true
	case classDate, classTimestamp, classLegacyTime:
		return s.instant(v).Compare(f.with.t), true
	case classTime, classUUID:
		return bytes.Compare(l.appendText(nil, v), f.with.b), true
	}
	return bytes.Compare(v.b, f.with.b), true
}

// holds reports whether the condition holds for the current row of its column.
func (f *filter) holds() bool {
	if f.Nulls() || f.col.null {
		return f.Holds(f.col.null, 0, false)
	}
	order, ok := f.compare(&f.col.node.leaf, f.col.v)
	return f.Holds(false, order, ok)
}

// never reports whether the statistics of a row group prove that no row matches.
func (f *filter) never(l *leafType, stats metadata.TypedStatistics, rows int64) bool {
	if stats == nil {
		return false
	}
	if stats.HasNullCount() {
		switch n := stats.NullCount(); {
		case f.Op == "is null":
			return n == 0
		case n == rows:
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
	low, ok := f.compare(l, least)
	high, ok2 := f.compare(l, most)
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
