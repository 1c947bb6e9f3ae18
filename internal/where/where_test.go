package where

import (
	"strings"
	"testing"
)

func TestConditions(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Condition{
		"a=1":             {Column: "a", Op: "=", Word: "1"},
		" a b >= x y ":    {Column: "a b", Op: ">=", Word: "x y"},
		"a!=":             {Column: "a", Op: "!="},
		"a<'1 '":          {Column: "a", Op: "<", Word: "1 ", Quoted: true},
		`a>"b=c"`:         {Column: "a", Op: ">", Word: "b=c", Quoted: true},
		"a<='":            {Column: "a", Op: "<=", Word: "'"},
		"a b is null":     {Column: "a b", Op: "is null"},
		"a Is  Not\tNULL": {Column: "a", Op: "is not null"},
		"not is null":     {Column: "not", Op: "is null"},
		"is null=1":       {Column: "is null", Op: "=", Word: "1"},
	} {
		want.Text = text
		if got, err := Parse(text); err != nil || got != want {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "a", "=1", "a~1", "is null", "is not null x", "!"} {
		if c, err := Parse(text); err == nil || !strings.Contains(err.Error(), "write a column") {
			t.Errorf("%q: %+v, %v", text, c, err)
		}
	}
	for _, c := range []struct {
		op            string
		null          bool
		order         int
		ordered, want bool
	}{
		{"is null", true, 0, false, true}, {"is not null", true, 0, false, false}, {"is null", false, 0, false, false}, {"=", true, 0, true, false}, {"!=", true, 1, true, false},
		{"=", false, 0, true, true}, {"=", false, 0, false, false}, {"!=", false, 0, false, true}, {"!=", false, 0, true, false}, {"<", false, -1, true, true},
		{"<", false, -1, false, false}, {"<=", false, 0, true, true}, {">", false, 0, true, false}, {">=", false, 0, true, true}, {">=", false, -1, true, false},
	} {
		if got := (&Condition{Op: c.op}).Holds(c.null, c.order, c.ordered); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
