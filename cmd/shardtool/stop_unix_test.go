//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// packArgs cut 60 MB into some 30 shards, so that there is a middle to stop in.
var packArgs = []string{"--shard-size", "2MiB", "--workers", "1"}

func packCommand(src, out string, more ...string) *exec.Cmd {
	return exec.Command("shardtool", append(append([]string{"pack", src, out}, packArgs...), more...)...)
}

// stopInside starts a pack and sends a signal when shards many shards are there.
func stopInside(t *testing.T, cmd *exec.Cmd, out string, shards int, sig os.Signal) (code int, took time.Duration, stderr string) {
	t.Helper()
	var words bytes.Buffer
	cmd.Stderr = &words
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		if found, _ := filepath.Glob(filepath.Join(out, "*.tar.zst")); len(found) >= shards {
			break
		}
		if time.Now().After(end) {
			_ = cmd.Process.Kill()
			t.Fatalf("no %d shards within 30 s: %s", shards, &words)
		}
	}
	begin := time.Now()
	if err := cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	return cmd.ProcessState.ExitCode(), time.Since(begin), words.String()
}

// TestPackResumed stops packs at random moments, by every signal that ends one: nothing is visible, and --resume takes over
// what is there and makes the bytes of a pack that was not stopped.
func TestPackResumed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	src, want := filepath.Join(dir, "src"), filepath.Join(dir, "want")
	if err := randomFiles(src, 600, 100_000); err != nil {
		t.Fatal(err)
	}
	if code := runCode(t, packCommand(src, want, "--quiet")); code != 0 {
		t.Fatalf("exit %d", code)
	}
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGKILL, syscall.SIGTERM, syscall.SIGINT, syscall.SIGUSR1} {
		out := filepath.Join(t.TempDir(), "out")
		shards := 1 + rand.IntN(15)
		code, took, words := stopInside(t, packCommand(src, out), out, shards, sig)
		t.Logf("%v after %d shards: exit %d after %v", sig, shards, code, took)
		if sig != syscall.SIGKILL {
			if code != exitStopped || took > 10*time.Second {
				t.Errorf("%v: exit %d after %v, want %d within 10 s", sig, code, took, exitStopped)
			}
			if !strings.Contains(words, "nothing was published; the same command with --resume goes on") || strings.Count(words, "stopped by a signal") != 1 {
				t.Errorf("%v: no advice, or twice: %s", sig, words)
			}
		}
		if code := runCode(t, exec.Command("shardtool", "ls", out)); code != exitNotFound {
			t.Fatalf("%v: ls exits %d: something was published", sig, code)
		}
		cmd := packCommand(src, out, "--resume", "--json", "--quiet")
		cmd.Stderr = os.Stderr
		text, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %v", sig, err)
		}
		var res struct{ Adopted, Written, Samples int }
		if err := json.Unmarshal(text, &res); err != nil {
			t.Fatal(err)
		}
		if res.Samples != 600 || res.Adopted < 1 || res.Adopted+res.Written != 600 {
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

// TestUnreadOutput: a signal ends commands whose output nobody takes.
func TestUnreadOutput(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	src, out := filepath.Join(dir, "src"), filepath.Join(dir, "out")
	if err := randomFiles(src, 20, 100_000); err != nil {
		t.Fatal(err)
	}
	if code := runCode(t, packCommand(src, out, "--quiet")); code != 0 {
		t.Fatalf("exit %d", code)
	}
	for _, args := range [][]string{{"cat", out}, {"cat", out, "--shuffle"}} {
		t.Run(strings.Join(args[2:], " "), func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command("shardtool", args...)
			pipe, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			defer pipe.Close()
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(pipe, make([]byte, 512)); err != nil { // it writes now
				t.Fatal(err)
			}
			begin := time.Now()
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			state, err := cmd.Process.Wait() // not cmd.Wait, which closes the pipe
			if err != nil {
				t.Fatal(err)
			}
			if took := time.Since(begin); state.ExitCode() != exitStopped || took > 10*time.Second {
				t.Errorf("exit %d after %v", state.ExitCode(), took)
			}
		})
	}
}
