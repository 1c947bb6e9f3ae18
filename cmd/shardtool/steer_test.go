package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/open"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/order"
)

// TestSteered: commands read a checkpoint with weights that a program set, without being told them,
// and say where they were set. Checkpoints of ranks with other weights are refused.
func TestSteered(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "mix.yaml")
	text := fmt.Sprintf("epoch: 500\nsources:\n  a: {data: %q, weight: 3}\n  b: {data: %q, weight: 1}\nsegments: [{at: 90, weights: {a: 1}}]\n",
		smallSet(t), smallSet(t))
	if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	// saved is the checkpoint after three batches of 10, of which the last has these weights.
	saved := func(name string, weights map[string]float64) string {
		sources, err := open.Sources(t.Context(), file, nil, open.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer sources.Close()
		run, err := sources.Resolve(t.Context(), reader.Spec{Order: order.Choice{Shuffle: true, Seed: 7, GlobalBatch: 10}}, nil, reader.Change{}, reader.Planning{})
		if err != nil {
			t.Fatal(err)
		}
		defer run.Close()
		s, err := run.Stream(t.Context(), reader.StreamOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		for step := range 3 {
			if step == 2 {
				if err := s.SetWeights(weights); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := s.Next(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		cp, err := s.Checkpoint()
		if err != nil {
			t.Fatal(err)
		}
		text, err := cp.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o666); err != nil {
			t.Fatal(err)
		}
		return path
	}
	at := saved("ckpt.json", map[string]float64{"b": 0.9, "a": 0.1})
	var standing struct {
		Steered  *struct{ Position, Step uint64 }
		Segments []any
		Sources  []struct{ Share float64 }
	}
	if err := json.Unmarshal(shardtool(t, "explain", at, "--json"), &standing); err != nil {
		t.Fatal(err)
	}
	if standing.Steered == nil || standing.Steered.Position != 20 || standing.Steered.Step != 2 || len(standing.Segments) != 0 || standing.Sources[1].Share < 0.89 {
		t.Errorf("explain: %+v", standing)
	}
	if out := string(shardtool(t, "explain", at)); !strings.Contains(out, "the training program set the weights at position 20, step 2\n") {
		t.Errorf("explain: %s", out)
	}
	if out := string(shardtool(t, "explain", at, file, "--step", "2")); !strings.Contains(out, "90.00%") {
		t.Errorf("explain of a step: %s", out)
	}
	resume := []string{file, "--checkpoint-in", at, "--epochs", "0", "--limit", "100"}
	listed := string(shardtool(t, slices.Concat([]string{"order"}, resume)...))
	if n := strings.Count(listed, `"source":"b"`); n < 86 || n > 94 {
		t.Errorf("order has %d of 100 samples of b: %s", n, listed)
	}
	if read := string(shardtool(t, slices.Concat([]string{"cat", "--json"}, resume)...)); strings.Count(read, `"source":"b"`) != strings.Count(listed, `"source":"b"`) {
		t.Errorf("cat: %s", read)
	}
	changed := string(shardtool(t, slices.Concat([]string{"order", "--change-mix"}, resume)...))
	if n := strings.Count(changed, `"source":"b"`); n > 30 {
		t.Errorf("with --change-mix, order has %d of 100 samples of b", n)
	}
	other := saved("other.json", map[string]float64{"b": 0.8, "a": 0.2})
	cmd := exec.Command("shardtool", "order", file, "--checkpoint-in", at, "--checkpoint-in", other)
	if out, err := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != exitCheckpoint || !strings.Contains(string(out), "segments is ") {
		t.Errorf("other weights on another rank: %v: %s", err, out)
	}
}
