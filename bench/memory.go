package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/shardtool/shardtool/bench/corpus"
	"github.com/shardtool/shardtool/bench/peak"
	"github.com/shardtool/shardtool/bench/table"
)

// memory measures the peak of resident memory of processes on data ten times their budget.
func (b *bench) memory() error {
	bin, err := b.binary()
	if err != nil {
		return err
	}
	const budget = 64 // MiB
	src := filepath.Join(b.dir, "files-memory")
	_, bytes, err := corpus.WriteFiles(src, corpus.Images(corpus.Options{Samples: 10 * budget << 20 / 100_000, Seed: 4}))
	if err != nil {
		return err
	}
	out := filepath.Join(b.dir, "packed-memory")
	defer os.RemoveAll(src)
	checkpoint := filepath.Join(b.dir, "checkpoint-memory")
	for _, c := range []struct {
		name string
		args []string
	}{
		{"pack", []string{"pack", src, out, "--quiet"}},
		{"verify --deep", []string{"verify", out, "--deep", "--quiet"}},
		{"cat", []string{"cat", out}},
		{"cat --shuffle through two epochs' turns", []string{"cat", out, "--shuffle", "--epochs", "3", "--limit", "15000"}},
		{"one of 8 ranks, 96 lanes", []string{"cat", out, "--shuffle", "--world-size", "8", "--limit", "200", "--checkpoint-out", checkpoint}},
		{"one process resumes all 96 lanes", []string{"cat", out, "--checkpoint-in", checkpoint, "--limit", "3000"}},
	} {
		most, err := peak.Memory(exec.Command(bin, append(c.args, "--memory", fmt.Sprintf("%dMiB", budget))...))
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		b.AtMost("memory", c.name+": peak resident memory less the budget", table.One(most-budget), "MiB", 64,
			fmt.Sprintf("%.0f MiB with --memory %dMiB on %d MB", most, budget, bytes/1e6))
	}
	return nil
}
