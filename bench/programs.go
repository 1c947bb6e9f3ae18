package main

import (
	_ "embed"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/objstore/storetest"
)

// requirements are the other systems that figures are compared with, and what they need. The
// Makefile installs them.
var (
	//go:embed requirements.txt
	requirements string
	//go:embed mosaicml.txt
	alone string // without what it needs
)

// release returns the release of a package in requirements.
func release(name string) string {
	for line := range strings.Lines(requirements + alone) {
		if version, ok := strings.CutPrefix(strings.TrimSpace(line), name+"=="); ok {
			return version
		}
	}
	panic("requirements.txt has no " + name)
}

// others returns the interpreter that has the other systems. Without one it is "", and the table
// says that the group is left out.
func (b *bench) others(group string) string {
	if b.interpreter == "" {
		b.LeftOut(group, "it needs PyTorch and other systems: make .venv-peers/ready installs them, and -python names an interpreter that has them")
	}
	return b.interpreter
}

// python makes a virtual environment with packages in it, once, and returns its interpreter.
func (b *bench) python(packages ...string) (string, error) {
	dir := filepath.Join(b.dir, "venv")
	bin := filepath.Join(dir, "bin", "python")
	if b.data[dir] == "" {
		if err := command("python3", "-m", "venv", dir)(); err != nil {
			return "", err
		}
		b.data[dir] = bin
	}
	return bin, command(bin, append([]string{"-m", "pip", "install", "--quiet", "--disable-pip-version-check"}, packages...)...)()
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

func seconds1(f func() error) (float64, error) {
	runtime.GC()
	begin := time.Now()
	err := f()
	return time.Since(begin).Seconds(), err
}

// discarding returns a store that forgets the bytes of shards.
func discarding() *storetest.Discard {
	return storetest.NewDiscard(func(name string) bool { return strings.HasSuffix(name, format.ZstdSuffix) })
}
