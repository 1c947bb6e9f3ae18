package parquet

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"

	pq "github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/metadata"
)

// filter is one condition on a row.
type filter struct {
	text   string
	column string
	op     string
	word   string // what the user compares with
	col    *column
	with   operand
}

// operand is the word in every form that a column's type may want.
type operand struct {
	i        int64
	u        uint64
	f        float64
	isI, isU bool
	b        []byte
	t        time.Time
	r        *big.Rat
}

// The operators, longer ones first.
var operators = []string{"!=", "<=", ">=", "=", "<", ">"}

// parseFilter reads a condition. A word may stand in single or double quotes.
func parseFilter(text string) (*filter, error) {
	f := &filter{text: text}
	words := strings.Fields(text)
	if n := len(words); n >= 3 && strings.EqualFold(words[n-2], "is") && strings.EqualFold(words[n-1], "null") {
		f.op = "is null"
		f.column = strings.TrimSpace(text[:len(text)-len(lastWords(text, 2))])
		return f, nil
	} else if n >= 4 && strings.EqualFold(strings.Join(words[n-3:], " "), "is not null") {
		f.op = "is not null"
		f.column = strings.TrimSpace(text[:len(text)-len(lastWords(text, 3))])
		return f, nil
	}
	at := strings.IndexAny(text, "!=<>")
	if at > 0 {
		for _, op := range operators {
			if rest, ok := strings.CutPrefix(text[at:], op); ok {
				f.column, f.op, f.word = strings.TrimSpace(text[:at]), op, strings.TrimSpace(rest)
				break
			}
		}
	}
	if f.op == "" || f.column == "" {
		return nil, optionf("where %q: write a column, one of = != < <= > >=, and a value; or `col is null`, `col is not null`", text)
	}
	if n := len(f.word); n >= 2 && (f.word[0] == '"' || f.word[0] == '\'') && f.word[n-1] == f.word[0] {
		f.word = f.word[1 : n-1]
	}
	return f, nil
}

// lastWords is the end of text that begins with its nth last word.
func lastWords(text string, n int) string {
	end := strings.TrimRight(text, " \t")
	for range n {
		end = strings.TrimRight(end, " \t")
		end = end[:strings.LastIndexAny(end, " \t")+1]
	}
	return text[len(end):]
}

func (f *filter) nulls() bool { return f.op == "is null" || f.op == "is not null" }

// bind reads the word as a value of the column.
func (f *filter) bind(c *column) error {
	f.col = c
	if f.nulls() || c.first == nil {
		return nil
	}
	bad := func(want string) error {
		return optionf("where %q: column %s is of type %v: %s", f.text, c.name, c.first, want)
	}
	if c.first.shape != shapeScalar {
		return bad("only `is null` and `is not null` go with it")
	}
	var err error
	switch c.first.leaf.scalar.class {
	case classInteger, classUnsigned:
		if i := slices.Index(c.labels, f.word); i >= 0 {
			f.word = strconv.Itoa(i)
		}
		f.with.i, err = strconv.ParseInt(f.word, 10, 64)
		f.with.isI = err == nil
		if err != nil {
			f.with.u, err = strconv.ParseUint(f.word, 10, 64)
			f.with.isU = err == nil
		}
		if err != nil {
			f.with.f, err = strconv.ParseFloat(f.word, 64)
		}
		if err != nil {
			return bad("compare it with a number")
		}
	case classHalf, classFloat, classDouble:
		if f.with.f, err = strconv.ParseFloat(f.word, 64); err != nil {
			return bad("compare it with a number")
		}
	case classBool:
		is, err := strconv.ParseBool(f.word)
		if err != nil || f.op != "=" && f.op != "!=" {
			return bad("write =true or =false")
		}
		if is {
			f.with.i = 1
		}
		f.with.isI = true
	case classDecimal:
		var ok bool
		if f.with.r, ok = new(big.Rat).SetString(f.word); !ok {
			return bad("compare it with a number")
		}
	case classDate, classTimestamp, classLegacyTime:
		f.with.t, err = time.Parse(time.RFC3339Nano, f.word)
		if err != nil {
			f.with.t, err = time.Parse(time.DateOnly, f.word)
		}
		if err != nil {
			return bad("compare it with a date such as 2024-12-31 or a time such as 2024-12-31T23:59:59Z")
		}
	default:
		f.with.b = []byte(f.word)
	}
	return nil
}

// compare orders a value and the operand; ok is false where they have no order.
func (f *filter) compare(l *leafType, v value) (order int, ok bool) {
	s := l.scalar
	switch s.class {
	case classInteger, classUnsigned, classBool:
		n := s.integer(v)
		wide := s.class == classUnsigned && s.bits == 64 && n < 0 // above what int64 holds
		switch {
		case f.with.isI && wide, f.with.isI && f.with.i < 0 && s.class == classUnsigned:
			return 1, true
		case f.with.isI:
			return cmp.Compare(n, f.with.i), true
		case f.with.isU && wide:
			return cmp.Compare(uint64(n), f.with.u), true
		case f.with.isU:
			return -1, true
		case wide:
			return cmp.Compare(float64(uint64(n)), f.with.f), true
		}
		return cmp.Compare(float64(n), f.with.f), true
	case classHalf, classFloat, classDouble:
		x := s.float(v)
		return cmp.Compare(x, f.with.f), x == x && f.with.f == f.with.f
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

// holds says whether a condition holds for the row that its column has loaded.
func (f *filter) holds() bool {
	null := f.col.null
	switch {
	case f.op == "is null":
		return null
	case f.op == "is not null":
		return !null
	case null:
		return false
	}
	order, ok := f.compare(&f.col.node.leaf, f.col.v)
	switch {
	case f.op == "!=":
		return !ok || order != 0
	case !ok:
		return false
	case f.op == "=":
		return order == 0
	case f.op == "<":
		return order < 0
	case f.op == "<=":
		return order <= 0
	case f.op == ">":
		return order > 0
	}
	return order >= 0
}

// never says that no row of a group can match, by what its statistics say of the column.
func (f *filter) never(l *leafType, stats metadata.TypedStatistics, rows int64) bool {
	if stats == nil {
		return false
	}
	if stats.HasNullCount() {
		switch n := stats.NullCount(); {
		case f.op == "is null":
			return n == 0
		case n == rows:
			return true
		}
	}
	if f.nulls() || !stats.HasMinMax() {
		return false
	}
	least, ok := plainValue(l.physical, stats.EncodeMin())
	most, ok2 := plainValue(l.physical, stats.EncodeMax())
	if !ok || !ok2 {
		return false
	}
	switch l.scalar.class {
	case classInteger, classUnsigned, classFloat, classDouble, classDate, classTimestamp, classText:
	default: // their order in statistics is another, or not agreed upon
		return false
	}
	low, ok := f.compare(l, least)
	high, ok2 := f.compare(l, most)
	if !ok || !ok2 {
		return false
	}
	switch f.op {
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

// plainValue reads a value in plain encoding, byte strings without their length.
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
