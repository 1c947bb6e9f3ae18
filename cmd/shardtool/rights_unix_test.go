package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestRights: places that are not writable, and files that are not readable. Root has all rights,
// so the test runs as nobody.
func TestRights(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	program, src, locked, out := filepath.Join(dir, "shardtool"), filepath.Join(dir, "src"), filepath.Join(dir, "locked"), filepath.Join(dir, "out")
	copyProgram(t, program)
	if err := randomFiles(src, 2, 10); err != nil {
		t.Fatal(err)
	}
	as := func(args ...string) (int, string) {
		cmd := exec.Command(program, args...)
		cmd.Dir = dir
		if os.Getuid() == 0 {
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		}
		text, _ := cmd.CombinedOutput()
		return cmd.ProcessState.ExitCode(), string(text)
	}
	want := func(code int, word string, args ...string) {
		t.Helper()
		got, text := as(args...)
		if got != code || !strings.Contains(text, word) {
			t.Errorf("%v: exit %d, want %d with %q: %s", args, got, code, word, text)
		}
	}
	if code := runCode(t, exec.Command("shardtool", "pack", src, out, "--quiet")); code != 0 {
		t.Fatalf("exit %d", code)
	}
	if err := os.Mkdir(locked, 0o555); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(out, 0o555); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(out, 0o755) })

	want(exitFailed, "permission denied", "pack", src, locked)
	want(exitFailed, "permission denied", "pack", src, filepath.Join(locked, "new"))
	want(exitFailed, "permission denied", "pack", src, out, "--overwrite")
	for _, args := range [][]string{{"ls", out}, {"cat", out}, {"verify", out, "--deep"}, {"inspect", out}, {"get", out, "000000.bin"}, {"prune", out, "--dry-run"}} {
		want(0, "", args...)
	}

	if err := os.Chmod(filepath.Join(src, "000001.bin"), 0); err != nil {
		t.Fatal(err)
	}
	free := filepath.Join(dir, "free")
	if err := os.Mkdir(free, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(free, 0o777); err != nil {
		t.Fatal(err)
	}
	want(exitFailed, "000001.bin", "pack", src, filepath.Join(free, "a"))
	want(exitSkipped, "000001.bin", "pack", src, filepath.Join(free, "b"), "--on-error", "skip")
	want(exitFailed, "unreadable: 1.", "doctor", src)
}

func copyProgram(t *testing.T, to string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	in, err := os.Open(self)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	w, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(w, in); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}
