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
		k.Drop()
		get("3")
		get("3")
	})
}

// TestRefusedAtOnce: requests that are refused at about the same time cause one request to the
// source, and all are sent again. What the source gives twice is refused for good.
func TestRefusedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		value, asked := "first", 0
		k := Kept[string]{Ask: func(context.Context, bool) (string, time.Time, error) {
			asked++
			return value, time.Time{}, nil
		}}
		first := func(last string) bool { return last == "first" }
		for i, c := range []struct {
			source string
			others bool
		}{{"first", true}, {"first", false}, {"second", true}} {
			if i == 2 {
				time.Sleep(2 * pause)
			}
			if _, err := k.Get(t.Context()); err != nil {
				t.Fatal(err)
			}
			value = c.source
			for range 3 {
				if others := k.Refuse(first); others != c.others {
					t.Errorf("%d: others %v", i, others)
				}
			}
		}
		if got, err := k.Get(t.Context()); got != "second" || err != nil || asked != 3 || !k.Refuse(first) {
			t.Errorf("%q, %v, asked %d times", got, err, asked)
		}
	})
}

// TestSettle: what is asked for ahead of the end has come when Settle returns, though Get does not
// wait for it.
func TestSettle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		given := 0
		k := Kept[int]{Early: time.Minute, Ask: func(context.Context, bool) (int, time.Time, error) {
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
