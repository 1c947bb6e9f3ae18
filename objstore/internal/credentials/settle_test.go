package credentials_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardtool/shardtool/objstore/internal/credentials"
)

// TestSettle: what is asked for ahead of the end has come when Settle returns, though Get does not
// wait for it.
func TestSettle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		given := 0
		k := credentials.Kept[int]{Early: time.Minute, Ask: func(context.Context, bool) (int, time.Time, error) {
			time.Sleep(20 * time.Second)
			given++
			return given, time.Now().Add(time.Hour), nil
		}}
		k.Settle(t.Context()) // nothing is under way
		get := func(want int) {
			t.Helper()
			if got, err := k.Get(t.Context()); got != want || err != nil {
				t.Errorf("%d, %v; want %d", got, err, want)
			}
		}
		get(1)
		time.Sleep(time.Hour - 30*time.Second)
		get(1)
		k.Settle(t.Context())
		get(2)
		ended, end := context.WithCancel(t.Context())
		end()
		time.Sleep(time.Hour - 30*time.Second)
		get(2)
		k.Settle(ended)
		get(2)
		time.Sleep(time.Minute)
		get(3)
	})
}
