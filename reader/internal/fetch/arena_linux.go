//go:build linux && !race

package fetch

import (
	"os"
	"syscall"
	"unsafe"
)

// mapMemory returns size bytes, or nil. The system gives pages at their first use, large ones where
// it allows them.
func mapMemory(size int) []byte {
	mem, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_ANON|syscall.MAP_PRIVATE|syscall.MAP_NORESERVE)
	if err != nil {
		return nil
	}
	_ = syscall.Madvise(mem, syscall.MADV_HUGEPAGE) // small pages hold the same bytes
	return mem
}

func unmapMemory(mem []byte) { _ = syscall.Munmap(mem) } // nothing else can be done about it

// sealMemory gives the pages of mem back to the system and keeps the addresses. They cannot be read
// any more.
func sealMemory(mem []byte) {
	_ = syscall.Madvise(mem, syscall.MADV_DONTNEED)
	_ = syscall.Mprotect(mem, syscall.PROT_NONE)
}

// forgetMemory gives the whole pages of mem back to the system. They are 0 at their next use.
func forgetMemory(mem []byte) {
	page := os.Getpagesize()
	skip := int(-uintptr(unsafe.Pointer(unsafe.SliceData(mem))) & uintptr(page-1))
	if n := (len(mem) - skip) &^ (page - 1); n > 0 {
		_ = syscall.Madvise(mem[skip:skip+n], syscall.MADV_DONTNEED)
	}
}
