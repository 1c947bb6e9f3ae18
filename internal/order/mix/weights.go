package mix

import (
	"errors"
	"fmt"
	"math/big"
	"regexp"
	"slices"
)

// quantum is the sum of weights made from shares.
const quantum = 1 << 32

// maxShare bounds the text of a share: room for 20 digits on either side of a point or a slash.
const maxShare = 48

var shareText = regexp.MustCompile(`^[0-9]+(\.[0-9]+|/[0-9]+)?$`)

// ParseShare reads a share exactly: a decimal such as 3 or 0.6, or a fraction such as 1/3.
func ParseShare(text string) (*big.Rat, error) {
	if len(text) > maxShare || !shareText.MatchString(text) {
		return nil, fmt.Errorf("weight %.60q: give a number that is not negative, such as 3, 0.6 or 1/3", text)
	}
	share, ok := new(big.Rat).SetString(text)
	if !ok {
		return nil, fmt.Errorf("weight %q divides by 0", text)
	}
	return share, nil
}

// Quantize turns shares into weights with the sum 2^32, by largest remainder; on a tie the lower
// source gets more. names are the names of the sources, for errors. A positive share that becomes 0
// is refused.
func Quantize(names []string, shares []*big.Rat) ([]uint64, error) {
	total := new(big.Rat)
	for i, x := range shares {
		if x.Sign() < 0 {
			return nil, &SourceError{names[i], fmt.Errorf("weight %s is negative", x.RatString())}
		}
		total.Add(total, x)
	}
	if total.Sign() == 0 {
		return nil, errors.New("all weights are 0")
	}
	weights := make([]uint64, len(shares))
	rests := make([]*big.Rat, len(shares))
	var given uint64
	for i, x := range shares {
		exact := new(big.Rat).Quo(x, total)
		exact.Mul(exact, new(big.Rat).SetInt64(quantum))
		floor := new(big.Int).Div(exact.Num(), exact.Denom())
		weights[i] = floor.Uint64()
		rests[i] = exact.Sub(exact, new(big.Rat).SetInt(floor))
		given += weights[i]
	}
	largest := make([]int, len(shares))
	for i := range largest {
		largest[i] = i
	}
	slices.SortStableFunc(largest, func(i, j int) int { return rests[j].Cmp(rests[i]) })
	for _, i := range largest[:quantum-given] {
		weights[i]++
	}
	for i, w := range weights {
		if w == 0 && shares[i].Sign() > 0 {
			return nil, &SourceError{names[i],
				errors.New("its share is below 2^-32 of the whole and becomes 0: give a larger weight, or 0")}
		}
	}
	return weights, nil
}

// maxRoot is the largest q of a temperature p/q.
const maxRoot = 16

// Temperature returns the share ⌊10^9·units^(p/q)⌋ that a temperature p/q gives a source: 0 makes
// all shares equal, 1 makes them proportional to units. 0 ≤ p ≤ q ≤ 16, and q is at least 1.
func Temperature(units uint64, p, q int) (*big.Rat, error) {
	if p < 0 || p > q || q < 1 || q > maxRoot {
		return nil, fmt.Errorf("temperature %d/%d: give p/q with 0 ≤ p ≤ q ≤ %d", p, q, maxRoot)
	}
	if units == 0 {
		return new(big.Rat), nil
	}
	// The largest x with x^q ≤ 10^(9q)·units^p.
	power := new(big.Int).Exp(big.NewInt(1e9), big.NewInt(int64(q)), nil)
	power.Mul(power, new(big.Int).Exp(new(big.Int).SetUint64(units), big.NewInt(int64(p)), nil))
	return new(big.Rat).SetInt(root(power, q)), nil
}

// root returns ⌊x^(1/q)⌋, found bit by bit.
func root(x *big.Int, q int) *big.Int {
	found, exponent := new(big.Int), big.NewInt(int64(q))
	for bit := x.BitLen()/q + 1; bit >= 0; bit-- {
		try := new(big.Int).SetBit(found, bit, 1)
		if new(big.Int).Exp(try, exponent, nil).Cmp(x) <= 0 {
			found = try
		}
	}
	return found
}

// PerToken turns a share of tokens into one of units: it divides by the mean number of tokens of a
// unit. tokens is the sum over all units of the source. A source with a share needs tokens.
func PerToken(share *big.Rat, tokens, units uint64) (*big.Rat, error) {
	if share.Sign() == 0 {
		return share, nil
	}
	if tokens == 0 {
		return nil, fmt.Errorf("weight %s by tokens, but the source has no tokens", share.RatString())
	}
	mean := new(big.Rat).SetFrac(new(big.Int).SetUint64(units), new(big.Int).SetUint64(tokens))
	return mean.Mul(mean, share), nil
}
