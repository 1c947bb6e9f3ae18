//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly || windows)

package local

import (
	"errors"
	"fmt"
	"os"
	"runtime"
)

const openNonblock = 0

// tryLock fails: without locks only reading works here.
func tryLock(*os.File, bool) (held bool, err error) {
	return false, fmt.Errorf("file locks on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}

func releaseLock(*os.File) {}

func syncDirectory(dir *os.File) error { return dir.Sync() }
