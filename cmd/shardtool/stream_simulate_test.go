package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/cmd/shardtool/internal/simulate"
)

// TestStreamSimulate compares the figures of simulate with counts over the orders of all ranks.
func TestStreamSimulate(t *testing.T) {
	if testing.Short() {
		t.Skip("orders of one goroutine: make test runs it without the race detector")
	}
	t.Parallel()
	out := smallSet(t)
	for i, flags := range []string{
		"--shuffle --global-batch 64", "--global-batch 50", "--shuffle --tail drop --global-batch 64", "--shuffle --tail pad --global-batch 64 --epoch 3",
		"--shuffle --tail wrap --global-batch 128 --lanes 8 --delay 4", "--shuffle --affinity run --run-blocks 4 --lanes 5 --delay 2",
	} {
		args := strings.Fields(flags)
		var sim simulate.Report
		if err := json.Unmarshal(shardtool(t, slices.Concat([]string{"simulate", out, "--json", "--worlds", "1,3,8"}, args)...), &sim); err != nil {
			t.Fatal(err)
		}
		blocks := map[string]bool{}
		for _, w := range sim.Worlds {
			seen := map[uint64]int{}
			least, most, padding := 1<<30, 0, 0
			reads, largest := 0, 0
			for rank := range w.Size {
				own := map[string]bool{}
				n := 0
				text := shardtool(t, slices.Concat([]string{"order", out, "--world-size", strconv.Itoa(w.Size), "--rank", strconv.Itoa(rank)}, args)...)
				for line := range bytes.Lines(text) {
					var l orderLine
					if err := json.Unmarshal(line, &l); err != nil {
						t.Fatal(err)
					}
					if n++; l.Padding {
						padding++
						continue
					}
					own[fmt.Sprint(l.Shard, l.Block)] = true
					if l.Epoch == sim.Epoch {
						seen[l.Number]++
					}
				}
				for b := range own {
					blocks[b] = true
				}
				least, most, reads, largest = min(least, n), max(most, n), reads+len(own), max(largest, len(own))
			}
			missing := uint64(smallSamples - len(seen))
			for n, c := range seen {
				if c != 1 {
					t.Errorf("%s: sample %d comes %d times", flags, n, c)
				}
			}
			if uint64(least) != w.Least || uint64(most) != w.Most || uint64(largest) != w.Blocks || uint64(padding) != sim.Padding || missing != sim.Missing {
				t.Errorf("%s: %d ranks: counted %d to %d samples, %d blocks, %d padding, %d missing; simulate says %+v", flags, w.Size, least, most, largest, padding, missing, w)
			}
			if got := fmt.Sprintf("%.4f", w.Amplification); got != fmt.Sprintf("%.4f", float64(reads)/float64(len(blocks))) {
				t.Errorf("%s: %d ranks read %d of %d blocks; simulate says %s", flags, w.Size, reads, len(blocks), got)
			}
			if w.Steps != sim.Batches || sim.Samples != smallSamples || sim.ExactlyOnce != (missing == 0) || (missing > 0) != (i == 2) {
				t.Errorf("%s: %+v", flags, sim)
			}
		}
	}
}

// TestStreamTarCut cuts a tar with checkpoints anywhere, as for a consumer that was killed: the
// files before its last checkpoint, followed by those of a cat that resumes there, are all files in
// order.
func TestStreamTarCut(t *testing.T) {
	if testing.Short() {
		t.Skip("it cuts what a command wrote: make test runs it without the race detector")
	}
	t.Parallel()
	out := smallSet(t)
	args := []string{"cat", out, "--shuffle", "--seed", "2", "--global-batch", "50", "--checkpoints"}
	whole := shardtool(t, args...)
	want, last := tarNames(t, whole)
	if len(want) != smallSamples || last == nil {
		t.Fatalf("%d files", len(want))
	}
	file := filepath.Join(t.TempDir(), "ckpt")
	for range 8 {
		cut := 100_000 + rand.IntN(len(whole)-100_000)
		got, cp := tarNames(t, whole[:cut])
		if err := os.WriteFile(file, cp, 0o644); err != nil {
			t.Fatal(err)
		}
		rest, _ := tarNames(t, shardtool(t, append(args, "--checkpoint-in", file)...))
		if len(got) == 0 || !slices.Equal(slices.Concat(got, rest), want) {
			t.Fatalf("cut at %d of %d: %d files before the checkpoint and %d after, of %d", cut, len(whole), len(got), len(rest), len(want))
		}
	}
}

// tarNames lists the files before the last checkpoint of a tar, whole or cut, and that checkpoint.
func tarNames(t *testing.T, text []byte) (names []string, checkpoint []byte) {
	t.Helper()
	r := tar.NewReader(bytes.NewReader(text))
	kept := 0
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return names[:kept], checkpoint
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			return names[:kept], checkpoint
		}
		if h.Name == checkpointMember {
			kept, checkpoint = len(names), data
			continue
		}
		names = append(names, h.Name)
	}
}
