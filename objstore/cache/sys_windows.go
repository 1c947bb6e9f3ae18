package cache

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/windows"
)

const openNonblock = 0

// lockedByte lies past the end of every file here: Windows keeps others from what is locked.
func lockedByte() *windows.Overlapped { return &windows.Overlapped{OffsetHigh: 1<<31 - 1} }

// tryLock takes a lock on the open file, or turns the one it has into the other kind, unless another handle's is in the
// way.
func tryLock(file *os.File, exclusive bool) (held bool, err error) {
	handle := windows.Handle(file.Fd())
	how := uint32(windows.LOCKFILE_FAIL_IMMEDIATELY)
	if exclusive {
		how |= windows.LOCKFILE_EXCLUSIVE_LOCK
	}
	// A handle's own lock would be in its way; without one this fails, which is as well.
	_ = windows.UnlockFileEx(handle, 0, 1, 0, lockedByte())
	err = windows.LockFileEx(handle, how, 0, 1, 0, lockedByte())
	switch {
	case errors.Is(err, windows.ERROR_LOCK_VIOLATION), errors.Is(err, windows.ERROR_IO_PENDING):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("lock: %w", err)
	}
	return true, nil
}

func unlock(file *os.File) error {
	return windows.UnlockFileEx(windows.Handle(file.Fd()), 0, 1, 0, lockedByte())
}
