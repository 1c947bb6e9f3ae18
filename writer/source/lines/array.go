package lines

import (
	"encoding/binary"
	"math"
	"strconv"

	"github.com/shardtool/shardtool/internal/npy"
)

const (
	// maxDims is the most dimensions of an array: that of NumPy 1.
	maxDims = 32
	// maxArray is the most bytes that an array may have.
	maxArray = 1 << 30
)

// array is a list of JSON as an array of NumPy: numbers or truth values, those of one length at each depth.
type array struct {
	b     []byte
	dims  []int
	known []bool // dims that a list has ended in
	at    []int  // elements so far, of the lists that are open
	count int
	kinds [kindBool + 1]bool
}

// read looks at a list that scanNested has looked at. It is no array where it is ragged, holds no number, or anything but numbers,
// or integers beyond 64 bits, which would lose digits.
func (a *array) read(b []byte) bool {
	a.b, a.count, a.kinds = b, 0, [kindBool + 1]bool{}
	a.dims, a.known, a.at = a.dims[:0], a.known[:0], a.at[:0]
	deepest := 0 // where values stand
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
			k, end, _ := scanPlain(b, i)
			if k == kindInteger && end-i > 18 {
				if _, err := strconv.ParseInt(string(b[i:end]), 10, 64); err != nil {
					return false
				}
			}
			a.kinds[k] = true
			a.at[depth-1]++
			a.count++
			i = end
		}
	}
	numbers := a.kinds[kindInteger] || a.kinds[kindNumber]
	return a.count > 0 && len(a.dims) == deepest && numbers != a.kinds[kindBool] && a.finite()
}

// finite says that no number is beyond float64.
func (a *array) finite() bool {
	if !a.kinds[kindNumber] {
		return true
	}
	ok := true
	a.each(func(v value) {
		f, _ := strconv.ParseFloat(string(v.b), 64)
		ok = ok && !math.IsInf(f, 0)
	})
	return ok
}

// each calls f for each element.
func (a *array) each(f func(v value)) {
	for i := 0; i < len(a.b); {
		switch c := a.b[i]; {
		case c == '-' || c >= '0' && c <= '9' || c == 't' || c == 'f':
			k, end, _ := scanPlain(a.b, i)
			f(value{k, a.b[i:end]})
			i = end
		default:
			i++
		}
	}
}

// size is how many bytes the elements take.
func (a *array) size() int64 {
	if a.kinds[kindBool] {
		return int64(a.count)
	}
	return 8 * int64(a.count)
}

// append appends the list that was read as a .npy file: int64 where all are integers, else float64; truth values are bool.
func (a *array) append(dst []byte) []byte {
	switch {
	case a.kinds[kindBool]:
		dst = npy.AppendHeader(dst, "|b1", a.dims...)
		a.each(func(v value) {
			b := byte(0)
			if v.b[0] == 't' {
				b = 1
			}
			dst = append(dst, b)
		})
	case a.kinds[kindNumber]:
		dst = npy.AppendHeader(dst, "<f8", a.dims...)
		a.each(func(v value) {
			f, _ := strconv.ParseFloat(string(v.b), 64)
			dst = binary.LittleEndian.AppendUint64(dst, math.Float64bits(f))
		})
	default:
		dst = npy.AppendHeader(dst, "<i8", a.dims...)
		a.each(func(v value) {
			n, _ := strconv.ParseInt(string(v.b), 10, 64)
			dst = binary.LittleEndian.AppendUint64(dst, uint64(n))
		})
	}
	return dst
}
