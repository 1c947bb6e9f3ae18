//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package cache

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// openNonblock keeps an open from waiting for the writer of a named pipe that someone put here.
const openNonblock = syscall.O_NONBLOCK

// tryLock takes a lock on the open file, or turns the one it has into the other kind, unless another descriptor's is in
// the way.
func tryLock(file *os.File, exclusive bool) (held bool, err error) {
	how := unix.LOCK_SH
	if exclusive {
		how = unix.LOCK_EX
	}
	err = flock(file, how|unix.LOCK_NB)
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, unix.EWOULDBLOCK):
		return false, nil
	case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOLCK):
		err = fmt.Errorf("%w: %w", errors.ErrUnsupported, err)
	}
	return false, fmt.Errorf("lock: %w", err)
}

func unlock(file *os.File) error { return flock(file, unix.LOCK_UN) }

func flock(file *os.File, how int) error {
	conn, err := file.SyscallConn()
	if err != nil {
		return err
	}
	ctlErr := conn.Control(func(fd uintptr) {
		for {
			if err = unix.Flock(int(fd), how); !errors.Is(err, unix.EINTR) {
				return
			}
		}
	})
	return errors.Join(ctlErr, err)
}
