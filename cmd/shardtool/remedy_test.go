package main

import (
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"github.com/shardtool/shardtool/objstore"
)

// TestSystemRemedy: an error of a file says what to do, once.
func TestSystemRemedy(t *testing.T) {
	for errno, want := range map[syscall.Errno]string{
		syscall.EMFILE: "; raise the limit on open files (ulimit -n)",
		syscall.ENOSPC: "; free some space or write elsewhere, then run again",
		syscall.EACCES: "; check the owner and the mode of the file and its directory",
		syscall.EIO:    "",
	} {
		file := fmt.Errorf("source: %w", &fs.PathError{Op: "open", Path: "x", Err: errno})
		if got := remedy(file); got != want {
			t.Errorf("%v: %q, want %q", errno, got, want)
		}
		stored := &objstore.Error{Op: "get", Name: "x", Store: "y", Err: &fs.PathError{Op: "open", Path: "x", Err: errno}}
		if got := forUsers(stored); want != "" && strings.Count(got, want) != 1 {
			t.Errorf("%v: %q", errno, got)
		}
	}
	if got := remedy(&fs.PathError{Op: "open", Path: "x", Err: fs.ErrNotExist}); got != "" {
		t.Errorf("a missing file: %q", got)
	}
}
