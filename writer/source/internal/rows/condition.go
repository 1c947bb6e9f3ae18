package rows

import (
	"bytes"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/shardtool/shardtool/internal/curate/where"
)

// Condition is one of the conditions of Choice.Where, with its value in each form that cells are
// compared with.
type Condition struct {
	where.Condition
	word      []byte
	number    where.Number
	isNumber  bool // the value is one
	truth     bool
	isTruth   bool // the value is a truth value, and the operator compares such
	time      time.Time
	precisely *big.Rat
}

func newCondition(parsed *where.Condition) *Condition {
	c := &Condition{Condition: *parsed, word: []byte(parsed.Word)}
	c.number, c.isNumber = parsed.Number()
	truth, err := strconv.ParseBool(c.Word)
	c.truth, c.isTruth = truth, err == nil && (c.Op == "=" || c.Op == "!=")
	return c
}

// Bind has the condition expect cells of one kind in its column, or nulls: it refuses a value that
// such a cell does not compare with. what is the column's type as errors name it, labels are the
// names of its integers.
func (c *Condition) Bind(kind Kind, what fmt.Stringer, labels []string) (err error) {
	bad := func(want string) error {
		return c.WordErrorf("column %s is of type %v: %s", c.Column, what, want)
	}
	if c.Nulls() {
		return nil
	}
	switch kind {
	case List:
		return bad("only `is null` and `is not null` go with it")
	case Integer, Unsigned, Float:
		if i := slices.Index(labels, c.Word); i >= 0 && kind != Float {
			c.Word = strconv.Itoa(i)
		}
		if c.number, c.isNumber = where.ParseNumber(c.Word); !c.isNumber {
			return bad("compare it with a number")
		}
	case Bool:
		if !c.isTruth {
			return bad("write =true or =false")
		}
	case Decimal:
		var ok bool
		if c.precisely, ok = new(big.Rat).SetString(c.Word); !ok {
			return bad("compare it with a number")
		}
	case Time:
		if c.time, err = time.Parse(time.RFC3339Nano, c.Word); err != nil {
			c.time, err = time.Parse(time.DateOnly, c.Word)
		}
		if err != nil {
			return bad("compare it with a date such as 2024-12-31 or a time such as 2024-12-31T23:59:59Z")
		}
	case Text, Bytes:
		if c.Orders() && c.isNumber {
			return c.Letters(fmt.Sprintf("column %s is of type %v", c.Column, what))
		}
	}
	return nil
}

// Of reports whether the condition holds for a cell. It refuses to order a number and text, which
// would pass or drop rows by letters.
func (c *Condition) Of(cell *Cell) (bool, error) {
	if cell.Kind <= Null || c.Nulls() {
		return c.Holds(cell.Kind <= Null, 0, false), nil
	}
	if c.Orders() {
		if err := c.ordered(cell); err != nil {
			return false, err
		}
	}
	order, ok := c.Compare(cell)
	return c.Holds(false, order, ok), nil
}

// ordered refuses a cell that is a number if the value of the condition is not, and the reverse.
func (c *Condition) ordered(cell *Cell) error {
	number := false
	switch cell.Kind {
	case Text, Bytes:
	case Word:
		if number = where.Decimal(cell.B); !number && c.isNumber {
			f, err := strconv.ParseFloat(string(cell.B), 64)
			number = err == nil && f != f // NaN
		}
	case Digits, Number, Integer, Unsigned, Float:
		number = true
	case Decimal, Time: // Bind has compared the types
		return nil
	default: // an array of one number has an order
		if _, number = cell.Float(); number && c.isNumber {
			return nil
		}
		return c.WordErrorf("column %s is %v here, which has no order", c.Column, cell.Kind)
	}
	if number == c.isNumber || number && cell.Kind == Word && c.Quoted {
		return nil
	}
	value := string(cell.appendText(nil))
	if cell.Kind == Float {
		f, _ := cell.Float()
		value = strconv.FormatFloat(f, 'g', -1, 64)
	}
	if len(value) > 40 {
		value = value[:40] + "…"
	}
	if c.isNumber {
		return c.WordErrorf("column %s is %q here, which is no number: put `%s != '%s' and` before the condition to "+
			"leave such rows out, or write %s %s '%s' to compare letters", c.Column, value, c.Column,
			strings.ReplaceAll(value, "'", "''"), c.Column, c.Op, c.Word)
	}
	letters := ""
	if cell.Kind == Word {
		letters = fmt.Sprintf(", or %s %s '%s' to compare letters", c.Column, c.Op, c.Word)
	}
	return c.WordErrorf("column %s is the number %s here, and %q is none: write a number such as 0.5, without a unit%s",
		c.Column, value, c.Word, letters)
}

// Compare orders a cell that is not null and the value of the condition. ok is false if they have
// no order. Strings compare as bytes, numbers as numbers; a Word compares as a number if the value
// of the condition is a number without quotes.
func (c *Condition) Compare(cell *Cell) (order int, ok bool) {
	switch {
	case cell.Kind == Text, cell.Kind == Bytes, cell.Kind == Word && !c.isNumber:
		return bytes.Compare(cell.B, c.word), true
	case cell.Kind == Bool:
		if c.isTruth && c.truth != (cell.B[0] == 't') {
			order = 1
		}
		return order, c.isTruth
	case cell.Kind == Decimal:
		r, ok := new(big.Rat).SetString(string(cell.B))
		return r.Cmp(c.precisely), ok
	case cell.Kind == Time:
		return time.Unix(int64(cell.N), int64(cell.Nano)).Compare(c.time), true
	case !c.isNumber:
		return 0, false
	case cell.Kind == Unsigned:
		return c.number.CompareUint(cell.N)
	}
	if n, ok := cell.Integer(); ok {
		return c.number.CompareInt(n)
	}
	f, ok := cell.Float()
	if !ok {
		return 0, false
	}
	if cell.Kind == Digits || cell.Kind == Word { // beyond the integers with a sign
		if n, err := strconv.ParseUint(string(cell.B), 10, 64); err == nil {
			return c.number.CompareUint(n)
		}
	}
	return c.number.CompareFloat(f)
}
