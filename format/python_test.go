package format

import (
	"os/exec"
	"strings"
	"testing"
)

// TestSecondReader runs the reader that was written in Python from SPEC.md alone over the golden data set and all vectors.
func TestSecondReader(t *testing.T) {
	out, err := exec.Command("python3", "../python/format_check.py", "../testdata/spec").CombinedOutput()
	if err != nil {
		t.Fatalf("python3 and zstd are needed: %v\n%s", err, out)
	}
	if !strings.Contains(string(out), ", 0 differ") {
		t.Errorf("%s", out)
	}
}
