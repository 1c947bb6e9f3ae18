package format

import (
	"errors"
	"strings"
	"testing"
)

// TestNames: every name splits and joins to itself, but for the one that ends in the dot of an
// empty field.
func TestNames(t *testing.T) {
	for _, c := range []struct{ name, key, field string }{
		{"a/b.c.jpg", "a/b", "c.jpg"}, {"a.d/b", "a.d/b", ""}, {"a.d/b.c", "a.d/b", "c"}, {"b", "b", ""}, {"b.", "b", ""},
		{".hidden", "", "hidden"}, {"d/.hidden", "d/", "hidden"}, {"a..b", "a", ".b"}, {"", "", ""}, {"d.x/", "d.x/", ""},
	} {
		key, field := SplitName([]byte(c.name))
		if string(key) != c.key || string(field) != c.field {
			t.Errorf("%q splits into %q and %q, want %q and %q", c.name, key, field, c.key, c.field)
		}
		if back := JoinName(c.key, c.field); back != strings.TrimSuffix(c.name, ".") {
			t.Errorf("%q joins to %q", c.name, back)
		}
	}
	for _, key := range []string{"a", "a/b", "a.b/c", "ä", "\xff", " ", "a b\nc", "...x/y", strings.Repeat("k", MaxName)} {
		if err := CheckKey(key); err != nil {
			t.Errorf("key %.20q: %v", key, err)
		}
	}
	for _, key := range []string{"", "/", "/a", "a/", "a//b", ".", "..", "a/..", "../a", "./a", "a/./b", "a.b", "d/a.b", "a\x00", strings.Repeat("k", MaxName+1)} {
		if err := CheckKey(key); !errors.Is(err, ErrName) {
			t.Errorf("key %.20q: error %v", key, err)
		}
	}
	for _, field := range []string{"", "a", "a.b", ".", "..", "\xff", strings.Repeat("f", MaxName)} {
		if err := CheckField(field); err != nil {
			t.Errorf("field %.20q: %v", field, err)
		}
	}
	for _, field := range []string{"a/b", "/", "a\x00", strings.Repeat("f", MaxName+1)} {
		if err := CheckField(field); !errors.Is(err, ErrName) {
			t.Errorf("field %.20q: error %v", field, err)
		}
	}
}
