package metadata

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/internal/testset/programs"
)

// TestSecondReader runs the reader that was written in Python from SPEC.md alone over the golden
// data set and all vectors.
func TestSecondReader(t *testing.T) {
	programs.Need(t, "python3", "zstd")
	out, err := exec.Command("python3", "../../../python/format_check.py", "../../../testdata/spec").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if !strings.Contains(string(out), ", 0 differ") {
		t.Errorf("%s", out)
	}
}
