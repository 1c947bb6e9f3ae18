package where

import (
	"cmp"
	"math"
	"math/big"
	"math/rand/v2"
	"strconv"
	"testing"
)

// TestNumber compares integers with numbers as fractions without limits do.
func TestNumber(t *testing.T) {
	words := []string{
		"0", "-0", "+7", "1.5", "-1.5", "1e3", "1e18", "9007199254740993", "9223372036854775807", "9223372036854775808", "-9223372036854775808",
		"-9223372036854775809", "9223372036854775807.5", "-9223372036854775808.5", "18446744073709551615", "18446744073709551616", "18446744073709551615.25",
		"36893488147419103232", "1e300", "-1e300", "0x1p62", "0.3", "-0.3",
	}
	signed := []int64{math.MinInt64, math.MinInt64 + 1, -2, -1, 0, 1, 2, 7, 1000, 1e18, 1e18 + 1, 1<<53 + 1, 1 << 62, math.MaxInt64 - 1, math.MaxInt64}
	unsigned := []uint64{0, 1, 2, 1 << 63, 1<<63 - 1, 1<<63 + 1, math.MaxUint64 - 1, math.MaxUint64}
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		n := r.Uint64() >> r.IntN(64)
		signed, unsigned = append(signed, int64(n)), append(unsigned, n)
		words = append(words, strconv.FormatInt(int64(n), 10), strconv.FormatUint(n, 10)+".5", strconv.FormatUint(n, 10))
	}
	for _, word := range words {
		n, ok := ParseNumber(word)
		exact, valid := new(big.Rat).SetString(word)
		if !ok || !valid {
			t.Fatalf("%s is not a number", word)
		}
		for _, x := range signed {
			if got, ordered := n.CompareInt(x); cmp.Compare(got, 0) != new(big.Rat).SetInt64(x).Cmp(exact) || !ordered {
				t.Errorf("%d and %s: %d", x, word, got)
			}
		}
		for _, x := range unsigned {
			if got, ordered := n.CompareUint(x); cmp.Compare(got, 0) != new(big.Rat).SetUint64(x).Cmp(exact) || !ordered {
				t.Errorf("%d and %s: %d", x, word, got)
			}
		}
		if order, ordered := n.CompareFloat(n.float); order != 0 || !ordered {
			t.Errorf("%s as a float64 is not itself", word)
		}
	}
	nan, ok := ParseNumber("nan")
	_, i := nan.CompareInt(1)
	_, u := nan.CompareUint(1)
	_, f := nan.CompareFloat(1)
	if !ok || i || u || f {
		t.Error("NaN has an order")
	}
	for _, word := range []string{"", "x", "1e999", "1/3", "0x10"} {
		if _, ok := ParseNumber(word); ok {
			t.Errorf("%q is a number", word)
		}
	}
}
