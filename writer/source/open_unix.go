//go:build unix

package source

import "syscall"

// openNonblock keeps an open from waiting for the writer of a named pipe. On regular files it means nothing.
const openNonblock = syscall.O_NONBLOCK
