//go:build !unix

package main

import (
	"os"
	"syscall"
)

// stopSignals end work in an orderly way.
var stopSignals = []os.Signal{os.Interrupt, syscall.SIGTERM}
