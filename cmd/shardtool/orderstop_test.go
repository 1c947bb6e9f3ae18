package main

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
)

// cancelling cancels a context at its first write, and counts lines.
type cancelling struct {
	cancel context.CancelCauseFunc
	lines  int
}

func (c *cancelling) Write(p []byte) (int, error) {
	c.cancel(errSignal)
	c.lines += strings.Count(string(p), "\n")
	return len(p), nil
}

// TestOrderStops: a signal ends the list of an order, which takes as long as it is.
func TestOrderStops(t *testing.T) {
	dir := t.TempDir()
	src, out := filepath.Join(dir, "src"), filepath.Join(dir, "out")
	if err := randomFiles(src, 100, 10); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := command("pack", src, out, "--quiet"); code != 0 {
		t.Fatal(stderr)
	}
	for _, flags := range []string{"", "--keys", "--shuffle", "--global-batch=7"} {
		ctx, cancel := context.WithCancelCause(t.Context())
		w := &cancelling{cancel: cancel}
		root := newRoot()
		root.SetArgs(append([]string{"order", out, "--epochs=1000"}, strings.Fields(flags)...))
		root.SetOut(w)
		if err := root.ExecuteContext(ctx); !errors.Is(err, errSignal) || w.lines > 10_000 {
			t.Errorf("%s: %v after %d lines", flags, err, w.lines)
		}
	}
}
