//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package local

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// openNonblock keeps an open from waiting for the writer of a named pipe. On regular files it means nothing.
const openNonblock = syscall.O_NONBLOCK

// tryLock takes a lock on an open file, or turns the one it has into the other kind, unless another
// descriptor's is in the way. Locks that are not alone go together. The lock belongs to this
// descriptor, so it also excludes other descriptors of the same process.
func tryLock(file *os.File, alone bool) (held bool, err error) {
	kind := unix.LOCK_SH
	if alone {
		kind = unix.LOCK_EX
	}
	err = control(file, func(fd int) error {
		for {
			err := unix.Flock(fd, kind|unix.LOCK_NB)
			if !errors.Is(err, unix.EINTR) {
				return err
			}
		}
	})
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		return false, nil
	case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOLCK):
		return false, fmt.Errorf("flock: %w: %w", errors.ErrUnsupported, err)
	case err != nil:
		return false, fmt.Errorf("flock: %w", err)
	}
	return true, nil
}

// releaseLock cannot fail on a lock that is held; Close would do the rest.
func releaseLock(file *os.File) {
	_ = control(file, func(fd int) error { return unix.Flock(fd, unix.LOCK_UN) })
}

// syncDirectory makes the names in an open directory durable. Some file systems (FUSE, SMB) refuse to sync directories
// because they have nothing to sync.
func syncDirectory(dir *os.File) error {
	err := dir.Sync()
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTSUP) {
		return nil
	}
	return err
}

// control runs f on the descriptor, which stays open meanwhile.
func control(file *os.File, f func(fd int) error) error {
	conn, err := file.SyscallConn()
	if err != nil {
		return err
	}
	if ctlErr := conn.Control(func(fd uintptr) { err = f(int(fd)) }); ctlErr != nil {
		return ctlErr
	}
	return err
}
