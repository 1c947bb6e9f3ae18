package writer_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// childEnv makes the test binary do something else than test: see child_test.go.
const childEnv = "SHARDTOOL_WRITER_CHILD"

func TestMain(m *testing.M) {
	if job := os.Getenv(childEnv); job != "" {
		os.Exit(child(job))
	}
	goleak.VerifyTestMain(m)
}
