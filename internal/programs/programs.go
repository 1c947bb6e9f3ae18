// Package programs is for tests that run other programs.
package programs

import (
	"os"
	"os/exec"
	"testing"
)

// Need skips a test where one of the programs is not installed. Where SHARDTOOL_TEST_TOOLS is set,
// as where all of them are to be installed, that is a failure.
func Need(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := exec.LookPath(name); err == nil {
			continue
		}
		if os.Getenv("SHARDTOOL_TEST_TOOLS") != "" {
			t.Fatalf("%s is not installed, and SHARDTOOL_TEST_TOOLS wants all programs", name)
		}
		t.Skipf("%s is not installed", name)
	}
}
