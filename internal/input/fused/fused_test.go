package fused_test

import (
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/input/fused"
)

// TestLastDot: every name that has a key divides into one that can be stored.
func TestLastDot(t *testing.T) {
	for name, want := range map[string][2]string{
		"a.jpg": {"a", "jpg"}, "d.e/1.2.840.1.dcm": {"d.e/1-2-840-1", "dcm"}, "d.e/plain": {"d.e/plain", ""}, "a.b.": {"a-b", ""},
		"..x": {"-", "x"}, ".hidden": {"", "hidden"}, "": {"", ""},
	} {
		key, field := fused.LastDot(name)
		if key != want[0] || field != want[1] {
			t.Errorf("%q: %q and %q, want %q", name, key, field, want)
		}
		if err := format.CheckKey(key); (err == nil) != (key != "") {
			t.Errorf("%q: %v", name, err)
		}
	}
	if fused.Meet("d/a.b.jpg", "d/a.b.txt") != nil || fused.Meet("a.b", "a") != nil || fused.Meet("a.b.jpg", "a-b.jpg") == nil {
		t.Error("names that meet")
	}
}
