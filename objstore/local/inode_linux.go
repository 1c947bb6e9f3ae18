package local

import (
	"io/fs"
	"syscall"
)

// inodeOf returns the inode number and the status change time in nanoseconds.
func inodeOf(fi fs.FileInfo) (inode uint64, changed int64) {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0
	}
	return st.Ino, st.Ctim.Nano()
}
