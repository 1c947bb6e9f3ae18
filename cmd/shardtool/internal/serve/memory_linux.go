package serve

import (
	"os"

	"golang.org/x/sys/unix"
)

// sealed is memory of Linux: a file that is never on a disk and keeps its size, so that neither
// process can make a read of the other one a fault.
var sealed = memory{
	file: memfd,
	back: func(f *os.File, offset, size int64) error {
		return os.NewSyscallError("fallocate", unix.Fallocate(int(f.Fd()), 0, offset, size))
	},
	drop: func(f *os.File, offset, size int64) error {
		return unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, offset, size)
	},
}

// system returns the memory of this system; with SHARDTOOL_PORTABLE=1, the memory of other systems,
// which tests run on Linux.
func system() memory {
	if os.Getenv("SHARDTOOL_PORTABLE") == "1" {
		return portable
	}
	return sealed
}

func memfd(size int) (*os.File, error) {
	fd, err := unix.MemfdCreate("shardtool", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), "memfd")
	if err = f.Truncate(int64(size)); err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
		err = os.NewSyscallError("fcntl", err)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
