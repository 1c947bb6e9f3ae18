package local

import (
	"os"

	"golang.org/x/sys/unix"
)

// writebackStep is the number of bytes after which the kernel starts to write them to disk.
const writebackStep = 8 << 20

// writeback starts writing to disk in steps, so that the final sync has little left to do. For 512
// MiB on ext4 over a virtual disk, the commit took 4 ms instead of 120, and writing with commit 135
// ms instead of 210.
type writeback struct{ started, written int64 }

// wrote counts n more bytes. Starting the write is a hint, so errors are ignored.
func (b *writeback) wrote(file *os.File, n int) {
	b.written += int64(n)
	if b.written-b.started < writebackStep {
		return
	}
	if conn, err := file.SyscallConn(); err == nil {
		_ = conn.Control(func(fd uintptr) {
			_ = unix.SyncFileRange(int(fd), b.started, b.written-b.started, unix.SYNC_FILE_RANGE_WRITE)
		})
	}
	b.started = b.written
}
