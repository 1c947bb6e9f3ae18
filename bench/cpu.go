package main

import (
	"syscall"
	"time"
)

// cpu is the time that this process has used processors for.
func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // it fails for no process that runs
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// childrenCPU returns the processor time of the processes that this one has waited for.
func childrenCPU() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_CHILDREN, &u) // it fails for no process that runs
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
