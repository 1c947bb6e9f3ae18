package filelock_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/shardtool/shardtool/objstore/internal/filelock"
)

// open opens the file "lock" in the directory, as a separate handle.
func open(t *testing.T, root *os.Root) *os.File {
	t.Helper()
	file, err := root.OpenFile("lock", os.O_RDWR|os.O_CREATE|filelock.OpenNonblock, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return file
}

// want takes a lock and checks whether that succeeds.
func want(t *testing.T, file *os.File, exclusive, held bool) {
	t.Helper()
	got, err := filelock.Try(file, exclusive)
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip("no file locks here: ", err)
	}
	if err != nil || got != held {
		t.Fatalf("exclusive=%v: held=%v, %v; want held=%v", exclusive, got, err, held)
	}
}

// TestLocks checks which locks exclude each other, conversion and release.
func TestLocks(t *testing.T) {
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	a, b := open(t, root), open(t, root)
	want(t, a, true, true)
	want(t, b, true, false)
	want(t, b, false, false)
	want(t, a, false, true)
	want(t, b, false, true)
	want(t, a, true, false)
	if err := filelock.Unlock(b); err != nil {
		t.Fatal(err)
	}
	want(t, a, false, true)
	want(t, a, true, true)
}

func TestStillNamed(t *testing.T) {
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	file := open(t, root)
	if !filelock.StillNamed(root, "lock", file) {
		t.Error("a file in its place is not found")
	}
	if err := root.Rename("lock", "other"); err != nil {
		t.Fatal(err)
	}
	if filelock.StillNamed(root, "lock", file) {
		t.Error("a file that was renamed still has its name")
	}
	open(t, root)
	if filelock.StillNamed(root, "lock", file) {
		t.Error("another file of that name is taken for it")
	}
}

func TestPoll(t *testing.T) {
	calls, failed := 0, errors.New("failed")
	try := func(n int, err error) func() (bool, error) {
		calls = 0
		return func() (bool, error) { calls++; return err == nil && calls == n, err }
	}
	if err := filelock.Poll(t.Context(), time.Microsecond, time.Millisecond, try(4, nil)); err != nil || calls != 4 {
		t.Errorf("%d calls, %v", calls, err)
	}
	if err := filelock.Poll(t.Context(), time.Hour, time.Hour, try(1, failed)); err != failed || calls != 1 {
		t.Errorf("%d calls, %v", calls, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := filelock.Poll(ctx, time.Hour, time.Hour, try(2, nil)); err != context.Canceled || calls != 1 {
		t.Errorf("%d calls, %v", calls, err)
	}
}
