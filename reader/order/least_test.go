package order

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestLeastMemory: Choose takes it, and no less.
func TestLeastMemory(t *testing.T) {
	rnd := rand.New(rand.NewPCG(33, 34))
	for range 200 {
		table := tableOf(rnd, 1+rnd.IntN(900), 1+rnd.IntN(3))
		table.Decoded = rnd.Uint64N(1 << 30)
		c := Choice{Shuffle: true, Lanes: rnd.Uint32N(2) * (1 + rnd.Uint32N(200)), RunBlocks: rnd.Uint32N(4)}
		if c.RunBlocks == 0 {
			c.WholeShards = rnd.IntN(2) == 0
		}
		least, err := LeastMemory(table, c)
		if err != nil {
			t.Fatal(err)
		}
		c.Memory = least
		if _, err := Choose(table, c); err != nil {
			t.Fatalf("%+v: %v", c, err)
		}
		if c.Memory--; c.Memory > 0 {
			if p, err := Choose(table, c); err == nil && !c.holdsWhole(&table) {
				t.Fatalf("%+v is enough for %+v", c, p)
			}
		}
	}
	huge := Table{Samples: make([]uint32, 1), ShardFirst: []int{0}, Decoded: math.MaxUint64}
	if least, err := LeastMemory(huge, Choice{Shuffle: true, RunBlocks: math.MaxUint32}); err == nil {
		t.Errorf("%d bytes for runs of 2^96", least)
	}
}
