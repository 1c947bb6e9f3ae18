//go:build !unix

package main

import "time"

var began = time.Now()

// cpu is the time that has passed, which on these systems stands for that of processors.
func cpu() time.Duration { return time.Since(began) }

// childrenCPU is not known here.
func childrenCPU() time.Duration { return 0 }
