package metadata

import (
	"errors"
	"math"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/format"
)

// TestAttrTotal adds values in any grouping to one total, whose sum does not overflow.
func TestAttrTotal(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var values []int64
		for range rng.IntN(30) {
			values = append(values, []int64{0, -1, 1, math.MaxInt64, math.MinInt64, rng.Int64N(100) - 50}[rng.IntN(6)])
		}
		sum, counts, negative := new(big.Int), map[string]uint64{}, uint64(0)
		for _, v := range values {
			sum.Add(sum, big.NewInt(v))
			if v < 0 {
				negative++
			} else {
				counts[big.NewInt(v).Text(2)]++
			}
		}
		one := lengthTotal(values...)
		cut := rng.IntN(len(values) + 1)
		left, right := lengthTotal(values[:cut]...), lengthTotal(values[cut:]...)
		left.Merge(&right)
		if left != one {
			t.Fatalf("%v cut at %d: %+v, want %+v", values, cut, left, one)
		}
		if one.Sum().Cmp(sum) != 0 || one.Negative != negative || one.Samples != uint64(len(values)) {
			t.Fatalf("%v: %+v with the sum %v, want %v", values, one, one.Sum(), sum)
		}
		for k, n := range one.Counts {
			var want uint64
			for text, c := range counts {
				if text == "0" && k == 0 || text != "0" && len(text) == k {
					want += c
				}
			}
			if n != want {
				t.Fatalf("%v: %d values of %d bits, want %d", values, n, k, want)
			}
		}
		raw, err := appendAttrTotals(nil, []format.Attribute{{Name: "length", Kind: format.AttrInteger}}, []AttrTotal{one})
		if err != nil {
			t.Fatal(err)
		}
		back, err := decodeAttrTotals(raw, []format.Attribute{{Name: "length", Kind: format.AttrInteger}}, uint64(len(values)))
		if err != nil || len(back) != 1 || back[0] != one {
			t.Fatalf("%v: %+v, %v", values, back, err)
		}
	}
}

// TestAttrTotalsRefused refuses totals that no samples have.
func TestAttrTotalsRefused(t *testing.T) {
	attrs := []format.Attribute{{Name: "class", Kind: format.AttrLabel}, {Name: "length", Kind: format.AttrInteger}, {Name: "n", Kind: format.AttrInteger}}
	encode := func(edit func(*AttrTotal), more ...AttrTotal) []byte {
		x := lengthTotal(3, 5, 1000, -2)
		edit(&x)
		raw, err := appendAttrTotals(nil, attrs, append([]AttrTotal{x}, more...))
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	same := func(*AttrTotal) {}
	good := encode(same)
	if _, err := decodeAttrTotals(good, attrs, 4); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		raw     []byte
		samples uint64
	}{
		"more samples":    {good, 3},
		"other samples":   {encode(func(x *AttrTotal) { x.Samples++ }), 9},
		"counts overflow": {encode(func(x *AttrTotal) { x.Counts[5], x.Counts[6] = math.MaxUint64, 1 }), 9},
		"sum too large":   {encode(func(x *AttrTotal) { x.low = 4001 }), 9},
		"sum too small":   {encode(func(x *AttrTotal) { x.high, x.low = math.MaxUint64, math.MaxUint64-100 }), 9},
		"min above max":   {encode(func(x *AttrTotal) { x.Min, x.Max = 5, 4 }), 9},
		"min of none":     {encode(func(x *AttrTotal) { *x = AttrTotal{Name: "length", Max: 4} }), 9},
		"twice":           {encode(same, lengthTotal(1)), 9},
		"descending":      {append([]byte{2, 0, 0, 0, 2}, append(encode(same)[5:], good[4:]...)...), 9},
		"a label":         {append([]byte{1, 0, 0, 0, 0}, good[5:]...), 9},
		"no attribute":    {append([]byte{1, 0, 0, 0, 3}, good[5:]...), 9},
		"too many":        {append([]byte{9}, good[1:]...), 9},
		"truncated":       {good[:len(good)-1], 9},
		"more bytes":      {append(good[:len(good):len(good)], 0), 9},
		"too many counts": {func() []byte { b := append([]byte{}, good...); b[8+6*8] = 65; return append(b, make([]byte, 600)...) }(), 9},
		"empty":           {nil, 9},
	} {
		if _, err := decodeAttrTotals(c.raw, attrs, c.samples); !errors.Is(err, format.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"class", "other"} {
		if _, err := appendAttrTotals(nil, attrs, []AttrTotal{{Name: name}}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("a total of %s: %v", name, err)
		}
	}
}
