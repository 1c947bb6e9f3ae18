package main

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/shardtool/shardtool/reader/order"
)

// TestEarlierChoice: a checkpoint whose lanes earlier rules chose resumes with them, by the command
// that made it, though the same memory gives a fresh run another order. Another memory
// is still refused.
func TestEarlierChoice(t *testing.T) {
	t.Parallel()
	out := smallSet(t)
	ds, err := openDataset(t.Context(), out)
	if err != nil {
		t.Fatal(err)
	}
	defer ds.Close()
	table, err := ds.OrderTable(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	block := (table.Decoded + uint64(len(table.Samples)) - 1) / uint64(len(table.Samples))
	memory := 5 * 48 * block // V=48 W=1, by those rules
	now, err := order.Choose(table, order.Choice{Shuffle: true, Memory: memory})
	if err != nil || now.Lanes == 48 {
		t.Fatalf("a fresh run gets %+v, %v: the test misses what it is for", now, err)
	}
	checkpoint := filepath.Join(t.TempDir(), "ck")
	first := []string{"cat", out, "--json", "--shuffle", "--global-batch", "50", "--lanes", "48", "--delay", "1"}
	whole := shardtool(t, first...)
	head := shardtool(t, append(slices.Clone(first), "--limit", "150", "--checkpoint-out", checkpoint)...)
	resume := []string{"cat", out, "--json", "--shuffle", "--global-batch", "50", "--checkpoint-in", checkpoint, "--shuffle-memory"}
	tail := shardtool(t, append(slices.Clone(resume), strconv.FormatUint(memory, 10))...)
	if len(head) == 0 || len(tail) == 0 || !bytes.Equal(slices.Concat(head, tail), whole) {
		t.Errorf("%d bytes of lines before the checkpoint and %d after, of %d", len(head), len(tail), len(whole))
	}
	for _, other := range []uint64{memory - 1, 6 * 48 * block} {
		args := append(slices.Clone(resume), strconv.FormatUint(other, 10))
		if code, stderr := fails(t, args...); code != exitCheckpoint || !bytes.Contains(stderr, []byte("W (delay)")) {
			t.Errorf("a memory of %d bytes: exit code %d: %s", other, code, stderr)
		}
	}
}

// fails runs the command and returns its exit code and what it writes to stderr.
func fails(t *testing.T, args ...string) (int, []byte) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "shardtool", args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	_ = cmd.Run() // the exit code tells
	return cmd.ProcessState.ExitCode(), stderr.Bytes()
}
