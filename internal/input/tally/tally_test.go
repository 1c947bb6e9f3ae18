package tally_test

import (
	"strings"
	"testing"

	"github.com/shardtool/shardtool/internal/input/tally"
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
	rows := tally.Rows{Where: 3, Null: 1}.Plus(tally.Rows{Duplicate: 2, Removed: 1}).Minus(tally.Rows{Where: 1, Removed: 1})
	var c tally.Tally
	c.LeaveRows(rows)
	if got := c.String(); got != "2 duplicates, 1 null row, 2 where" || rows.Total() != 5 || len(rows.LeftOut()) != 3 {
		t.Errorf("%q, %+v", got, rows)
	}
	if tally.UnsafeError("a/b") != nil || tally.UnsafeError(`a\b`) == nil {
		t.Error("names")
	}
}
