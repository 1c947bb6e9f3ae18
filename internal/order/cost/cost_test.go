package cost

import (
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// TestCost: values, rounding and errors, also where 64 bits do not suffice on the way.
func TestCost(t *testing.T) {
	for _, c := range []struct {
		text   string
		values []int64
		want   uint64 // 0 with wrong
		wrong  string
	}{
		{"tokens", []int64{7}, 7 * One, ""},
		{" tokens + 0.35 * patches ", []int64{100, 20}, 107 * One, ""},
		{"tokens^2", []int64{3}, 9 * One, ""},
		{"-a^2 + 20", []int64{3}, 11 * One, ""},
		{"(-a)^2", []int64{3}, 9 * One, ""},
		{"a ^ 0 * 2", []int64{0}, 2 * One, ""},
		{"2 - -a", []int64{3}, 5 * One, ""},
		{"a/b", []int64{1, 3}, 21845, ""},         // 65536/3 = 21845.33
		{"a/b", []int64{2, 3}, 43691, ""},         // 43690.67
		{"a/131072", []int64{1}, 1, ""},           // a half is rounded up
		{"a/131073", []int64{1}, 0, ""},           // less than a half is not
		{"a/b", []int64{-4, -2}, 2 * One, ""},     //
		{"12/a/b*6", []int64{3, 2}, 12 * One, ""}, // from left to right
		{`"text.tokens"+"a b"`, []int64{1, 2}, 3 * One, ""},
		{`"a""b"`, []int64{1}, One, ""},
		{"a^4/a^4*b", []int64{math.MaxInt64, 5}, 5 * One, ""},
		{"a-a+b", []int64{math.MinInt64, 5}, 5 * One, ""},
		{"(a-b)/b+c", []int64{math.MinInt64, math.MinInt64, 2}, 2 * One, ""},
		{"a", []int64{1<<47 - 1}, (1<<47 - 1) * One, ""},
		{"a - 1/65536", []int64{1 << 47}, Limit - 1, ""},
		{"a - 1/131072", []int64{1 << 47}, 0, "2^47 or more"}, // which is rounded up
		{"a", []int64{1 << 47}, 0, "2^47 or more"},
		{"a*a*a", []int64{math.MaxInt64}, 0, "2^47 or more"},
		{"a-8", []int64{7}, 0, "below 0"},
		{"a", []int64{math.MinInt64}, 0, "below 0"},
		{"a/(b-b)", []int64{1, 2}, 0, "divides by 0"},
		{"((a^16)^16)^16", []int64{3}, 0, "4096 bits"},
	} {
		e, err := Parse(c.text)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		got, err := e.Cost(c.values)
		if got != c.want || (err == nil) != (c.wrong == "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%s of %v: %d, %v", c.text, c.values, got, err)
		}
	}
}

// TestParse: an expression that cannot be says where, and what to write.
func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"":                        "write a number",
		"1+2":                     "no attribute",
		"tokens +":                "at character 9: write a number",
		"tokens + * 2":            "at character 10: write a number",
		"tokens patches":          "at character 8: write one of",
		"text-tokens^a":           "an exponent is",
		"a^17":                    "from 0 to 16",
		"a^-1":                    "from 0 to 16",
		"a^0.5":                   "from 0 to 16",
		"a^2^2":                   "parentheses",
		"a**2":                    "x^2",
		"(a":                      "at character 1: this parenthesis",
		"(a b)":                   "closing parenthesis",
		"a)":                      "at character 2: write one of",
		"1.2.3*a":                 "with one point",
		"1e9*a":                   "write one of",
		`"a`:                      "quote is not closed",
		`""`:                      "at least one character",
		"ä + €$":                  "double quotes",
		"a\xff":                   "not UTF-8",
		strings.Repeat("(", 5000): "at most 4096",
		strings.Repeat("(", 100) + "a" + strings.Repeat(")", 100): "nested",
		strings.Repeat("-", 100) + "a":                            "nested",
		strings.Repeat("9", 41) + "*a":                            "at most 40 digits",
	} {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// FuzzParse: no text makes a panic, and numbers of 64 bits and of any size come to the same.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"tokens + 0.35 * patches", "a^2/(b-3)", `-"x y"^3*.5`, "a-b+c*1.25/7"} {
		f.Add(text, int64(3), int64(-7))
	}
	f.Fuzz(func(t *testing.T, text string, x, y int64) {
		e, err := Parse(text)
		if err != nil {
			return
		}
		values := make([]int64, len(e.Names))
		for i := range values {
			values[i] = x + int64(i)*y
		}
		got, err := e.Cost(values)
		want, failed := e.exact(values)
		if got != want || (err == nil) != (failed == nil) || err != nil && err.Error() != failed.Error() && failed != errNumber {
			t.Fatalf("%q of %v: %d, %v; exactly %d, %v", text, values, got, err, want, failed)
		}
		if again, err := Parse(e.Text); err != nil || !slices.Equal(again.Names, e.Names) {
			t.Fatalf("%q again: %v", e.Text, err)
		}
	})
}

// dealt is Deal by its definition.
func dealt(costs []uint64, real int, counts []int) []int32 {
	out, sums, room := make([]int32, len(costs)), make([]*big.Int, len(counts)), slices.Clone(counts)
	for i := range sums {
		sums[i] = new(big.Int)
	}
	left := make([]bool, len(costs))
	for range costs {
		next := -1
		for i := range costs {
			if !left[i] && (next < 0 || i < real && costs[i] > costs[next]) {
				next = i
			}
		}
		left[next] = true
		to := -1
		for b := range counts {
			if room[b] > 0 && (to < 0 || sums[b].Cmp(sums[to]) < 0) {
				to = b
			}
		}
		out[next] = int32(to)
		room[to]--
		if next < real {
			sums[to].Add(sums[to], new(big.Int).SetUint64(costs[next]))
		}
	}
	return out
}

// TestDeal compares with the definition.
func TestDeal(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var d Dealer
	for range 500 {
		counts, n := make([]int, 1+rng.IntN(9)), 0
		for i := range counts {
			counts[i] = rng.IntN(7)
			n += counts[i]
		}
		costs := make([]uint64, n)
		for i := range costs {
			switch rng.IntN(3) {
			case 0:
				costs[i] = Limit - 1 - uint64(rng.IntN(2)) // sums need more than 64 bits
			case 1:
				costs[i] = uint64(rng.IntN(4))
			default:
				costs[i] = rng.Uint64N(1 << 40)
			}
		}
		real := n - rng.IntN(n/2+1)
		got := d.Deal(nil, costs, real, counts)
		if want := dealt(costs, real, counts); !slices.Equal(got, want) {
			t.Fatalf("%v, %d of them real, over %v: %v, want %v", costs, real, counts, got, want)
		}
	}
}

// BenchmarkCost computes the cost of a sample.
func BenchmarkCost(b *testing.B) {
	e, err := Parse("tokens + 0.35 * patches")
	if err != nil {
		b.Fatal(err)
	}
	values := []int64{1000, 300}
	for b.Loop() {
		if _, err := e.Cost(values); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkDeal deals a batch of 4,096 out to 8 ranks.
func BenchmarkDeal(b *testing.B) {
	rng, costs := rand.New(rand.NewPCG(1, 2)), make([]uint64, 4096)
	for i := range costs {
		costs[i] = rng.Uint64N(1 << 30)
	}
	counts := slices.Repeat([]int{512}, 8)
	var d Dealer
	var bins []int32
	for b.Loop() {
		bins = d.Deal(bins[:0], costs, len(costs), counts)
	}
}
