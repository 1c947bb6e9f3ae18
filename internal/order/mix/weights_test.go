package mix

import (
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func TestParseShare(t *testing.T) {
	for text, want := range map[string]string{"0.6": "3/5", "3": "3", "1/3": "1/3", "0": "0", "0.0": "0", "4/2": "2", "00.10": "1/10", "0/5": "0"} {
		if got, err := ParseShare(text); err != nil || got.RatString() != want {
			t.Errorf("%s is %v, %v, want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"", "-1", "+1", "1e9", "1e999999999", ".5", "5.", "1/0", "1/", "/2", "1/2/3", "0x10", "1_0", "NaN", "1.5/2", " 1", "１", strings.Repeat("9", 49)} {
		if got, err := ParseShare(text); err == nil {
			t.Errorf("%q is taken as %v", text, got)
		}
	}
}

func TestQuantize(t *testing.T) {
	rnd := rand.New(rand.NewPCG(21, 22))
	for range 200 {
		names := make([]string, 1+rnd.IntN(64))
		shares := make([]*big.Rat, len(names))
		total := new(big.Rat)
		for i := range shares {
			shares[i] = big.NewRat(rnd.Int64N(1000), 1+rnd.Int64N(1000))
			total.Add(total, shares[i])
		}
		if total.Sign() == 0 {
			continue
		}
		weights, err := Quantize(names, shares)
		if err != nil || sum(weights) != 1<<32 {
			t.Fatalf("%v: %d, %v", shares, weights, err)
		}
		for i, w := range weights {
			exact := new(big.Rat).Mul(new(big.Rat).Quo(shares[i], total), big.NewRat(1<<32, 1))
			if off := exact.Sub(exact, new(big.Rat).SetUint64(w)); off.Abs(off).Cmp(big.NewRat(1, 1)) >= 0 {
				t.Fatalf("%v: weight %d of source %d is off by %s", shares, w, i, off.FloatString(3))
			}
		}
	}
	for _, c := range []struct {
		shares []*big.Rat
		want   string
	}{
		{[]*big.Rat{big.NewRat(1, 1), big.NewRat(1, 1<<34)}, `source "b": its share is below`},
		{[]*big.Rat{big.NewRat(1, 1), big.NewRat(-1, 2)}, `source "b": weight -1/2 is negative`},
		{[]*big.Rat{new(big.Rat), new(big.Rat)}, "all weights are 0"},
	} {
		if got, err := Quantize([]string{"a", "b"}, c.shares); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %d, %v, want %s", c.shares, got, err, c.want)
		}
	}
}

func TestTemperature(t *testing.T) {
	for _, c := range []struct {
		units uint64
		p, q  int
		want  string
	}{{5, 0, 1, "1000000000"}, {0, 0, 1, "0"}, {0, 1, 2, "0"}, {7, 1, 1, "7000000000"}, {7, 16, 16, "7000000000"}, {math.MaxInt64, 15, 16, ""}, {4, 1, 2, "2000000000"}} {
		got, err := Temperature(c.units, c.p, c.q)
		if err != nil || c.want != "" && got.RatString() != c.want {
			t.Errorf("%+v: %v, %v", c, got, err)
		}
		// It is the largest integer whose power is not larger.
		q, scale := big.NewInt(int64(c.q)), new(big.Int).Exp(big.NewInt(1e9), big.NewInt(int64(c.q)), nil)
		power := scale.Mul(scale, new(big.Int).Exp(new(big.Int).SetUint64(c.units), big.NewInt(int64(c.p)), nil))
		above := new(big.Int).Add(got.Num(), big.NewInt(1))
		if c.units > 0 && (new(big.Int).Exp(got.Num(), q, nil).Cmp(power) > 0 || above.Exp(above, q, nil).Cmp(power) <= 0) {
			t.Errorf("%+v: %v is not the root", c, got)
		}
	}
	for _, pq := range [][2]int{{1, 0}, {-1, 2}, {3, 2}, {1, 17}} {
		if _, err := Temperature(5, pq[0], pq[1]); err == nil {
			t.Errorf("temperature %d/%d is taken", pq[0], pq[1])
		}
	}
}

// TestPerToken: equal shares of tokens, of samples that are four times as long, are a fourth of the
// samples.
func TestPerToken(t *testing.T) {
	half := big.NewRat(1, 2)
	short, err := PerToken(half, 1000, 100)
	if err != nil {
		t.Fatal(err)
	}
	long, err := PerToken(half, 8000, 200)
	if err != nil {
		t.Fatal(err)
	}
	if short.Cmp(new(big.Rat).Mul(long, big.NewRat(4, 1))) != 0 {
		t.Errorf("%v samples and %v", short, long)
	}
	if _, err := PerToken(half, 0, 5); err == nil {
		t.Error("a source without tokens gets a share of them")
	}
	if got, err := PerToken(new(big.Rat), 0, 5); err != nil || got.Sign() != 0 {
		t.Errorf("no share is %v, %v", got, err)
	}
}

func TestDivide(t *testing.T) {
	one := big.NewRat(1, 1)
	for _, c := range []struct {
		memory uint64
		needs  []Need
		want   []uint64
	}{
		{100, []Need{{10, 1, one, 5}, {30, 1, one, 5}}, []uint64{25, 75}},
		{100, []Need{{10, 1, big.NewRat(1, 2), 5}, {30, 2, one, 5}}, []uint64{25, 75}},
		{100, []Need{{10, 1, one, 50}, {30, 1, one, 5}, {10, 1, one, 5}}, []uint64{50, 37, 12}},
		// What the first round leaves the second source is too little in the second.
		{100, []Need{{1, 1, one, 40}, {5, 1, one, 30}, {10, 1, one, 5}}, []uint64{40, 30, 30}},
		{100, []Need{{0, 0, one, 7}, {1, 1, new(big.Rat), 8}}, []uint64{7, 8}},
		{15, []Need{{0, 0, one, 7}, {1, 1, one, 8}}, []uint64{7, 8}},
		{math.MaxUint64, []Need{{math.MaxUint64, 1, one, 5}, {math.MaxUint64, 1, one, 5}}, []uint64{1<<63 - 1, 1<<63 - 1}},
	} {
		if got, err := Divide(c.memory, c.needs); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%d bytes for %+v: %d, %v, want %d", c.memory, c.needs, got, err, c.want)
		}
	}
	if _, err := Divide(14, []Need{{1, 1, one, 7}, {1, 1, one, 8}}); err == nil || !strings.Contains(err.Error(), "at least 15 bytes") {
		t.Errorf("14 bytes for 15: %v", err)
	}
	rnd := rand.New(rand.NewPCG(23, 24))
	for range 200 {
		needs := make([]Need, 1+rnd.IntN(20))
		var least uint64
		for s := range needs {
			needs[s] = Need{rnd.Uint64N(1 << 40), 1 + rnd.Uint64N(1000), big.NewRat(rnd.Int64N(100), 100), rnd.Uint64N(1 << 20)}
			least += needs[s].Least
		}
		memory := least + rnd.Uint64N(1<<24)
		parts, err := Divide(memory, needs)
		if err != nil || sum(parts) > memory {
			t.Fatalf("%d bytes for %+v: %d, %v", memory, needs, parts, err)
		}
		for s := range parts {
			if parts[s] < needs[s].Least {
				t.Fatalf("%d bytes for %+v: %d, source %d has too little", memory, needs, parts, s)
			}
		}
	}
}
