package docs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestNotes makes two releases of a changelog: each has the notes of its own version.
func TestNotes(t *testing.T) {
	program := filepath.Join(t.TempDir(), "notes")
	if out, err := exec.Command("go", "build", "-o", program, "../.ci/notes.go").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	notes := func(args ...string) string {
		cmd := exec.Command(program, args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if failed := strings.HasPrefix(string(out), "notes: "); failed != (err != nil) {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	wants := func(got, want string) {
		t.Helper()
		if !strings.Contains(got, want) || want == "" && got != "" {
			t.Fatalf("%q, want %q", got, want)
		}
	}
	write("VERSION", "0.9.0\n")
	write("CHANGELOG.md", "# Changelog\n\n## [Unreleased]\n\n### Added\n\n- first\n")
	wants(notes("-check"), "")
	wants(notes(), "no section for 0.9.0")
	wants(notes("-release", "2026-13-01"), "version 0.9.0: parsing time")
	wants(notes("-release", "2026-01-31"), "")
	wants(notes("-release", "2026-01-31"), "the section [Unreleased] is empty")
	wants(notes(), "### Added\n\n- first\n")
	text, err := os.ReadFile(filepath.Join(dir, "CHANGELOG.md"))
	if err != nil {
		t.Fatal(err)
	}
	second := strings.Replace(string(text), "## [Unreleased]\n", "## [Unreleased]\n\n- second\n", 1)
	write("CHANGELOG.md", second)
	wants(notes("-release", "2026-02-28"), "0.9.0 is in CHANGELOG.md already: raise the file VERSION")
	write("VERSION", "0.10.0\n")
	wants(notes("-release", "2026-02-28"), "")
	if got := notes(); got != "- second\n" {
		t.Errorf("notes of 0.10.0: %q", got)
	}
	wants(notes("-check"), "")
	write("VERSION", "0.9.1\n")
	wants(notes("-check"), "a version newer than 0.9.1")
	write("CHANGELOG.md", "## [0.1.0] - 2026-01-31\n")
	wants(notes("-check"), "the first section of CHANGELOG.md must be [Unreleased]")
	write("CHANGELOG.md", "## [Unreleased]\n## 0.1.0\n")
	wants(notes("-check"), "want a title such as ## [1.2.3] - 2026-01-31")
	write("CHANGELOG.md", "## [Unreleased]\n## [0.1.0] - 2026-01-31\n## [0.2.0] - 2026-01-31\n")
	wants(notes("-check"), "the newest version comes first")
}
