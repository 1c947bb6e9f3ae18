package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/objstore/storetest"
)

// The other systems that figures are compared with. litdataVersion is the newest that imports with
// the torch that Debian 12 has, 1.13.
const (
	webdatasetVersion = "1.0.2"
	mosaicmlVersion   = "0.13.0"
	litdataVersion    = "0.2.47"
)

// needsTorch is why what pythonWithTorch is for is left out.
const needsTorch = "neither the python3 of PATH nor /usr/bin/python3 imports torch and, for other systems, torchvision: " +
	"install Debian's python3-torch and python3-torchvision, or put a Python that has both first in PATH"

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

// pythonWithTorch makes a virtual environment over an interpreter of the system that has torch, and
// torchvision if there are packages: other systems import it. It returns the interpreter of the
// environment, "" if there is none. Of the packages' dependencies only those that are needed here
// are installed.
func (b *bench) pythonWithTorch(packages ...string) (string, error) {
	dir := filepath.Join(b.dir, "venv-torch")
	bin := filepath.Join(dir, "bin", "python")
	modules := "torch"
	if len(packages) > 0 {
		modules = "torch, torchvision"
	}
	for _, python := range []string{"python3", "/usr/bin/python3"} {
		if exec.Command(python, "-c", "import "+modules).Run() != nil {
			continue
		}
		if err := command(python, "-m", "venv", "--system-site-packages", dir)(); err != nil {
			return "", err
		}
		if len(packages) == 0 {
			return bin, nil
		}
		pip := []string{"-m", "pip", "install", "--quiet", "--quiet", "--disable-pip-version-check"}
		if err := command(bin, append(append(pip, "--no-deps"), packages...)...)(); err != nil {
			return "", err
		}
		return bin, command(bin, append(pip, "transformers==4.46.3", "numpy", "xxhash<4", "zstd<2", "Brotli", "python-snappy", "boto3", "tqdm", "catalogue")...)()
	}
	return "", nil
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
