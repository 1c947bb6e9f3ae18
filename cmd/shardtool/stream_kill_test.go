package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/shardtool/shardtool/reader/order"
)

// killed starts the command, takes some of its output, kills it, and returns all that it wrote.
// done reports that it had ended before.
func killed(t *testing.T, take int, args ...string) (text []byte, done bool) {
	t.Helper()
	cmd := exec.Command("shardtool", args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	_, _ = io.CopyN(&got, out, int64(take))
	time.Sleep(time.Duration(rand.IntN(3000)) * time.Microsecond)
	_ = cmd.Process.Kill()
	_, _ = io.Copy(&got, out)
	return got.Bytes(), cmd.Wait() == nil
}

// TestStreamKilledWithFile kills cat at random moments and resumes from --checkpoint-out: the
// samples up to the file's checkpoint, followed by those of the next run, are the sequence of an
// uninterrupted run.
func TestStreamKilledWithFile(t *testing.T) {
	t.Parallel()
	out := smallSet(t)
	flags := []string{"--json", "--shuffle", "--seed", "4", "--epochs", "5", "--lanes", "6", "--delay", "3", "--global-batch", "12"}
	want := numbers(lines(t, shardtool(t, slices.Concat([]string{"order", out}, flags[1:])...)))
	file := filepath.Join(t.TempDir(), "ckpt")
	var consumed []uint64
	kills, most := 0, 30
	if testing.Short() {
		most = 3
	}
	for done := false; !done; {
		args := slices.Concat([]string{"cat", out, "--checkpoint-out", file}, flags)
		if _, err := os.Stat(file); err == nil {
			args = append(args, "--checkpoint-in", file)
		}
		begin := len(consumed)
		take := rand.IntN(15_000)
		if kills >= most {
			take = 1 << 30
		}
		var text []byte
		text, done = killed(t, take, args...)
		kills++
		got := numbers(lines(t, text))
		cp := decodeFile(t, file)
		at := begin
		if cp != nil {
			at = int(cp.Epoch)*smallSamples + int(cp.Position)
		}
		if at < begin || at-begin > len(got) {
			t.Fatalf("the checkpoint is at %d, the run began at %d and wrote %d samples", at, begin, len(got))
		}
		consumed = append(consumed, got[:at-begin]...)
	}
	t.Logf("killed %d times", kills-1)
	if !slices.Equal(consumed, want) {
		t.Fatalf("%d samples came, %d were to come, or in another order", len(consumed), len(want))
	}
}

// decodeFile reads a checkpoint, which must be whole; nil when there is none yet.
func decodeFile(t *testing.T, file string) *order.Checkpoint {
	t.Helper()
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	cp, err := order.DecodeCheckpoint(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return &cp
}

// TestStreamKilledElastic kills jobs of 4, 3 and 5 ranks, each rank at another moment, and resumes
// from the checkpoint of one common step in the stream, up to which each rank's consumer had read.
func TestStreamKilledElastic(t *testing.T) {
	if testing.Short() {
		t.Skip("it kills processes and looks at what they wrote: make test runs it without the race detector")
	}
	t.Parallel()
	out := smallSet(t)
	flags := []string{"--shuffle", "--seed", "9", "--epochs", "2", "--tail", "wrap"}
	dir := t.TempDir()
	var consumed []uint64
	var in string
	for start, job := range []struct{ ranks, batch, steps int }{{4, 20, 9}, {3, 33, 14}, {5, 20, 11}, {1, 50, 0}} {
		parts := make([][][]uint64, job.ranks) // by rank and step
		least := 1 << 30
		var last []json.RawMessage
		for rank := range job.ranks {
			args := slices.Concat([]string{"cat", out, "--json", "--checkpoints", "--rank", strconv.Itoa(rank), "--world-size", strconv.Itoa(job.ranks),
				"--global-batch", strconv.Itoa(job.batch)}, flags)
			if in != "" {
				args = append(args, "--checkpoint-in", in)
			}
			take := 1 << 30
			if job.steps > 0 {
				take = (job.steps + rand.IntN(5)) * (job.batch/job.ranks*130 + 700)
			}
			text, _ := killed(t, take, args...)
			text = text[:min(take, len(text))] // the consumer was killed as well
			var marks []json.RawMessage
			parts[rank] = append(parts[rank], nil)
			for _, l := range lines(t, text) {
				if l.Checkpoint == nil {
					parts[rank][len(marks)] = append(parts[rank][len(marks)], l.Number)
					continue
				}
				marks = append(marks, l.Checkpoint)
				parts[rank] = append(parts[rank], nil)
			}
			if len(marks) < least {
				least, last = len(marks), marks
			}
		}
		if least < 3 {
			t.Fatalf("start %d: only %d steps", start, least)
		}
		for step := range least {
			for rank := range job.ranks {
				consumed = append(consumed, parts[rank][step]...)
			}
		}
		in = filepath.Join(dir, fmt.Sprint(start))
		if err := os.WriteFile(in, last[least-1], 0o644); err != nil {
			t.Fatal(err)
		}
	}
	// Within a batch samples are listed lane by lane, so their sequence is that of the batch sizes;
	// epochs are complete nevertheless.
	if len(consumed) < 2*smallSamples {
		t.Fatalf("%d samples came, %d were to come", len(consumed), 2*smallSamples)
	}
	for epoch := range 2 {
		part := slices.Sorted(slices.Values(consumed[epoch*smallSamples : (epoch+1)*smallSamples]))
		for i, n := range part {
			if n != uint64(i) {
				t.Fatalf("epoch %d: sample %d is missing or came twice, near %d", epoch, i, n)
			}
		}
	}
}

// TestStreamSignalled: a signal ends cat within 10 s with exit code 5 and a correct checkpoint,
// also when nobody reads its output.
func TestStreamSignalled(t *testing.T) {
	t.Parallel()
	out := smallSet(t)
	signals := []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGUSR1}
	if testing.Short() {
		signals = signals[:1]
	}
	for _, sig := range signals {
		for _, read := range []bool{true, false} {
			t.Run(fmt.Sprintf("%v/read=%v", sig, read), func(t *testing.T) {
				t.Parallel()
				file := filepath.Join(t.TempDir(), "ckpt")
				flags := []string{"--shuffle", "--epochs", "0", "--global-batch", "16"}
				cmd := exec.Command("shardtool", slices.Concat([]string{"cat", out, "--json", "--checkpoint-out", file}, flags)...)
				var words bytes.Buffer
				cmd.Stderr = &words
				pipe, w, err := os.Pipe() // that Wait does not wait for
				if err != nil {
					t.Fatal(err)
				}
				defer pipe.Close()
				cmd.Stdout = w
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				w.Close()
				begin := bufio.NewReader(pipe)
				if _, err := begin.Peek(1000); err != nil {
					t.Fatal(err)
				}
				got := make(chan []byte, 1)
				take := func() {
					all, _ := io.ReadAll(begin)
					got <- all
				}
				if read {
					go take()
				}
				time.Sleep(300 * time.Millisecond)
				if err := cmd.Process.Signal(sig); err != nil {
					t.Fatal(err)
				}
				defer killLate(cmd)()
				if err := cmd.Wait(); cmd.ProcessState.ExitCode() != exitStopped {
					t.Fatalf("%v: %s", err, &words)
				}
				if !read {
					go take()
				}
				if strings.Contains(words.String(), "nobody reads the output") == read {
					t.Errorf("its output is read: %v; it says %s", read, &words)
				}
				samples := numbers(lines(t, <-got))
				cp := decodeFile(t, file)
				if cp == nil {
					t.Fatal("no checkpoint")
				}
				at := int(cp.Epoch)*smallSamples + int(cp.Position)
				if at > len(samples) || read && at != len(samples) {
					t.Fatalf("the checkpoint is at %d, %d samples were written", at, len(samples))
				}
				epochs := strconv.Itoa(at/smallSamples + 1)
				want := numbers(lines(t, shardtool(t, "order", out, "--shuffle", "--epochs", epochs, "--tail", "wrap", "--global-batch", "16")))
				rest := numbers(lines(t, shardtool(t, "cat", out, "--json", "--checkpoint-in", file, "--epochs", epochs)))
				if !slices.Equal(slices.Concat(samples[:at], rest), want) {
					t.Error("what came before the checkpoint and after is not the order")
				}
				if litter, _ := filepath.Glob(filepath.Join(filepath.Dir(file), ".*")); len(litter) > 0 {
					t.Errorf("left: %q", litter)
				}
				if !strings.Contains(words.String(), "stopped") {
					t.Errorf("no word: %s", &words)
				}
			})
		}
	}
}
