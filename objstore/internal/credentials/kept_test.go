package credentials

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// TestRefusedInFlight: what a source was asked for before the server refused its last credentials
// is not kept, because it may be the same.
func TestRefusedInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked, under := 0, 0
		k := Kept[string]{Early: time.Minute}
		k.Ask = func(context.Context, bool) (string, time.Time, error) {
			if under++; under > 1 {
				t.Error("the source is asked twice at a time")
			}
			defer func() { under-- }()
			asked++
			value := fmt.Sprint(asked)
			time.Sleep(time.Second)
			return value, time.Now().Add(time.Hour), nil
		}
		get := func(want string) {
			t.Helper()
			if got, err := k.Get(t.Context()); got != want || err != nil {
				t.Errorf("%s, %v; want %s", got, err, want)
			}
		}
		get("1")
		time.Sleep(59 * time.Minute)
		get("1") // and 2 is asked for
		k.Refuse()
		get("3")
		get("3")
	})
}
