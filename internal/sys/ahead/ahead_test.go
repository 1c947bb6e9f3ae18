package ahead

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestEach: what slow calls return comes in order, a bounded number of them at a time, and a loop
// that ends early ends the calls.
func TestEach(t *testing.T) {
	for _, limit := range []int{0, 1, 4} {
		synctest.Test(t, func(t *testing.T) {
			var now, most, ended atomic.Int64
			f := func(ctx context.Context, i int) int {
				if n := now.Add(1); n > most.Load() {
					most.Store(n)
				}
				defer now.Add(-1)
				select {
				case <-time.After(time.Duration(100-i) * time.Second):
				case <-ctx.Done():
					ended.Add(1)
				}
				return i * i
			}
			numbers := func(yield func(int) bool) {
				for i := 0; i < 50 && yield(i); i++ {
				}
			}
			var got []int
			for square := range Each(t.Context(), numbers, limit, f) {
				got = append(got, square)
			}
			for i := range 50 {
				if len(got) != 50 || got[i] != i*i {
					t.Fatal(got)
				}
			}
			// One more may run: that of the value in the loop has ended.
			if n := most.Load(); n > int64(max(limit, 1)+1) || limit == 4 && n < 4 {
				t.Errorf("%d at a time, limit %d", n, limit)
			}
			got = nil
			for square := range Each(t.Context(), numbers, limit, f) {
				if got = append(got, square); len(got) == 3 {
					break
				}
			}
			if !slices.Equal(got, []int{0, 1, 4}) || now.Load() != 0 || limit == 4 && ended.Load() == 0 {
				t.Error(got, now.Load(), ended.Load())
			}
		})
	}
}
