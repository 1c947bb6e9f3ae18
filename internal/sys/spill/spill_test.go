package spill

import (
	"os"
	"strings"
	"testing"
)

// TestCreate writes a file and reads it back. Nothing is left in the folder, during that either
// where open files can be removed.
func TestCreate(t *testing.T) {
	dir := t.TempDir()
	f, err := Create(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("sorted"); err != nil {
		t.Fatal(err)
	}
	var back [6]byte
	if _, err := f.ReadAt(back[:], 0); err != nil || string(back[:]) != "sorted" {
		t.Errorf("%q: %v", back, err)
	}
	if err := Close(f); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%d files are left: %v", len(left), err)
	}
	if err := Close(nil); err != nil {
		t.Error(err)
	}
}

// TestNoFolder names what to change where the file cannot be made.
func TestNoFolder(t *testing.T) {
	if _, err := Create(t.TempDir() + "/none"); err == nil || !strings.Contains(err.Error(), "TMPDIR") {
		t.Error(err)
	}
}
