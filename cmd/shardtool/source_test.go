package main

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestPackChangingSource changes files after they were listed and before they are read.
func TestPackChangingSource(t *testing.T) {
	t.Parallel()
	last := "000299.bin"
	for name, change := range map[string]func(file string) error{
		"shorter": func(file string) error { return os.Truncate(file, 10) },
		"longer":  func(file string) error { return os.WriteFile(file, make([]byte, 200_001), 0o644) },
		"gone":    os.Remove,
		"a folder": func(file string) error {
			if err := os.Remove(file); err != nil {
				return err
			}
			return os.Mkdir(file, 0o755)
		},
	} {
		if testing.Short() && name != "gone" {
			continue // the same goroutines
		}
		for _, onError := range []string{"fail", "skip"} {
			t.Run(name+", "+onError, func(t *testing.T) {
				dir := t.TempDir()
				src, out := filepath.Join(dir, "src"), filepath.Join(dir, "out")
				if err := randomFiles(src, 300, 50_000); err != nil {
					t.Fatal(err)
				}
				// One worker and a small budget: reading cannot run ahead to the last file.
				cmd := exec.Command("shardtool", "pack", src, out, "--workers", "1", "--memory", "1MiB", "--on-error", onError)
				pipe, err := cmd.StderrPipe()
				if err != nil {
					t.Fatal(err)
				}
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				words := bufio.NewReader(pipe)
				if line, err := words.ReadString('\n'); err != nil || !strings.HasPrefix(line, "found 300 samples") {
					t.Fatalf("%q, %v", line, err)
				}
				if err := change(filepath.Join(src, last)); err != nil {
					t.Fatal(err)
				}
				rest, _ := io.ReadAll(words)
				_ = cmd.Wait()
				want, samples := exitFailed, ""
				if onError == "skip" {
					want, samples = exitSkipped, "299"
				}
				if code := cmd.ProcessState.ExitCode(); code != want {
					t.Errorf("exit %d, want %d: %s", code, want, rest)
				}
				if !strings.Contains(string(rest), last) {
					t.Errorf("%s is not named: %s", last, rest)
				}
				keys, _ := exec.Command("shardtool", "ls", out).Output()
				if n := strings.Count(string(keys), "\n"); samples == "" && n != 0 || samples == "299" && n != 299 {
					t.Errorf("%d samples were published", n)
				}
			})
		}
	}
}
