package tally_test

import (
	"strings"
	"testing"

	"github.com/shardtool/shardtool/internal/tally"
)

func TestTally(t *testing.T) {
	var a, b tally.Tally
	if a.String() != "" || a.Total() != 0 || len(a.LeftOut()) != 0 {
		t.Error("not empty")
	}
	for _, name := range []string{"d", "b", "a", "c", "b"} {
		a.Listed++
		a.Leave(tally.Hidden, name)
	}
	b.Listed = 3
	b.Leave(tally.Side, "README.md")
	b.Leave(tally.Side, strings.Repeat("x", 1000))
	b.LeaveMany(tally.Hidden, 0, "no")
	b.Add(&a)
	want := "5 hidden (a, b, c, …), 2 side files (README.md, " + strings.Repeat("x", 256) + ")"
	if got := b.String(); got != want || b.Listed != 8 || b.Total() != 7 || b.Left(tally.Hidden) != 5 || b.LeftOut()[tally.Side] != 2 {
		t.Errorf("%d, %q, want %q", b.Listed, got, want)
	}
	if tally.UnsafeError("a/b") != nil || tally.UnsafeError(`a\b`) == nil {
		t.Error("names")
	}
}
