package local

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/windows"
)

const openNonblock = 0

// lockOffset is past any file's end: LockFileEx locks ranges, and holds off reads and writes inside them.
const lockOffset = 1<<31 - 1

func lockRange() *windows.Overlapped { return &windows.Overlapped{OffsetHigh: lockOffset} }

// tryLock takes a lock on an open file, or turns the one it has into the other kind, unless another
// handle's is in the way. Locks of one handle stack here, so that the one it has is given back
// first.
func tryLock(file *os.File, alone bool) (held bool, err error) {
	releaseLock(file)
	flags := uint32(windows.LOCKFILE_FAIL_IMMEDIATELY)
	if alone {
		flags |= windows.LOCKFILE_EXCLUSIVE_LOCK
	}
	err = windows.LockFileEx(windows.Handle(file.Fd()), flags, 0, 1, 0, lockRange())
	switch {
	case errors.Is(err, windows.ERROR_LOCK_VIOLATION), errors.Is(err, windows.ERROR_IO_PENDING):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("LockFileEx: %w", err)
	}
	return true, nil
}

// releaseLock cannot fail on a lock that is held; Close would do the rest.
func releaseLock(file *os.File) {
	_ = windows.UnlockFileEx(windows.Handle(file.Fd()), 0, 1, 0, lockRange())
}

// syncDirectory does nothing: Windows has no sync of a directory, and NTFS journals names itself.
func syncDirectory(*os.File) error { return nil }
