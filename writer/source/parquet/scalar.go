package parquet

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"time"

	"github.com/apache/arrow/go/v17/arrow"
	pq "github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/schema"

	"github.com/shardtool/shardtool/internal/format/npy"
	"github.com/shardtool/shardtool/internal/input/kinds"
)

// class is the meaning of a column's values.
type class int

const (
	classBinary class = iota
	classText
	classJSON
	classBSON
	classInteger
	classUnsigned
	classHalf
	classFloat
	classDouble
	classBool
	classDecimal
	classDate
	classTime
	classTimestamp
	classLegacyTime // 96-bit timestamps of old writers
	classUUID
	classNull
	classOther // not read
)

var classNames = map[class]string{
	classBinary: "binary", classText: "string", classJSON: "json", classBSON: "bson", classHalf: "float16",
	classFloat:  "float32",
	classDouble: "float64", classBool: "bool", classDecimal: "decimal", classDate: "date", classTime: "time",
	classTimestamp:  "timestamp",
	classLegacyTime: "timestamp", classUUID: "uuid", classNull: "null",
}

// scalar is the type of a leaf.
type scalar struct {
	class class
	bits  int           // width of integers
	scale int           // decimals
	unit  time.Duration // unit of times, timestamps and durations
	late  bool          // it is stated beside the schema
	name  string        // of classOther
	exact string        // the type in the words of Hugging Face, where String says less
}

// value is one value: a number as the low bits of its physical type in u, or a byte string in b.
type value struct {
	u uint64
	b []byte
}

func scalarOf(n *schema.PrimitiveNode) scalar {
	physical := n.PhysicalType()
	switch t := n.LogicalType().(type) {
	case schema.StringLogicalType, schema.EnumLogicalType:
		return scalar{class: classText}
	case schema.JSONLogicalType:
		return scalar{class: classJSON}
	case schema.BSONLogicalType:
		return scalar{class: classBSON}
	case *schema.IntLogicalType:
		if t.IsSigned() {
			return scalar{class: classInteger, bits: int(t.BitWidth())}
		}
		return scalar{class: classUnsigned, bits: int(t.BitWidth())}
	case *schema.DecimalLogicalType:
		return decimalOf(t.Precision(), t.Scale())
	case schema.DateLogicalType:
		return scalar{class: classDate, exact: "date32"}
	case *schema.TimeLogicalType:
		return timeOf(unitOf(t.TimeUnit()))
	case *schema.TimestampLogicalType:
		zone := ""
		if t.IsAdjustedToUTC() && !t.IsFromConvertedType() { // as Arrow reads it
			zone = "UTC"
		}
		return timestampOf(unitOf(t.TimeUnit()), zone)
	case schema.UUIDLogicalType:
		return scalar{class: classUUID}
	case schema.Float16LogicalType:
		return scalar{class: classHalf}
	case schema.NullLogicalType:
		return scalar{class: classNull}
	}
	switch physical {
	case pq.Types.Boolean:
		return scalar{class: classBool}
	case pq.Types.Int32:
		return scalar{class: classInteger, bits: 32}
	case pq.Types.Int64:
		return scalar{class: classInteger, bits: 64}
	case pq.Types.Int96:
		return scalar{class: classLegacyTime, exact: "timestamp[ns]"}
	case pq.Types.Float:
		return scalar{class: classFloat}
	case pq.Types.Double:
		return scalar{class: classDouble}
	case pq.Types.FixedLenByteArray:
		return scalar{class: classBinary, exact: fmt.Sprintf("fixed_size_binary[%d]", n.TypeLength())}
	}
	return scalar{class: classBinary}
}

func decimalOf(precision, scale int32) scalar {
	bits := 128
	if precision > 38 {
		bits = 256
	}
	return scalar{class: classDecimal, scale: int(scale), exact: fmt.Sprintf("decimal%d(%d, %d)", bits, precision,
		scale)}
}

func timeOf(unit time.Duration) scalar {
	bits := 64
	if unit >= time.Millisecond {
		bits = 32
	}
	return scalar{class: classTime, unit: unit, exact: fmt.Sprintf("time%d[%s]", bits, kinds.UnitName(unit))}
}

// durationOf returns integers of a unit. late reports that the column's type does not state it.
func durationOf(t *arrow.DurationType, late bool) scalar {
	return scalar{class: classInteger, bits: 64, unit: t.Unit.Multiplier(), exact: t.String(), late: late}
}

// duration reports whether integers are durations.
func (s scalar) duration() bool { return s.class == classInteger && s.unit != 0 }

// unitStated reports whether the feature of the field has a unit that it did not have before
// columns kept their form.
func (s scalar) unitStated() bool { return s.class == classTime || s.late }

func timestampOf(unit time.Duration, zone string) scalar {
	if zone != "" {
		zone = ", tz=" + zone
	}
	return scalar{class: classTimestamp, unit: unit, exact: fmt.Sprintf("timestamp[%s%s]", kinds.UnitName(unit), zone)}
}

