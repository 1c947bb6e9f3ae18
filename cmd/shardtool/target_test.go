package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestTargetFirst: a target that has a data set is refused before the sources are listed, which may
// take hours.
func TestTargetFirst(t *testing.T) {
	dir := t.TempDir()
	src, out := filepath.Join(dir, "src"), filepath.Join(dir, "out")
	if err := randomFiles(src, 3, 10); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := command("pack", src, out, "--quiet"); code != 0 {
		t.Fatal(stderr)
	}
	if err := os.RemoveAll(src); err != nil { // listing it would be another error
		t.Fatal(err)
	}
	code, _, stderr := command("pack", src, out)
	if code != exitFailed || !strings.Contains(stderr, "there is a data set already (generation 1, 3 samples); --append adds to it, --overwrite replaces it") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	if code, _, stderr = command("pack", src, out, "--append"); code == 0 || strings.Contains(stderr, "already") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}
