// Package cost computes what the samples of a batch cost, and deals a batch out to ranks so that
// their parts cost nearly the same (ORDER.md, "Costs").
//
// A cost is an exact rational number, rounded to a multiple of 2^-16: as a uint64 it counts these.
// It is below Limit.
package cost

import (
	"errors"
	"math/big"
	"math/bits"
)

// One is a cost of 1, and Limit what all costs are below: 2^47.
const (
	One   = 1 << 16
	Limit = 1 << 63
)

// Errors of a cost of some values.
var (
	errNegative = errors.New("it is below 0")
	errLarge    = errors.New("it is 2^47 or more")
	errNumber   = errors.New("a number on the way to it has more than 4096 bits")
	errDivision = errors.New("it divides by 0")
)

// bitsOfNumbers bounds the numerators and denominators of all numbers in an evaluation.
const bitsOfNumbers = 4096

// Cost returns the cost for values of the attributes, in the order of Names. The error tells why
// there is none, without the expression.
func (e *Expr) Cost(values []int64) (uint64, error) {
	if v, ok := e.fast(values); ok {
		return v.round()
	}
	return e.exact(values)
}

// ratio is the number n/d, with d above 0. The factors of both may have common ones.
type ratio struct{ n, d int64 }

// fast computes with numbers of 64 bits. ok is false if they do not suffice, or for a division by
// 0.
func (e *Expr) fast(values []int64) (v ratio, ok bool) {
	var room [16]ratio
	stack := room[:0]
	for i := range e.code {
		s := &e.code[i]
		switch s.op {
		case opNumber:
			if s.small.d == 0 {
				return v, false
			}
			stack = append(stack, s.small)
			continue
		case opName:
			stack = append(stack, ratio{values[s.of], 1})
			continue
		}
		top := len(stack) - 1
		a := stack[top]
		switch s.op {
		case opNegate:
			a, ok = ratio{0, 1}.sub(a)
		case opPower:
			a, ok = a.power(s.of)
		default:
			stack = stack[:top]
			top--
			a, ok = stack[top].with(s.op, a)
		}
		if !ok {
			return v, false
		}
		stack[top] = a
	}
	return stack[0], true
}

func (a ratio) with(op op, b ratio) (ratio, bool) {
	switch op {
	case opAdd:
		return a.add(b)
	case opSub:
		return a.sub(b)
	case opMul:
		return a.mul(b)
	}
	if b.n == 0 || b.n == minInt {
		return a, false
	}
	if b.n < 0 {
		return a.mul(ratio{-b.d, -b.n})
	}
	return a.mul(ratio{b.d, b.n})
}

const minInt = -1 << 63

func (a ratio) add(b ratio) (ratio, bool) {
	if a.d == b.d {
		n := a.n + b.n
		return ratio{n, a.d}, (n > a.n) == (b.n > 0)
	}
	x, ok1 := product(a.n, b.d)
	y, ok2 := product(b.n, a.d)
	d, ok3 := product(a.d, b.d)
	n := x + y
	return ratio{n, d}, ok1 && ok2 && ok3 && (n > x) == (y > 0)
}

func (a ratio) sub(b ratio) (ratio, bool) {
	if b.n == minInt {
		return a, false
	}
	return a.add(ratio{-b.n, b.d})
}

func (a ratio) mul(b ratio) (ratio, bool) {
	n, ok1 := product(a.n, b.n)
	d, ok2 := product(a.d, b.d)
	return ratio{n, d}, ok1 && ok2
}

func (a ratio) power(n int) (ratio, bool) {
	v := ratio{1, 1}
	for range n {
		more, ok := v.mul(a)
		if !ok {
			return v, false
		}
		v = more
	}
	return v, true
}

// product returns a·b, and whether it fits.
func product(a, b int64) (int64, bool) {
	if a == minInt || b == minInt {
		return 0, false
	}
	hi, lo := bits.Mul64(uint64(max(a, -a)), uint64(max(b, -b)))
	if hi > 0 || lo > 1<<63-1 {
		return 0, false
	}
	if (a < 0) != (b < 0) {
		return -int64(lo), true
	}
	return int64(lo), true
}

// round returns the number as a cost: rounded to the nearest multiple of 2^-16, a half up.
func (a ratio) round() (uint64, error) {
	if a.n < 0 {
		return 0, errNegative
	}
	n, d := uint64(a.n), uint64(a.d)
	lo, carry := bits.Add64(n<<17, d, 0)
	if hi := n>>47 + carry; hi < 2*d {
		if q, _ := bits.Div64(hi, lo, 2*d); q < Limit {
			return q, nil
		}
	}
	return 0, errLarge
}

// exact computes with numbers of any size.
func (e *Expr) exact(values []int64) (uint64, error) {
	var stack []*big.Rat
	for i := range e.code {
		s := &e.code[i]
		switch s.op {
		case opNumber:
			stack = append(stack, new(big.Rat).Set(s.number))
			continue
		case opName:
			stack = append(stack, new(big.Rat).SetInt64(values[s.of]))
			continue
		}
		top := len(stack) - 1
		a := stack[top]
		switch s.op {
		case opNegate:
			a.Neg(a)
		case opPower:
			if sizeOf(a)*s.of > bitsOfNumbers {
				return 0, errNumber
			}
			n := big.NewInt(int64(s.of))
			a.SetFrac(new(big.Int).Exp(a.Num(), n, nil), new(big.Int).Exp(a.Denom(), n, nil))
		default:
			stack = stack[:top]
			if err := join(stack[top-1], s.op, a); err != nil {
				return 0, err
			}
		}
		if sizeOf(stack[len(stack)-1]) > bitsOfNumbers {
			return 0, errNumber
		}
	}
	return round(stack[0])
}

// join sets a to what an operator makes of a and b.
func join(a *big.Rat, op op, b *big.Rat) error {
	switch op {
	case opAdd:
		a.Add(a, b)
	case opSub:
		a.Sub(a, b)
	case opMul:
		a.Mul(a, b)
	default:
		if b.Sign() == 0 {
			return errDivision
		}
		a.Quo(a, b)
	}
	return nil
}

// sizeOf returns the bits of the numerator or the denominator, of the larger one.
func sizeOf(a *big.Rat) int { return max(a.Num().BitLen(), a.Denom().BitLen()) }

func round(a *big.Rat) (uint64, error) {
	if a.Sign() < 0 {
		return 0, errNegative
	}
	n := new(big.Int).Lsh(a.Num(), 17)
	n.Add(n, a.Denom())
	n.Quo(n, new(big.Int).Lsh(a.Denom(), 1))
	if !n.IsUint64() || n.Uint64() >= Limit {
		return 0, errLarge
	}
	return n.Uint64(), nil
}
