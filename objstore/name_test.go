package objstore

import (
	"errors"
	"io/fs"
	"strings"
	"testing"
)

func TestCheckName(t *testing.T) {
	for _, name := range []string{"a", "a/b", "...", "a..b/.c", " ", "new\nline", "\xff", "a:b",
		strings.Repeat("x", MaxNameLen)} {
		if err := CheckName(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for name, why := range map[string]string{
		"":                                 "empty",
		"/a":                               "begins with /",
		"a/":                               "empty element",
		"a//b":                             "empty element",
		".":                                "element .",
		"a/./b":                            "element .",
		"..":                               "element ..",
		"a/..":                             "element ..",
		`a\b`:                              "backslash",
		"a\x00":                            "NUL",
		strings.Repeat("x", MaxNameLen+1):  "1025 bytes, the limit is 1024",
		strings.Repeat("é/", MaxNameLen/3): "empty element",
	} {
		err := CheckName(name)
		if !errors.Is(err, ErrName) || !strings.Contains(err.Error(), why) {
			t.Errorf("%.20q: %v; want %q", name, err, why)
		}
	}
}

// FuzzCheckName compares the rule with that of fs.ValidPath, which differs in a few known ways.
func FuzzCheckName(f *testing.F) {
	for _, name := range []string{"", "a", "a/b", "/", "..", "a/../b", `a\b`, "a\x00b", "\xff/b", ".", "a/.", "new\nline"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		err := CheckName(name)
		if err != nil && !errors.Is(err, ErrName) {
			t.Fatalf("%q: %v is no ErrName", name, err)
		}
		// fs.ValidPath requires UTF-8 and accepts "."; it has no other limits.
		path := strings.ToValidUTF8(name, "?")
		want := fs.ValidPath(path) && path != "." && len(name) <= MaxNameLen && !strings.ContainsAny(name, "\\\x00")
		if (err == nil) != want {
			t.Fatalf("%q: %v; want accepted=%v", name, err, want)
		}
	})
}