// String returns Arrow's name of the type.
func (s scalar) String() string {
	switch s.class {
	case classInteger:
		return fmt.Sprintf("int%d", s.bits)
	case classUnsigned:
		return fmt.Sprintf("uint%d", s.bits)
	case classOther:
		return s.name
	}
	return classNames[s.class]
}

// family is equal for types that one column may have in different files.
func (s scalar) family() string {
	switch s.class {
	case classInteger, classUnsigned:
		return "integer"
	case classHalf, classFloat, classDouble:
		return "float"
	}
	return classNames[s.class]
}

// rawFields are the classes whose values become fields unchanged, and what these are.
var rawFields = map[class]struct{ extension, kind string }{
	classBinary: {"bin", "bytes"}, classText: {"txt", "txt"}, classJSON: {"json", "json"}, classBSON: {"bson", "bytes"},
}

// raw reports whether values become fields unchanged.
func (s scalar) raw() bool { return rawFields[s.class].kind != "" }

// integer returns the value of an integer or boolean with its sign.
func (s scalar) integer(v value) int64 {
	switch {
	case s.class == classBool:
		return int64(v.u & 1)
	case s.class == classUnsigned && s.bits == 64:
		return int64(v.u)
	case s.class == classUnsigned:
		return int64(v.u & (1<<s.bits - 1))
	case s.bits == 64 || s.bits == 0:
		return int64(v.u)
	}
	return int64(v.u<<(64-s.bits)) >> (64 - s.bits)
}

// float returns the value of a floating-point number.
func (s scalar) float(v value) float64 {
	switch s.class {
	case classHalf:
		if len(v.b) < 2 {
			return math.NaN()
		}
		return npy.Half(binary.LittleEndian.Uint16(v.b))
	case classFloat:
		return float64(math.Float32frombits(uint32(v.u)))
	}
	return math.Float64frombits(v.u)
}

// unscaled returns a decimal's integer.
func unscaled(v value, physical pq.Type) *big.Int {
	switch physical {
	case pq.Types.Int32:
		return big.NewInt(int64(int32(v.u)))
	case pq.Types.Int64:
		return big.NewInt(int64(v.u))
	}
	n := new(big.Int).SetBytes(v.b)
	if len(v.b) > 0 && v.b[0] >= 0x80 { // two's complement
		n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(8*len(v.b))))
	}
	return n
}

func appendDecimal(dst []byte, n *big.Int, scale int) []byte {
	if n.Sign() < 0 {
		dst = append(dst, '-')
		n = new(big.Int).Neg(n)
	}
	digits := n.String()
	for len(digits) <= scale {
		digits = "0" + digits
	}
	dst = append(dst, digits[:len(digits)-scale]...)
	if scale > 0 {
		dst = append(append(dst, '.'), digits[len(digits)-scale:]...)
	}
	return dst
}

// appendText appends a value as text.
func (l *leafType) appendText(dst []byte, v value) []byte {
	s := l.scalar
	switch s.class {
	case classInteger:
		return strconv.AppendInt(dst, s.integer(v), 10)
	case classUnsigned:
		return strconv.AppendUint(dst, uint64(s.integer(v)), 10)
	case classHalf, classFloat:
		return strconv.AppendFloat(dst, s.float(v), 'g', -1, 32)
	case classDouble:
		return strconv.AppendFloat(dst, s.float(v), 'g', -1, 64)
	case classBool:
		return strconv.AppendBool(dst, v.u&1 != 0)
	case classDecimal:
		return appendDecimal(dst, unscaled(v, l.physical), s.scale)
	case classDate:
		return s.instant(v).AppendFormat(dst, time.DateOnly)
	case classTime:
		return time.Unix(0, l.ofDay(v)*int64(s.unit)).UTC().AppendFormat(dst, "15:04:05.999999999")
	case classTimestamp, classLegacyTime:
		return s.instant(v).AppendFormat(dst, time.RFC3339Nano)
	case classUUID:
		if len(v.b) == 16 {
			return fmt.Appendf(dst, "%x-%x-%x-%x-%x", v.b[:4], v.b[4:6], v.b[6:8], v.b[8:10], v.b[10:])
		}
	}
	return append(dst, v.b...)
}

