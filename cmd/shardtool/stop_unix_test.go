package main

import (
	"bytes"
	"errors"
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

// killLate kills a command that does not end in minutes, so that its exit code shows that it hung.
func killLate(cmd *exec.Cmd) (stop func() bool) {
	return time.AfterFunc(5*time.Minute, func() { _ = cmd.Process.Kill() }).Stop
}

// stopInside starts a pack and sends a signal once it has written this many shards.
func stopInside(t *testing.T, cmd *exec.Cmd, out string, shards int, sig os.Signal) (code int, stderr string) {
	t.Helper()
	var words bytes.Buffer
	cmd.Stderr = &words
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer killLate(cmd)()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for there := 0; there < shards; time.Sleep(time.Millisecond) {
		found, _ := filepath.Glob(filepath.Join(out, "*.tar.zst"))
		there = len(found)
		select {
		case err := <-ended:
			if there < shards {
				t.Fatalf("it has ended with %d shards of %d: %v: %s", there, shards, err, &words)
			}
			ended <- err
		default:
		}
	}
	if err := cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatal(err)
	}
	<-ended
	return cmd.ProcessState.ExitCode(), words.String()
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
			defer killLate(cmd)()
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			state, err := cmd.Process.Wait() // not cmd.Wait, which closes the pipe
			if err != nil {
				t.Fatal(err)
			}
			if state.ExitCode() != exitStopped {
				t.Errorf("exit %d", state.ExitCode())
			}
		})
	}
}
