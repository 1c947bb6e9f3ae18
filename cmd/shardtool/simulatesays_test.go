package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// TestSimulateSays: simulate says what it found, and advises what has an effect.
func TestSimulateSays(t *testing.T) {
	dir := t.TempDir()
	rows, out := filepath.Join(dir, "rows.jsonl"), filepath.Join(dir, "out")
	var text strings.Builder
	for i := range 400 {
		fmt.Fprintf(&text, "{\"id\": \"k%03d\", \"class\": %d, \"text\": \"%s\"}\n", i, i/300, strings.Repeat(fmt.Sprint(i), 60))
	}
	putFile(t, rows, text.String())
	for _, args := range [][]string{
		{"pack", rows, out, "--key", "id", "--attr", "class=class", "--block-size", "4KiB", "--quiet"},
		{"select", out, "--balance", "class", "--name", "even"},
	} {
		if code, _, stderr := command(args...); code != 0 {
			t.Fatal(args, stderr)
		}
	}
	little := []string{"--shuffle", "--lanes", "1", "--global-batch", "50"}
	for _, c := range []struct {
		data  string
		flags []string
		want  string
		not   string
	}{
		{out, nil, "each sample is delivered exactly once", "as often as"},
		{out + "#even", []string{"--shuffle"}, "each sample is delivered as often as the view draws it", "exactly once"},
		{out, append(little, "--delay", "1"), "Give a new run a larger --delay, or none and --shuffle-memory ", "Give a new run --shuffle"},
		{out, append(little, "--shuffle-memory", "40KiB"), "Give a new run --shuffle-memory ", "--delay"},
		{out, []string{"--shuffle"}, "", "mixed little"},
	} {
		code, stdout, stderr := command(append([]string{"simulate", c.data}, c.flags...)...)
		if code != 0 || !strings.Contains(stdout, c.want) || strings.Contains(stdout, c.not) {
			t.Errorf("%s %v: want %q, not %q: exit code %d: %s%s", c.data, c.flags, c.want, c.not, code, stdout, stderr)
		}
	}
}
