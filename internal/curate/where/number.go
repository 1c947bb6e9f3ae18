package where

import (
	"cmp"
	"math"
	"math/big"
	"strconv"
)

// Number is a number that values are compared with. Integers compare with it exactly, whatever its
// size; floating-point values compare with the float64 nearest to it.
type Number struct {
	float    float64
	signed   bound[int64]
	unsigned bound[uint64]
}

// bound places a number among integers of a type: it is the integer at, or beyond that towards the
// sign of beyond.
type bound[T int64 | uint64] struct {
	at     T
	beyond int
}

func (b bound[T]) compare(n T) int {
	if n == b.at {
		return -b.beyond
	}
	return cmp.Compare(n, b.at)
}

// ParseNumber parses a number as strconv.ParseFloat does, but keeps all its digits. A number too
// close to 0 for a float64 is 0. ok is false if it is not a number, or too large for a float64.
func ParseNumber(word string) (n Number, ok bool) {
	f, err := strconv.ParseFloat(word, 64)
	if err != nil {
		return n, false
	}
	n.float = f
	if !(math.Abs(f) < 1<<65) { // beyond both ranges, or not a number
		n.signed, n.unsigned = bound[int64]{math.MaxInt64, 1}, bound[uint64]{math.MaxUint64, 1}
		if f < 0 {
			n.signed, n.unsigned = bound[int64]{math.MinInt64, -1}, bound[uint64]{0, -1}
		}
		return n, true
	}
	exact, rest := new(big.Int), 0
	if math.Abs(f) >= 1 { // a smaller number may have an exponent that takes much memory
		r, parsed := new(big.Rat).SetString(word)
		if !parsed {
			r = new(big.Rat).SetFloat64(f)
		}
		exact.Div(r.Num(), r.Denom()) // rounds down: the denominator is positive
		if !r.IsInt() {
			rest = 1
		}
	} else if f != 0 {
		rest = int(math.Copysign(1, f))
	}
	switch {
	case exact.IsInt64():
		n.signed = bound[int64]{exact.Int64(), rest}
	case exact.Sign() < 0:
		n.signed = bound[int64]{math.MinInt64, -1}
	default:
		n.signed = bound[int64]{math.MaxInt64, 1}
	}
	switch {
	case exact.IsUint64():
		n.unsigned = bound[uint64]{exact.Uint64(), rest}
	case exact.Sign() < 0:
		n.unsigned = bound[uint64]{0, -1}
	default:
		n.unsigned = bound[uint64]{math.MaxUint64, 1}
	}
	return n, true
}

// Number returns the value of the condition as a number. ok is false if the value is in quotes,
// which make it text, or not decimal: ParseNumber accepts more, such as "inf" and "0x1p4", which
// are rarely meant as numbers.
func (c *Condition) Number() (n Number, ok bool) {
	if c.Quoted || !Decimal(c.Word) {
		return n, false
	}
	return ParseNumber(c.Word)
}

// Decimal reports whether text is a decimal number, as far as its characters show.
func Decimal[T string | []byte](text T) bool {
	digits := 0
	for i := range len(text) {
		switch c := text[i]; {
		case c >= '0' && c <= '9':
			digits++
		case c == '-' || c == '+':
			if i > 0 && text[i-1] != 'e' && text[i-1] != 'E' {
				return false
			}
		case c != '.' && (c != 'e' && c != 'E' || digits == 0):
			return false
		}
	}
	return digits > 0
}

// CompareInt orders a value and the number. ordered is false if the number is NaN.
func (n *Number) CompareInt(value int64) (order int, ordered bool) {
	return n.signed.compare(value), n.float == n.float
}

// CompareUint orders a value and the number. ordered is false if the number is NaN.
func (n *Number) CompareUint(value uint64) (order int, ordered bool) {
	return n.unsigned.compare(value), n.float == n.float
}

// CompareFloat orders a value and the number. ordered is false if one of them is NaN.
func (n *Number) CompareFloat(value float64) (order int, ordered bool) {
	return cmp.Compare(value, n.float), value == value && n.float == n.float
}
