//go:build !unix

package main

import "time"

var began = time.Now()

// cpu is the time that has passed, which on these systems stands for that of processors.
func cpu() time.Duration { return time.Since(began) }
