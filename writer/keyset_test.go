package writer

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// TestKeySet holds the set against a map, for keys that ascend, that do not, and that stop doing
// so.
func TestKeySet(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var s keySet
	for round := range 200 {
		s.reset()
		want := map[string]bool{}
		ascending := random.IntN(40)
		for i := range 60 {
			key := fmt.Sprintf("%03d", 10*i)
			if i >= ascending {
				key = fmt.Sprintf("%03d", random.IntN(600))
			}
			if got := s.has(key); got != want[key] {
				t.Fatalf("round %d: has(%q) is %v after %d keys", round, key, got, len(want))
			}
			if !want[key] && random.IntN(8) > 0 { // some are asked for and not added
				want[key] = true
				s.add(key)
			}
			if n := len(s.keys) + len(s.table); n != len(want) {
				t.Fatalf("round %d: %d keys, want %d", round, n, len(want))
			}
		}
		for key := range want {
			if !s.has(key) {
				t.Fatalf("round %d: %q is missing", round, key)
			}
		}
	}
}
