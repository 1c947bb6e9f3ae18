package hint_test

import (
	"errors"
	"fmt"
	"reflect"
	"testing"

	"github.com/shardtool/shardtool/hint"
)

var errTaken = hint.New("taken", hint.Set("mode", "append", "adds to it"))

// TestOf: the hints of a whole tree of errors are found, each once, and no text changes.
func TestOf(t *testing.T) {
	lanes, prune := hint.Option("lanes"), hint.Command("deletes leftovers", "prune", "--grace", "0s")
	inner := fmt.Errorf("out: %w", errTaken)
	for name, c := range map[string]struct {
		err  error
		text string
		want []hint.Hint
	}{
		"none":    {errors.New("plain"), "plain", nil},
		"nil":     {hint.With(nil, lanes), "", nil},
		"wrapped": {inner, "out: taken", hint.Of(errTaken)},
		"two": {hint.With(inner, lanes, prune), "out: taken", append([]hint.Hint{lanes, prune},
			hint.Set("mode", "append", "adds to it"))},
		"joined": {fmt.Errorf("%w, %w", hint.With(inner, lanes), hint.With(errTaken, lanes)), "out: taken, taken",
			[]hint.Hint{lanes, hint.Set("mode", "append", "adds to it")}},
	} {
		if got := hint.Of(c.err); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
		if c.err != nil && c.err.Error() != c.text {
			t.Errorf("%s: %q, want %q", name, c.err, c.text)
		}
	}
	if err := hint.With(inner, lanes); !errors.Is(err, errTaken) {
		t.Error("a hint hides the error that it is added to")
	}
}

func ExampleOf() {
	err := hint.With(errors.New("2 lanes need 4 blocks"), hint.Option("lanes"))
	for _, h := range hint.Of(err) {
		fmt.Printf("%v (--%s)\n", err, h.Option)
	}
	// Output: 2 lanes need 4 blocks (--lanes)
}
