package source

import "syscall"

// openNonblock keeps an open from waiting for the writer of a named pipe. It has no effect on
// regular files.
const openNonblock = syscall.O_NONBLOCK