// appendJSON appends a value as JSON. Bytes are in base64, and numbers that JSON cannot express are
// strings.
func (l *leafType) appendJSON(dst []byte, v value) []byte {
	s := l.scalar
	switch s.class {
	case classInteger, classUnsigned, classBool:
		return l.appendText(dst, v)
	case classHalf, classFloat, classDouble:
		switch f := s.float(v); {
		case math.IsNaN(f):
			return append(dst, `"NaN"`...)
		case math.IsInf(f, 1):
			return append(dst, `"Infinity"`...)
		case math.IsInf(f, -1):
			return append(dst, `"-Infinity"`...)
		}
		from := len(dst)
		dst = l.appendText(dst, v)
		if !bytes.ContainsAny(dst[from:], ".e") { // a whole number, which would read back as an integer
			dst = append(dst, ".0"...)
		}
		return dst
	case classBinary, classBSON:
		dst = append(dst, '"')
		dst = base64.StdEncoding.AppendEncode(dst, v.b)
		return append(dst, '"')
	case classJSON:
		if json.Valid(v.b) {
			return append(dst, v.b...)
		}
	}
	return appendQuoted(dst, l.appendText(nil, v))
}

// appendQuoted appends a JSON string. Invalid UTF-8 becomes U+FFFD, as in the names of members.
func appendQuoted(dst, text []byte) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	for _, r := range string(text) { // ranging replaces invalid bytes
		switch {
		case r == '"' || r == '\\':
			dst = append(dst, '\\', byte(r))
		case r == '\n':
			dst = append(dst, `\n`...)
		case r < 0x20 || r == 0x7f:
			dst = append(dst, '\\', 'u', '0', '0', hex[r>>4], hex[r&15])
		default:
			dst = append(dst, string(r)...)
		}
	}
	return append(dst, '"')
}

// dtype returns NumPy's name of the type and its size in bytes, or "" if NumPy has none.
func (s scalar) dtype() (name string, size int) {
	switch s.class {
	case classInteger, classUnsigned:
		kind := "i"
		if s.class == classUnsigned {
			kind = "u"
		}
		order := "<"
		if s.bits == 8 {
			order = "|"
		}
		return order + kind + strconv.Itoa(s.bits/8), s.bits / 8
	case classHalf:
		return "<f2", 2
	case classFloat:
		return "<f4", 4
	case classDouble:
		return "<f8", 8
	case classBool:
		return "|b1", 1
	}
	return "", 0
}

func unitOf(u schema.TimeUnitType) time.Duration {
	switch u {
	case schema.TimeUnitMillis:
		return time.Millisecond
	case schema.TimeUnitMicros:
		return time.Microsecond
	}
	return time.Nanosecond
}

// instant returns the time of a date or timestamp.
func (s scalar) instant(v value) time.Time {
	switch s.class {
	case classDate:
		return time.Unix(int64(int32(v.u))*86400, 0).UTC()
	case classLegacyTime: // nanoseconds of the day and the Julian day
		const epoch = 2440588 // Julian day of 1970-01-01
		nanos, day := legacy(v)
		return time.Unix((int64(day)-epoch)*86400+int64(nanos/1e9), int64(nanos%1e9)).UTC()
	}
	perSecond := int64(time.Second / s.unit)
	n := int64(v.u)
	seconds := n / perSecond
	if n%perSecond < 0 {
		seconds--
	}
	return time.Unix(seconds, (n-seconds*perSecond)*int64(s.unit)).UTC()
}

// legacy returns the nanoseconds of the day and the Julian day of a 96-bit timestamp.
func legacy(v value) (nanos uint64, day uint32) {
	return binary.LittleEndian.Uint64(v.b), binary.LittleEndian.Uint32(v.b[8:])
}

// checkTime refuses a time outside of a day, and 96-bit timestamps out of range. Writers whose
// numbers overflowed leave such values, and any text of them would be another time.
func (l *leafType) checkTime(v value) error {
	s := l.scalar
	switch s.class {
	case classTime:
		if n := l.ofDay(v); n < 0 || n >= int64(24*time.Hour/s.unit) {
			return fmt.Errorf("it has a time of %d times %v, which is not a time of day", n, s.unit)
		}
	case classLegacyTime:
		if nanos, day := legacy(v); nanos >= uint64(24*time.Hour) || day > math.MaxInt32 {
			return fmt.Errorf("it has a 96-bit timestamp at %d nanoseconds of the Julian day %d, which is not a time",
				nanos, day)
		}
	}
	return nil
}

// number returns the type and the value of the column as an array: times of day are integers.
func (l *leafType) number(v value) (scalar, value) {
	if l.scalar.class == classTime {
		return wholeNumber, value{u: uint64(l.ofDay(v))}
	}
	return l.scalar, v
}

// appendArray appends the value as a .npy file without a dimension.
func (l *leafType) appendArray(dst []byte, v value) []byte {
	s, v := l.number(v)
	dtype, _ := s.dtype()
	return s.appendRaw(npy.AppendHeader[int](dst, dtype), v)
}

// wholeNumber is the type of times of day, in their unit.
var wholeNumber = scalar{class: classInteger, bits: 64}

// ofDay returns a time of day in its unit.
func (l *leafType) ofDay(v value) int64 {
	if l.physical == pq.Types.Int32 {
		return int64(int32(v.u))
	}
	return int64(v.u)
}
