package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
)

// TestOldCheckpoints: the checkpoints in testdata/checkpoints, of all versions, continue with the
// same samples as when they were written.
func TestOldCheckpoints(t *testing.T) {
	dir, err := filepath.Abs("testdata/checkpoints")
	if err != nil {
		t.Fatal(err)
	}
	makeRefused(t)
	for _, c := range refusedCheckpoints {
		var text, stderr bytes.Buffer
		args := []string{"order", c.of, "--checkpoint-in", filepath.Join(dir, c.name+".json"), "--keys", "--epochs", "2", "--world-size", "3", "--rank", "1", "--limit", "40", "--plans", "none"}
		if code := run(args, strings.NewReader(""), &text, &stderr); code != 0 || text.Len() == 0 {
			t.Errorf("version %s: exit code %d: %s", c.name, code, &stderr)
			continue
		}
		compareGolden(t, filepath.Join(dir, c.name+".lines"), text.String())
	}
}
