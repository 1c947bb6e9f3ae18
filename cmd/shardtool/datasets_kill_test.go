package main

import (
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// TestDatasetsKilled kills packs of data sets at random moments: nothing is visible, and --resume
// adopts the finished shards and writes the bytes of an uninterrupted pack.
func TestDatasetsKilled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const files = 400
	if err := randomFiles(filepath.Join(dir, "files"), files, 100_000); err != nil {
		t.Fatal(err)
	}
	src, want := filepath.Join(dir, "src"), filepath.Join(dir, "want")
	if code := runCode(t, exec.Command("shardtool", "pack", filepath.Join(dir, "files"), src, "--shard-size", "5MiB", "--block-size", "256KiB", "--quiet")); code != 0 {
		t.Fatalf("exit %d", code)
	}
	pack := killedPack{
		src: src, want: want, flags: []string{"--share", "0%..95%"}, other: []string{"--share", "0%..96%"}, shards: 10,
		signals: []syscall.Signal{syscall.SIGKILL, syscall.SIGKILL, syscall.SIGTERM},
	}
	pack.run(t)
}
