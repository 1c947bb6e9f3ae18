//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly || windows)

package filelock

import (
	"errors"
	"fmt"
	"os"
	"runtime"
)

// OpenNonblock is a flag for os.OpenFile. It has no effect here.
const OpenNonblock = 0

// Try fails: this system has no file locks.
func Try(*os.File, bool) (held bool, err error) {
	return false, fmt.Errorf("file locks on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}

// Unlock does nothing.
func Unlock(*os.File) error { return nil }
