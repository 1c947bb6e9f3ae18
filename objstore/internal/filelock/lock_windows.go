package filelock

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/windows"
)

// OpenNonblock is a flag for os.OpenFile. It has no effect here.
const OpenNonblock = 0

// lockedByte lies past the end of any file, because LockFileEx blocks reads and writes of the bytes
// that are locked.
func lockedByte() *windows.Overlapped { return &windows.Overlapped{OffsetHigh: 1<<31 - 1} }

// Try locks an open file, exclusively or shared, or converts the lock that the file has. It does
// not wait: held is false while another handle holds a conflicting lock. The conversion releases
// the old lock first, because locks of one handle conflict with each other.
func Try(file *os.File, exclusive bool) (held bool, err error) {
	_ = Unlock(file) // fails without an old lock
	flags := uint32(windows.LOCKFILE_FAIL_IMMEDIATELY)
	if exclusive {
		flags |= windows.LOCKFILE_EXCLUSIVE_LOCK
	}
	err = windows.LockFileEx(windows.Handle(file.Fd()), flags, 0, 1, 0, lockedByte())
	switch {
	case errors.Is(err, windows.ERROR_LOCK_VIOLATION), errors.Is(err, windows.ERROR_IO_PENDING):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("LockFileEx: %w", err)
	}
	return true, nil
}

// Unlock releases the lock.
func Unlock(file *os.File) error {
	return windows.UnlockFileEx(windows.Handle(file.Fd()), 0, 1, 0, lockedByte())
}
