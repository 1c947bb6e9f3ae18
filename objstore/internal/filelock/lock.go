package filelock

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// OpenNonblock is a flag for os.OpenFile. It keeps the open of a named pipe from waiting for a
// writer, and has no effect on regular files.
const OpenNonblock = syscall.O_NONBLOCK

// Try locks an open file, exclusively or shared, or converts the lock that the file has. It does
// not wait: held is false while another descriptor holds a conflicting lock. On a file system
// without locks the error wraps [errors.ErrUnsupported].
func Try(file *os.File, exclusive bool) (held bool, err error) {
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
	return false, fmt.Errorf("flock: %w", err)
}

// Unlock releases the lock. Call it before Close: a forked child holds a copy of the descriptor,
// and with it the lock, until its exec.
func Unlock(file *os.File) error { return flock(file, unix.LOCK_UN) }

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
