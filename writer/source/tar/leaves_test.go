package tar

import (
	"slices"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/internal/input/tally"
)

// TestLeaves: what macOS adds, between the members of a sample too, and what globs leave out, is
// counted, and a run that continues at any sample has the same samples and counts.
func TestLeaves(t *testing.T) {
	first := archiveOf(t, []entry{
		{name: "._a.jpg"}, {name: "a.jpg", data: []byte("x")}, {name: "._a.txt"}, {name: "a.txt"}, {name: "__MACOSX/._b"}, {name: "d/._c.jpg"},
		{name: "d/c.jpg"}, {name: "d/c.log"}, {name: "e.txt"}, {name: "._e.txt"},
	})
	second := archiveOf(t, []entry{{name: "f.txt"}, {name: "f.log"}, {name: "._f.txt"}})
	paths := []string{write(t, "a.tar", first), write(t, "b.tar.gz", second)}
	for _, c := range []struct {
		opt            Options
		keys           string
		forks, filters int64
	}{
		{Options{}, "a d/c e f", 6, 0},
		{Options{Exclude: []string{"*.log"}}, "a d/c e f", 6, 2},
		{Options{Include: []string{"*.jpg", "*.txt"}, Exclude: []string{"e.*"}}, "a d/c f", 6, 3},
	} {
		counts := func(src *tarSource) [3]int64 {
			all := src.Tally()
			return [3]int64{all.Listed, all.Left(tally.Fork), all.Left(tally.Filtered)}
		}
		src := open(t, c.opt, paths...)
		cursors := []string{src.Cursor()}
		var all []string
		for {
			s, err := src.Next(t.Context())
			if err != nil {
				break
			}
			all, cursors = append(all, got(t, s)), append(cursors, src.Cursor())
		}
		var keys []string
		for _, text := range all {
			key, _, _ := strings.Cut(text, ":")
			keys = append(keys, key)
		}
		want := [3]int64{13, c.forks, c.filters}
		if strings.Join(keys, " ") != c.keys || counts(src) != want {
			t.Errorf("%+v: %q, %v, want %v", c.opt, keys, counts(src), want)
		}
		for i, cursor := range cursors {
			src := open(t, c.opt, paths...)
			if err := src.Seek(t.Context(), cursor); err != nil {
				t.Fatal(err)
			}
			rest, bad, err := rest(t, src)
			now := counts(src)
			if err != nil || len(bad) > 0 || !slices.Equal(rest, all[i:]) || now[1] != want[1] || now[2] != want[2] {
				t.Errorf("%+v from %q: %q, %v, %v; want %q, %v", c.opt, cursor, rest, now, err, all[i:], want)
			}
		}
	}
	for _, cursor := range []string{"0:1", "0:3", "0:1:x", "0:1:1:2:3", "0:1:-1", "0:1:"} {
		if err := open(t, Options{}, paths...).Seek(t.Context(), cursor); err == nil {
			t.Errorf("%q", cursor)
		}
	}
	if open(t, Options{}, paths...).Fingerprint() == open(t, Options{Exclude: []string{"x"}}, paths...).Fingerprint() {
		t.Error("globs are not in the fingerprint")
	}
}
