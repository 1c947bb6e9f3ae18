//go:build linux && !race

package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// peak runs the command and returns its peak memory, in bytes.
func peak(t *testing.T, args ...string) int64 {
	t.Helper()
	file := filepath.Join(t.TempDir(), "status")
	cmd := exec.Command("shardtool", args...)
	cmd.Env = append(os.Environ(), peakFile+"="+file)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_, _ = io.CopyN(io.Discard, out, 1000)
	time.Sleep(500 * time.Millisecond) // a slow consumer lets the command read ahead
	_, _ = io.Copy(io.Discard, out)
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	status, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var kib int64
	for line := range strings.Lines(string(status)) {
		if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &kib); err == nil {
			return kib << 10
		}
	}
	t.Fatalf("no VmHWM in %s", status)
	return 0
}

// TestMemory: a budget of 16 MiB keeps pack, cat and verify of 200 MB within it and 64 MiB for the
// rest, also with many workers, which would use 100 MB and more without a limit.
func TestMemory(t *testing.T) {
	dir := t.TempDir()
	src, out := filepath.Join(dir, "src"), filepath.Join(dir, "out")
	if err := randomFiles(src, 1000, 200_000); err != nil {
		t.Fatal(err)
	}
	const budget, rest = 16 << 20, 64 << 20
	for _, args := range [][]string{
		{"pack", src, out, "--quiet"},
		{"pack", src, out + "2", "--quiet", "--pack-shuffle", "1", "--level", "best", "--workers", "64"},
		{"cat", out, "--workers", "64"},
		{"cat", out, "--json", "--workers", "64"},
		{"verify", out, "--deep", "--quiet", "--workers", "64"},
	} {
		got := peak(t, append(args, "--memory", "16MiB")...)
		t.Logf("%s: %d MiB", args[0], got>>20)
		if got > budget+rest {
			t.Errorf("%v: %d MiB, want at most %d", args, got>>20, (budget+rest)>>20)
		}
	}
}
