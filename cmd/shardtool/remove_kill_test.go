package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestKilledRemoval kills remove and purge at random moments. The published data set is then
// entirely the one before or the one after the command, and repeating the command gives the one
// after.
func TestKilledRemoval(t *testing.T) {
	if testing.Short() {
		t.Skip("it kills processes and looks at what is stored: make test runs it without the race detector")
	}
	t.Parallel()
	dir := t.TempDir()
	src, base, keys := filepath.Join(dir, "src"), filepath.Join(dir, "base"), filepath.Join(dir, "keys")
	if err := os.Mkdir(src, 0o777); err != nil {
		t.Fatal(err)
	}
	var removed strings.Builder
	for i := range 400 {
		text := strings.Repeat(fmt.Sprint("sample ", i, "\n"), 2000)
		if err := os.WriteFile(filepath.Join(src, fmt.Sprintf("s%03d.txt", i)), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		if i%9 == 0 {
			fmt.Fprintf(&removed, "s%03d\n", i)
		}
	}
	if err := os.WriteFile(keys, []byte(removed.String()), 0o666); err != nil {
		t.Fatal(err)
	}
	if code := runCode(t, packCommand(src, base, "--quiet", "--samples-per-shard", "10")); code != 0 {
		t.Fatalf("exit %d", code)
	}
	for _, command := range [][]string{{"remove", "--keys", keys}, {"purge", "--quiet"}, {"purge", "--quiet", "--generations"}} {
		after := filepath.Join(dir, "after "+strings.Join(command, " ")[:6]+fmt.Sprint(len(command)))
		copyTree(t, base, after)
		begin := time.Now()
		if code := runCode(t, removal(after, command)); code != 0 {
			t.Fatalf("%v: exit %d", command, code)
		}
		took, before, done := time.Since(begin), removalOf(t, base), removalOf(t, after)
		killed := 0
		for round := range 15 {
			out := filepath.Join(dir, "out")
			if err := os.RemoveAll(out); err != nil {
				t.Fatal(err)
			}
			copyTree(t, base, out)
			cmd := removal(out, command)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Duration(rand.Int64N(int64(took))))
			_ = cmd.Process.Kill()
			if cmd.Wait() != nil {
				killed++
			}
			if now := removalOf(t, out); now != before && now != done {
				t.Fatalf("%v, round %d: %s", command, round, now)
			}
			if code := runCode(t, removal(out, command)); code != 0 {
				t.Fatalf("%v, round %d: once more exits %d", command, round, code)
			}
			if now := removalOf(t, out); now != done {
				t.Fatalf("%v, round %d: once more leads to %s, want %s", command, round, now, done)
			}
		}
		t.Logf("%v: %d of 15 were killed", command, killed)
		base = after
	}
}

// removal is a command over a data set.
func removal(out string, command []string) *exec.Cmd {
	return exec.Command("shardtool", append([]string{command[0], out}, command[1:]...)...)
}

func copyTree(t *testing.T, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}

// removalOf describes what is published, which must be whole.
func removalOf(t *testing.T, out string) string {
	t.Helper()
	if text, err := exec.Command("shardtool", "verify", out, "--deep", "--quiet").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	keys, err := exec.Command("shardtool", "ls", out).Output()
	if err != nil {
		t.Fatal(err)
	}
	text, err := exec.Command("shardtool", "inspect", out).Output()
	if err != nil {
		t.Fatal(err)
	}
	purged := "nothing removed"
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, " removed, ") {
			purged = line
		}
	}
	return fmt.Sprintf("%d keys, %s", strings.Count(string(keys), "\n"), purged)
}
