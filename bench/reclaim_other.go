//go:build !linux

package main

import (
	"runtime"
	"runtime/debug"
)

// touch takes memory from the system, writes to each page and gives it back.
func touch(size int) {
	mem := make([]byte, size)
	for i := 0; i < size; i += 4096 {
		mem[i] = 1
	}
	runtime.KeepAlive(mem)
	mem = nil
	debug.FreeOSMemory()
}
