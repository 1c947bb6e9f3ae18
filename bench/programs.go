package main

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
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
		b.LeftOut(group,
			"it needs PyTorch and other systems: make .venv-peers/ready installs them, and -python names an interpreter that has them")
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
	return bin, command(bin, append([]string{"-m", "pip", "install", "--quiet", "--disable-pip-version-check"},
		packages...)...)()
}

// scripts are what runs in Python.
//
//go:embed peers/*.py
var scripts embed.FS

// script runs one of the scripts with the Python package of this repository, and returns what it
// printed, also when it fails then. What it started ends with it.
func (b *bench) script(interpreter, name string, in []byte, more []string, args ...string) ([]byte, error) {
	env, err := b.packageEnv()
	if err != nil {
		return nil, err
	}
	if err := os.CopyFS(b.dir, scripts); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(b.ctx, 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, interpreter, append([]string{filepath.Join(b.dir, "peers", name)}, args...)...)
	cmd.Env, cmd.Stdin = append(env, more...), bytes.NewReader(in)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		err = fmt.Errorf("%s %v: %w\n%s", name, args, err, bytes.TrimSpace(exit.Stderr))
	}
	return out, err
}

// ask decodes the last line that a script prints: some tools print too.
func (b *bench) ask(into any, interpreter, name string, args ...string) error {
	out, err := b.script(interpreter, name, nil, nil, args...)
	if err != nil {
		return err
	}
	return json.Unmarshal([]byte(lastLine(string(out))), into)
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndex(text, "\n")+1:]
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
