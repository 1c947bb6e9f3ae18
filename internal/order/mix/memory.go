package mix

import (
	"fmt"
	"math/big"
)

// Need describes a source for the division of the shuffle memory.
type Need struct {
	// Bytes and Units are the decoded bytes of the source and its units: their quotient is the
	// size of a mean unit.
	Bytes, Units uint64
	Share        *big.Rat // the largest share over the segments: Mix.LargestShare
	Least        uint64   // bytes of five of its runs: order.LeastMemory
}

// Fit gives each source as many bytes as it has, or Least if that is more. It returns nil if that
// is more than the shuffle memory.
func Fit(memory uint64, needs []Need) []uint64 {
	parts, rest := make([]uint64, len(needs)), memory
	for s, n := range needs {
		if parts[s] = max(n.Bytes, n.Least); parts[s] > rest {
			return nil
		}
		rest -= parts[s]
	}
	return parts
}

// Divide divides the shuffle memory among sources: each gets a part proportional to the bytes of a
// mean unit times its largest share, rounded down. A source for which that is too little gets
// Least, and the others divide the rest by the same rule, until no part is too small. A memory
// below the sum of all Least is refused, and the error gives that sum.
func Divide(memory uint64, needs []Need) ([]uint64, error) {
	wants := make([]*big.Rat, len(needs))
	rest := new(big.Int).SetUint64(memory)
	minimum := new(big.Int)
	for s, n := range needs {
		wants[s] = new(big.Rat)
		if n.Units > 0 {
			wants[s].SetFrac(new(big.Int).SetUint64(n.Bytes), new(big.Int).SetUint64(n.Units))
			wants[s].Mul(wants[s], n.Share)
		}
		minimum.Add(minimum, new(big.Int).SetUint64(n.Least))
	}
	if minimum.Cmp(rest) > 0 {
		return nil, fmt.Errorf("shuffle memory of %d bytes is too small for %d sources: give at least %s bytes", memory,
			len(needs), minimum)
	}
	parts := make([]uint64, len(needs))
	fixed := make([]bool, len(needs))
	for again := true; again; {
		again = false
		proportional(parts, wants, fixed, rest)
		for s, n := range needs {
			if !fixed[s] && parts[s] < n.Least {
				parts[s], fixed[s], again = n.Least, true, true
				rest.Sub(rest, new(big.Int).SetUint64(n.Least))
			}
		}
	}
	return parts, nil
}

// proportional divides rest among the sources that are not fixed.
func proportional(parts []uint64, wants []*big.Rat, fixed []bool, rest *big.Int) {
	total := new(big.Rat)
	for s, x := range wants {
		if !fixed[s] {
			total.Add(total, x)
		}
	}
	for s, x := range wants {
		if fixed[s] || total.Sign() == 0 {
			continue
		}
		part := new(big.Rat).Quo(x, total)
		part.Mul(part, new(big.Rat).SetInt(rest))
		parts[s] = new(big.Int).Div(part.Num(), part.Denom()).Uint64()
	}
}
