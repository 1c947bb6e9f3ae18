package ranged

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardtool/shardtool/objstore"
)

// TestOneWait: an outage costs one wait for all objects that are asked for one after the other, and
// afterwards reads are as patient as before.
func TestOneWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New("store", objstore.ReadOptions{}, nil)
		wait := func() time.Duration {
			begin, trail := time.Now(), r.newTrail(10)
			trail.begin()
			for {
				if err := trail.next(t.Context(), 0, &Transient{Err: errors.New("503"), Answered: true}); err != nil {
					if !GivenUp(err) {
						t.Fatal(err)
					}
					return time.Since(begin)
				}
			}
		}
		beside := r.newTrail(10) // it began before the store was lost
		beside.begin()
		if took := wait(); took != time.Minute {
			t.Errorf("the first read waits %v", took)
		}
		if err := beside.next(t.Context(), 0, &Transient{Err: errors.New("503")}); !GivenUp(err) {
			t.Error(err)
		}
		for range 3 {
			if took := wait(); took != time.Minute/lostShare {
				t.Errorf("a read after it waits %v", took)
			}
		}
		r.succeeded()
		if took := wait(); took != time.Minute {
			t.Errorf("the first read of the next outage waits %v", took)
		}
	})
}
