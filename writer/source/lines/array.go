package lines

import (
	"encoding/binary"
	"math"
	"strconv"

	"github.com/shardtool/shardtool/internal/format/npy"
	"github.com/shardtool/shardtool/writer/source/internal/rows"
)

const (
	// maxDims is the maximum number of dimensions, as in NumPy 1.
	maxDims = 32
	// maxArray is the maximum size of an array in bytes.
	maxArray = 1 << 30
)

// array converts a JSON list to a NumPy array. The list holds numbers or booleans, and lists at the
// same depth have the same length.
type array struct {
	b     []byte
	dims  []int
	known []bool // dimensions that a closed list has fixed
	at    []int  // elements so far of each open list
	count int
	kinds [rows.Bool + 1]bool
}

// read parses a list that scanNested has checked. It returns false if the list is not an array: it
// is ragged, holds no number, mixes types, or has integers beyond 64 bits, or beyond 53 beside
// fractions, which would lose digits.
func (a *array) read(b []byte) bool {
	a.b, a.count, a.kinds = b, 0, [rows.Bool + 1]bool{}
	a.dims, a.known, a.at = a.dims[:0], a.known[:0], a.at[:0]
	wide := false // an integer is beyond those that float64 has
	deepest := 0  // the depth of values
	for i := 0; i < len(b); {
		switch b[i] {
		case '[':
			depth := len(a.at)
			if depth == maxDims || deepest > 0 && depth >= deepest {
				return false
			}
			if depth > 0 {
				a.at[depth-1]++
			}
			if a.at = append(a.at, 0); len(a.dims) <= depth {
				a.dims, a.known = append(a.dims, 0), append(a.known, false)
			}
			i++
		case ']':
			depth := len(a.at) - 1
			n := a.at[depth]
			if n == 0 || a.known[depth] && a.dims[depth] != n {
				return false
			}
			a.dims[depth], a.known[depth] = n, true
			a.at = a.at[:depth]
			i++
		case ' ', ',', '\t', '\r', '\n':
			i++
		case '"', '{', 'n':
			return false
		default:
			depth := len(a.at)
			if deepest == 0 {
				deepest = depth
			}
			if depth != deepest {
				return false
			}
			k, end, _ := scanNumber(b, i)
			if k == rows.Digits && end-i > 15 {
				n, err := strconv.ParseInt(string(b[i:end]), 10, 64)
				if err != nil {
					return false
				}
				wide = wide || n > 1<<53 || n < -1<<53
			}
			a.kinds[k] = true
			a.at[depth-1]++
			a.count++
			i = end
		}
	}
	if wide && a.kinds[rows.Number] {
		return false
	}
	numbers := a.kinds[rows.Digits] || a.kinds[rows.Number]
	return a.count > 0 && len(a.dims) == deepest && numbers != a.kinds[rows.Bool] && a.finite()
}

// finite reports whether every number fits in a float64.
func (a *array) finite() bool {
	if !a.kinds[rows.Number] {
		return true
	}
	ok := true
	a.each(func(b []byte) {
		_, err := strconv.ParseFloat(string(b), 64)
		ok = ok && err == nil
	})
	return ok
}

// each calls f for each element.
func (a *array) each(f func(b []byte)) {
	for i := 0; i < len(a.b); {
		switch c := a.b[i]; {
		case c == '-' || c >= '0' && c <= '9' || c == 't' || c == 'f' || c == 'N' || c == 'I':
			_, end, _ := scanNumber(a.b, i)
			f(a.b[i:end])
			i = end
		default:
			i++
		}
	}
}

// size returns the size of the elements in bytes.
func (a *array) size() int64 {
	if a.kinds[rows.Bool] {
		return int64(a.count)
	}
	return 8 * int64(a.count)
}

// append appends the list as a .npy file: int64 if every number is an integer, else float64;
// booleans are bool.
func (a *array) append(dst []byte) []byte {
	switch {
	case a.kinds[rows.Bool]:
		dst = npy.AppendHeader(dst, "|b1", a.dims...)
		a.each(func(b []byte) {
			bit := byte(0)
			if b[0] == 't' {
				bit = 1
			}
			dst = append(dst, bit)
		})
	case a.kinds[rows.Number]:
		dst = npy.AppendHeader(dst, "<f8", a.dims...)
		a.each(func(b []byte) {
			f, _ := strconv.ParseFloat(string(b), 64)
			dst = binary.LittleEndian.AppendUint64(dst, math.Float64bits(f))
		})
	default:
		dst = npy.AppendHeader(dst, "<i8", a.dims...)
		a.each(func(b []byte) {
			n, _ := strconv.ParseInt(string(b), 10, 64)
			dst = binary.LittleEndian.AppendUint64(dst, uint64(n))
		})
	}
	return dst
}
