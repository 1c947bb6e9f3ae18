package samplekey

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
)

// TestKeyRangeIs: a range has exactly the keys that it makes.
func TestKeyRangeIs(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	same := 0
	for range 50_000 {
		r := Range{Prefix: strings.Repeat("a1", random.IntN(3)), First: random.Uint64() >> (1 + random.IntN(63)), Digits: uint8(random.IntN(maxDigits + 1))}
		if random.IntN(4) == 0 {
			r.First = pow10(random.IntN(19)) - uint64(random.IntN(2))
		}
		i := random.Uint64N(3)
		want := string(r.AppendKey(nil, i))
		keys := []string{want, want + "0", "0" + want, strings.Replace(want, "0", "", 1), r.Prefix, want[1:], strings.Replace(want, "1", "01", 1),
			r.Prefix + strconv.FormatUint(r.First+i, 10), string(r.AppendKey(nil, i+1)), strings.Repeat("b", len(r.Prefix)) + want[len(r.Prefix):]}
		for _, key := range keys {
			if got := r.is(key, i); got != (key == want) {
				t.Fatalf("%+v, key %d is %q; %q: %v", r, i, want, key, got)
			} else if got {
				same++
			}
		}
	}
	if same < 50_000 {
		t.Errorf("only %d keys are in their range", same)
	}
}
