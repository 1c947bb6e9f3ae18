package extent

import (
	"math/rand/v2"
	"testing"
)

// TestList takes and puts at random: no place is taken twice, and places put back are merged.
func TestList(t *testing.T) {
	const size = 1 << 10
	random := rand.New(rand.NewPCG(1, 2))
	var free List
	free.Put(0, size)
	var taken [size]bool
	type part struct{ at, n int }
	var out []part
	for range 20_000 {
		if len(out) > 0 && random.IntN(2) == 0 {
			i := random.IntN(len(out))
			free.Put(out[i].at, out[i].n)
			clear(taken[out[i].at : out[i].at+out[i].n])
			out[i] = out[len(out)-1]
			out = out[:len(out)-1]
			continue
		}
		n := 1 + random.IntN(64)
		at, ok := free.Take(n)
		if !ok {
			continue
		}
		for i := at; i < at+n; i++ {
			if taken[i] {
				t.Fatalf("place %d was taken twice", i)
			}
			taken[i] = true
		}
		out = append(out, part{at, n})
	}
	for _, p := range out {
		free.Put(p.at, p.n)
	}
	if len(free) != 1 || free[0] != (Extent{0, size}) {
		t.Errorf("free: %v", free)
	}
}
