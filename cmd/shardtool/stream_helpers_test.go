package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// smallSamples is how many samples smallSet has.
const smallSamples = 900

// smallSet packs samples of a few hundred bytes into many blocks.
func smallSet(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	src, out := filepath.Join(dir, "src"), filepath.Join(dir, "out")
	if err := randomFiles(src, smallSamples, 300); err != nil {
		t.Fatal(err)
	}
	shardtool(t, "pack", src, out, "--quiet", "--block-size", "16KiB", "--shard-size", "100KiB")
	return out
}

// shardtool runs the command, which must succeed, and returns its output.
func shardtool(t *testing.T, args ...string) []byte {
	t.Helper()
	cmd := exec.Command("shardtool", args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	return out
}

// sampleLine is a line of cat --json: a sample's number, or a checkpoint.
type sampleLine struct {
	Number     uint64
	Checkpoint json.RawMessage
}

func lines(t *testing.T, text []byte) (all []sampleLine) {
	t.Helper()
	for line := range bytes.Lines(text) {
		if line[len(line)-1] != '\n' {
			break // the process was killed in the middle
		}
		var l sampleLine
		if err := json.Unmarshal(line, &l); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		all = append(all, l)
	}
	return all
}

func numbers(ls []sampleLine) (n []uint64) {
	for _, l := range ls {
		if l.Checkpoint == nil {
			n = append(n, l.Number)
		}
	}
	return n
}
