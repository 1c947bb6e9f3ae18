//go:build linux && !race

package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

// textFiles writes files that compress about three times.
func textFiles(dir string, n, size int) error {
	random := rand.New(rand.NewPCG(1, 1))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for i := range n {
		var text []byte
		for len(text) < size {
			text = fmt.Appendf(text, "%d words and %x ", random.IntN(1000), random.Uint32())
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%06d.txt", i)), text[:size], 0o644); err != nil {
			return err
		}
	}
	return nil
}

// TestStreamMemory: 64 MiB for blocks of 200 MB in a window that wants all of it, and 64 MiB for
// the rest of the process. The second epoch begins while the first one's window still lives; one
// process resumes an epoch that eight ranks began.
func TestStreamMemory(t *testing.T) {
	dir := t.TempDir()
	src, out, ckpt := filepath.Join(dir, "src"), filepath.Join(dir, "out"), filepath.Join(dir, "ckpt")
	if err := textFiles(src, 2000, 100_000); err != nil {
		t.Fatal(err)
	}
	shardtool(t, "pack", src, out, "--quiet", "--shard-size", "32MiB")
	shardtool(t, "cat", out, "--shuffle", "--global-batch", "256", "--world-size", "8", "--rank", "3", "--limit", "40", "--checkpoint-out", ckpt)
	const budget, rest = 64 << 20, 64 << 20
	for _, args := range [][]string{
		{"--shuffle", "--epochs", "2", "--limit", "2500"},
		{"--shuffle", "--global-batch", "16", "--limit", "1000", "--workers", "8"},
		{"--checkpoint-in", ckpt, "--limit", "1000"},
		{"--shuffle", "--lanes", "8", "--delay", "2", "--epochs", "3", "--tail", "wrap", "--limit", "2500"},
		{"--global-batch", "400"},
	} {
		got := peak(t, append([]string{"cat", out, "--memory", "64MiB"}, args...)...)
		t.Logf("%v: %d MiB", args, got>>20)
		if got > budget+rest {
			t.Errorf("%v: %d MiB, want at most %d", args, got>>20, (budget+rest)>>20)
		}
	}
}
