package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/shardtool/shardtool/bench/corpus"
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
	for _, c := range []struct {
		name string
		args []string
	}{
		{"pack", []string{"pack", src, out, "--quiet"}},
		{"verify --deep", []string{"verify", out, "--deep", "--quiet"}},
		{"cat", []string{"cat", out}},
	} {
		cmd := exec.Command(bin, append(c.args, "--memory", fmt.Sprintf("%dMiB", budget))...)
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		peak := float64(cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss) / 1024 // KiB on Linux
		b.atMost("memory", c.name+": peak resident memory less the budget", one(peak-budget), "MiB", 64,
			fmt.Sprintf("%.0f MiB with --memory %dMiB on %d MB", peak, budget, bytes/1e6))
	}
	return nil
}
