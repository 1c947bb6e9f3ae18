package fetch

import "syscall"

// others is how many descriptors are left to the rest of the process, and to workers.
const others = 64

// maxPinned returns how many objects blocks in memory may keep open: a quarter of the descriptors
// that a process may have, without others. With few, none: a stream may need all that there are.
func maxPinned() int {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 0
	}
	return int(max(min(limit.Cur, 4*maxOpen), others)-others) / 4
}
