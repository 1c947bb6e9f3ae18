package names

import "testing"

// TestNames: what a function makes is known by its inverse, and by no other.
func TestNames(t *testing.T) {
	hash := [32]byte{0xab, 0xcd, 1, 2, 3, 4, 5, 6, 0xff}
	tag := [8]byte(hash[:8])
	is := map[string]func(string) bool{
		"tables": IsTables, "keys": IsKeys, "skipped": IsSkipped, "view": IsView, "id": IsViewID,
		"sidecar": func(s string) bool { _, _, ok := ParseSidecar(s); return ok },
		"label":   func(s string) bool { _, ok := ParseLabel(s); return ok },
	}
	for kind, name := range map[string]string{
		"tables": Tables(hash), "keys": Keys(hash), "skipped": Skipped(hash), "view": View("abcd010203040506"), "id": "abcd010203040506",
		"sidecar": Sidecar("a/b.tar", tag), "label": Label("few"),
	} {
		for other, known := range is {
			if known(name) != (kind == other) {
				t.Errorf("%s, of %s: as %s it is %v", name, kind, other, kind != other)
			}
		}
	}
	if g := Generation(Tables(hash)); g != "abcd010203040506" || Generation(Keys(hash)) != "" {
		t.Errorf("generation %q of %s", g, Tables(hash))
	}
	if archive, got, ok := ParseSidecar("a/b.tar.abcd010203040506.shidx"); archive != "a/b.tar" || got != tag || !ok {
		t.Errorf("sidecar of %q, %x, %v", archive, got, ok)
	}
	if name, ok := ParseLabel("views/few.json"); name != "few" || !ok {
		t.Errorf("label %q, %v", name, ok)
	}
	for _, s := range []string{"", ".few", "-few", "a/b", "a b", "abcd010203040506", "0123456789012345678901234567890123456789012345678901234567890123x"} {
		if IsLabel(s) {
			t.Errorf("%q can be the name of a view", s)
		}
	}
}
