package fetch

import "syscall"

// maxPinned returns how many objects blocks in memory may keep open: a quarter of the descriptors
// that a process may have.
func maxPinned() int {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 0
	}
	return int(min(limit.Cur, 4*maxOpen) / 4)
}
