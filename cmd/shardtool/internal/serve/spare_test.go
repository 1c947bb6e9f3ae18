package serve

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestSpareStays: the workers stay on between the waits of a loop that reads, and go off when it
// has not waited for a while or all batches are made.
func TestSpareStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said []bool
		s := spare{set: func(on bool) {
			if len(said) == 0 || said[len(said)-1] != on {
				said = append(said, on)
			}
		}}
		check := func(what string, want ...bool) {
			t.Helper()
			synctest.Wait()
			s.mu.Lock()
			defer s.mu.Unlock()
			if !slices.Equal(said, want) {
				t.Fatalf("%s: %v, want %v", what, said, want)
			}
		}
		for range 100 { // a batch each 4 ms
			s.waits(true)
			time.Sleep(calm / 5)
			s.waits(false)
			time.Sleep(calm * 3 / 5)
		}
		check("a loop that reads", true)
		for range 4 {
			s.waits(false) // batches are made, and nobody waits for them
			time.Sleep(calm / 3)
		}
		check("a loop that computes", true, false)
		s.waits(true)
		time.Sleep(time.Second)
		check("a loop that waits for long", true, false, true)
		s.rest() // nothing is left to do, but the loop waits
		check("an end while the loop waits", true, false, true)
		s.waits(false)
		s.rest()
		check("all batches are made", true, false, true, false)
		time.Sleep(time.Second)
		check("later", true, false, true, false)
	})
}
