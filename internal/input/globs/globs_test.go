package globs_test

import (
	"testing"

	"github.com/shardtool/shardtool/internal/input/globs"
)

// TestPasses has names that programs which read tables ignore, and globs that spell them.
func TestPasses(t *testing.T) {
	for _, c := range []struct {
		glob, name string
		want       bool
	}{
		{"*.parquet", "a.parquet", false},
		{"*.parquet", "_a.parquet", true},
		{"*.parquet", ".a.parquet", true},
		{"**/*.parquet", "_temporary/0/a.parquet", true},
		{"**/*.parquet", ".trash/a.parquet", true},
		{"**/*.parquet", "x/_y=1/a.parquet", false},
		{"**/*.parquet", "x_/a_b.parquet", false},
		{"_*.parquet", "_a.parquet", false},
		{"x/_temporary/**", "x/_temporary/0/a.parquet", false},
		{"**/.x/*", "y/.x/a", false},
		{"**/.x/*", "_y/.x/a", true},
		{"*", "a.parquet._COPYING_", true},
	} {
		if got := globs.Passes(c.glob, c.name); got != c.want {
			t.Errorf("%s passes %s: %v", c.glob, c.name, got)
		}
	}
	choice := globs.Choice{Include: []string{"_*", "a/.b/*"}}
	if !choice.TakesApart("x/_a") || choice.TakesApart("_d/a") || choice.TakesHidden("_a") || !choice.TakesHidden("a/.b") {
		t.Error("what the globs of Include spell")
	}
}
