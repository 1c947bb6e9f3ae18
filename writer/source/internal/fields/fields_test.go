package fields

import (
	"strings"
	"testing"
)

func TestNames(t *testing.T) {
	t.Parallel()
	for in, want := range map[[2]string]string{
		{"text", "txt"}: "text.txt", {"page.html", "txt"}: "page.html", {"jpg", "bin"}: "jpg", {"npy", "npy"}: "npy", {"a.", "txt"}: "a.",
	} {
		if got := Name(in[0], in[1]); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
	for in, want := range map[string]string{"vector": "vector.json", "vector.npy": "vector.json", "npy": "json", "json": "json", "a.b": "a.b", "a.b.npy": "a.b"} {
		if got := JSONName(in); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
	for row, want := range map[int64]string{0: "s/000000000", 7: "s/000000007", 99_999_999: "s/099999999", 123_456_789: "s/123456789", 12_345_678_901: "s/12345678901"} {
		if got := string(AppendRowKey(nil, "s", row)); got != want {
			t.Errorf("%d: %s, want %s", row, got, want)
		}
	}
	if !IsClass("label") || IsClass("labelled") {
		t.Error("names of classes")
	}
}

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
		if got, err := ParseCondition(text); err != nil || got != want {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "a", "=1", "a~1", "is null", "is not null x", "!"} {
		if c, err := ParseCondition(text); err == nil || !strings.Contains(err.Error(), "write a column") {
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
