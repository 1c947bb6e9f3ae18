package patterns_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/shardtool/shardtool/internal/input/patterns"
)

func TestExpand(t *testing.T) {
	dir := t.TempDir()
	for _, n := range []string{"b.tar", "a.tar", "c.txt"} {
		if err := os.WriteFile(filepath.Join(dir, n), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for pattern, want := range map[string][]string{
		"x.tar":               {"x.tar"},
		"t-{08..11}.tar":      {"t-08.tar", "t-09.tar", "t-10.tar", "t-11.tar"},
		"t-{8..11}.tar":       {"t-8.tar", "t-9.tar", "t-10.tar", "t-11.tar"},
		"{train,val}-{0..1}":  {"train-0", "train-1", "val-0", "val-1"},
		dir + "/*.tar":        {dir + "/a.tar", dir + "/b.tar"},
		dir + "/{b,a}.tar":    {dir + "/b.tar", dir + "/a.tar"},
		"{000..001}/{1..1}.x": {"000/1.x", "001/1.x"},
	} {
		if got, _, err := patterns.Expand(pattern); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v", pattern, got, err)
		}
	}
	for _, pattern := range []string{"{", "{1..", "{2..1}", "{a..b}", "{0..99999999}", "{0..999999}{0..999999}", "{{1,2},3}", dir + "/*.zip", "[", "{-1..2}"} {
		if got, _, err := patterns.Expand(pattern); err == nil {
			t.Errorf("%s: %d", pattern, len(got))
		}
	}
}
