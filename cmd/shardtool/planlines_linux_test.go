package main

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestPlanLines: the parent of a child hears of the first plan once it takes a second, of rank 0
// alone, and of no plan that is made ahead.
func TestPlanLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		was := warnings
		warnings = slog.New(slog.NewTextHandler(&out, nil))
		defer func() { warnings = was }()
		if planLines(1)("") != nil {
			t.Error("rank 1 tells of its plans")
		}
		show := planLines(0)("web")
		show(4, 1000, 8000)
		if out.Len() > 0 {
			t.Errorf("at once: %s", out.String())
		}
		time.Sleep(time.Second)
		show(5, 1000, 8000)
		show(4, 2000, 8000)
		show(4, 3000, 8000)
		if text := out.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, `"planning units of web: 2,000 of 8,000 samples (25%)"`) {
			t.Errorf("after a second: %q", text)
		}
	})
}
