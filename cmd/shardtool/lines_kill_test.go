//go:build unix

package main

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestLinesKilled kills packs of JSON Lines and CSV, plain and compressed, at random moments: nothing is visible, and --resume
// takes over what is there and makes the bytes of a pack that was left alone.
func TestLinesKilled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	src, want := filepath.Join(dir, "src"), filepath.Join(dir, "want")
	if err := os.Mkdir(src, 0o755); err != nil {
		t.Fatal(err)
	}
	const rows = 50
	for _, name := range []string{"a.jsonl", "b.jsonl", "c.jsonl"} {
		if err := randomLines(filepath.Join(src, name), rows, 100_000); err != nil {
			t.Fatal(err)
		}
	}
	script := `gzip -1 b.jsonl; zstd -q --rm c.jsonl; (echo "id,text"; sed -E 's/.*:(.*),"text":(".*")./\1,\2/' a.jsonl) > d.csv; head -n 3 a.jsonl | sed 's/.$//' > e.jsonl`
	prepare := exec.Command("sh", "-ec", script)
	prepare.Dir = src
	if out, err := prepare.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	skip := []string{"--quiet", "--on-error", "skip"}
	if code := runCode(t, packCommand(src, want, skip...)); code != exitSkipped {
		t.Fatalf("exit %d", code)
	}
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGKILL, syscall.SIGKILL, syscall.SIGTERM} {
		out := filepath.Join(t.TempDir(), "out")
		shards := 1 + rand.IntN(7)
		code, _, words := stopInside(t, packCommand(src, out, "--on-error", "skip"), out, shards, sig)
		t.Logf("%v after %d shards: exit %d", sig, shards, code)
		if sig == syscall.SIGTERM && (code != exitStopped || !strings.Contains(words, "the same command with --resume goes on")) {
			t.Errorf("%v: exit %d: %s", sig, code, words)
		}
		if code := runCode(t, exec.Command("shardtool", "ls", out)); code != exitNotFound {
			t.Fatalf("%v: ls exits %d: something was published", sig, code)
		}
		if code := runCode(t, packCommand(src, out, "--resume", "--quiet", "--columns", "text")); code == 0 {
			t.Error("resumed with other columns")
		}
		cmd := packCommand(src, out, append(skip, "--resume", "--json")...)
		text, _ := cmd.Output()
		if code := cmd.ProcessState.ExitCode(); code != exitSkipped {
			t.Fatalf("%v: exit %d", sig, code)
		}
		var res struct{ Adopted, Written, Samples, Skipped int }
		if err := json.Unmarshal(text, &res); err != nil {
			t.Fatal(err)
		}
		if res.Samples != 4*rows || res.Skipped != 3 || res.Adopted < 1 || res.Adopted+res.Written != 4*rows {
			t.Errorf("%v: %+v: nothing taken over, or something lost", sig, res)
		}
		for _, c := range []*exec.Cmd{
			exec.Command("diff", "-r", "-x", ".*", want, out), exec.Command("shardtool", "verify", out, "--deep"),
		} {
			if text, err := c.CombinedOutput(); err != nil {
				t.Errorf("%v: %v: %v\n%s", sig, c.Args, err, text)
			}
		}
	}
}
