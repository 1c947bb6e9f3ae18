package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// packArgs cut 60 MB into about 30 shards, so that there is time to interrupt the pack.
var packArgs = []string{"--shard-size", "2MiB", "--workers", "1"}

func packCommand(src, out string, more ...string) *exec.Cmd {
	return exec.Command("shardtool", append(append([]string{"pack", src, out}, packArgs...), more...)...)
}

// stopInside starts a pack and sends a signal once it has written this many shards.
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

// TestPackResumed stops packs at random moments, by every signal that ends one: nothing is visible,
// and --resume adopts the finished shards and writes the bytes of an uninterrupted pack.
func TestPackResumed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	src, want := filepath.Join(dir, "src"), filepath.Join(dir, "want")
	if err := randomFiles(src, 600, 100_000); err != nil {
		t.Fatal(err)
	}
	pack := killedPack{
		src: src, want: want, shards: 15, samples: 600,
		signals: []syscall.Signal{syscall.SIGKILL, syscall.SIGKILL, syscall.SIGTERM, syscall.SIGINT, syscall.SIGUSR1},
	}
	pack.run(t)
}

// TestUnreadOutput: a signal ends commands whose output nobody reads.
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
