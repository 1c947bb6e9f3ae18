package serve

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPortable: the file has its size and no name, and a folder that has no room is an error that
// says how to name another one.
func TestPortable(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	f, err := portable.file(3 << 20)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := portable.back(f, 1<<20, 2<<20); err != nil {
		t.Fatal(err)
	}
	if info, err := f.Stat(); err != nil || info.Size() != 3<<20 {
		t.Errorf("%v, %v", info, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("in the folder: %v, %v", left, err)
	}
	full, err := os.Open(os.DevNull) // which cannot be written here
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	if err := portable.back(full, 0, 1); err == nil || !strings.Contains(err.Error(), "TMPDIR names another folder") {
		t.Error(err)
	}
	t.Setenv("TMPDIR", filepath.Join(dir, "missing"))
	if _, err := portable.file(1); err == nil || !strings.Contains(err.Error(), "TMPDIR names another folder") {
		t.Error(err)
	}
}
