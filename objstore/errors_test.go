package objstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"testing"
)

func TestErrorText(t *testing.T) {
	pathError := func(err error) error { return &fs.PathError{Op: "openat", Path: "x", Err: err} }
	for _, c := range []struct {
		name  string
		cause error
		want  string
	}{
		{"train-000003.tar.zst", fs.ErrNotExist, "get train-000003.tar.zst in /data/out: file does not exist"},
		{"x", pathError(syscall.ENOENT), "get x in /data/out: no such file or directory"},
		{"x", &os.LinkError{Op: "rename", Old: "x", New: "y", Err: syscall.ENOSPC},
			"get x in /data/out: no space left on device; free some space or write elsewhere, then run again"},
		{"x", pathError(syscall.EROFS),
			"get x in /data/out: read-only file system; mount it read-write or write elsewhere"},
		{"x", pathError(syscall.EACCES),
			"get x in /data/out: permission denied; check the owner and the mode of the file and its directory"},
		{"x", pathError(syscall.EMFILE),
			"get x in /data/out: too many open files; raise the limit on open files (ulimit -n)"},
		{"new\nline", fs.ErrNotExist, `get "new\nline" in /data/out: file does not exist`},
		{"two words", fs.ErrNotExist, `get "two words" in /data/out: file does not exist`},
		{"\xff", fs.ErrNotExist, `get "\xff" in /data/out: file does not exist`},
		{"", context.Canceled, "get in /data/out: context canceled"},
	} {
		if got := NewError("get", "/data/out", c.name, c.cause).Error(); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}

func TestErrorIs(t *testing.T) {
	if NewError("get", "s", "n", nil) != nil {
		t.Fatal("an error of no cause")
	}
	err := NewError("put", "s", "n", &fs.PathError{Err: syscall.EROFS})
	for _, target := range []error{ErrReadOnly, syscall.EROFS} {
		if !errors.Is(err, target) {
			t.Errorf("%v is no %v", err, target)
		}
	}
	if errors.Is(err, ErrChanged) || errors.Is(NewError("put", "s", "n", syscall.EACCES), ErrReadOnly) {
		t.Error("errors are told apart wrongly")
	}
	// An error that was wrapped where it occurred is not wrapped again.
	outer := fmt.Errorf("shard 3: %w", err)
	if again := NewError("get", "other", "m", outer); again != outer {
		t.Error(again)
	}
}
