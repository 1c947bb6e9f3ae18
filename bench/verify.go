package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"time"
)

func seconds1(f func() error) (float64, error) {
	runtime.GC()
	begin := time.Now()
	err := f()
	return time.Since(begin).Seconds(), err
}

// command runs a process to its end; output is dropped unless it fails.
func command(name string, args ...string) func() error {
	return func() error {
		if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", name, err, out)
		}
		return nil
	}
}

// verify measures `verify --deep` against `zstd -t` over the same shards, as processes.
func (b *bench) verify() error {
	bin, err := b.binary()
	if err != nil {
		return err
	}
	for _, kind := range []string{"text", "images"} {
		dir, err := b.dataset(kind, false)
		if err != nil {
			return err
		}
		files, err := shardFiles(dir)
		if err != nil {
			return err
		}
		size := int64(0)
		for _, f := range files {
			info, err := os.Stat(f)
			if err != nil {
				return err
			}
			size += info.Size()
		}
		ours := command(bin, "verify", dir, "--deep", "--quiet")
		r, our, base, err := b.ratio(ours, command("zstd", append([]string{"-tq"}, files...)...))
		if err != nil {
			return err
		}
		detail := fmt.Sprintf("%.2f s against %.2f s for %d MB stored; ours also compares SHA-256, headers and index", our.median(), base.median(), size/1e6)
		if kind == "text" {
			b.atLeast("verify", "text: verify --deep / zstd -t", r, "x", 1.3, detail)
		} else {
			b.info("verify", "incompressible: verify --deep / zstd -t", r, "x", detail)
		}
	}
	return nil
}
