package tar

import (
	"fmt"
	"hash/maphash"
	"testing"
)

// TestSeenKeys compares with a map, for keys that ascend for a while and then do not.
func TestSeenKeys(t *testing.T) {
	for _, ascending := range []int{0, 1, 2, 50} {
		seen, want := newSeenKeys(maphash.MakeSeed()), map[string]bool{}
		for i := range 200 {
			key := fmt.Sprintf("%03d", i)
			if i >= ascending {
				key = fmt.Sprintf("%03d", i*37%100)
			}
			if got := seen.again(key); got != want[key] {
				t.Fatalf("%d ascending: key %d, %q: %v", ascending, i, key, got)
			}
			want[key] = true
		}
	}
}
