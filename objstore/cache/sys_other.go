//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly || windows)

package cache

import (
	"errors"
	"fmt"
	"os"
	"runtime"
)

const openNonblock = 0

// tryLock fails: nothing can be kept here.
func tryLock(*os.File, bool) (held bool, err error) {
	return false, fmt.Errorf("file locks on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}

func unlock(*os.File) error { return nil }
