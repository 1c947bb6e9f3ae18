package main

import (
	"os"
	"path/filepath"
	"testing"
)

// TestTorchAlone: what compares with no other system needs no torchvision.
func TestTorchAlone(t *testing.T) {
	dir := t.TempDir()
	calls := filepath.Join(dir, "calls")
	script := "#!/bin/sh\necho \"$*\" >>'" + calls + "'\ncase \"$*\" in *torchvision*) exit 1;; esac\n"
	if err := os.WriteFile(filepath.Join(dir, "python3"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	b := &bench{dir: dir}
	if got, err := b.pythonWithTorch(); err != nil || got != filepath.Join(dir, "venv-torch", "bin", "python") {
		t.Errorf("it is %q, %v", got, err)
	}
	got, err := os.ReadFile(calls)
	if err != nil {
		t.Fatal(err)
	}
	if want := "-c import torch\n-m venv --system-site-packages " + filepath.Join(dir, "venv-torch") + "\n"; string(got) != want {
		t.Errorf("python3 was called with\n%s, want\n%s", got, want)
	}
}
