package main

import "syscall"

// touch takes memory from the system in large pages, writes to each and gives it back, so that the
// host below a virtual machine has given it to it.
func touch(size int) {
	mem, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE|syscall.MAP_NORESERVE)
	if err != nil {
		return
	}
	defer func() { _ = syscall.Munmap(mem) }()
	_ = syscall.Madvise(mem, syscall.MADV_HUGEPAGE)
	for i := 0; i < size; i += 4096 {
		mem[i] = 1
	}
}
