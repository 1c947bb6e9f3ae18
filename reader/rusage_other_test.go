//go:build !unix

package reader

import "time"

var started = time.Now()

// processorTime is wall time where the system does not report processor time.
func processorTime() float64 { return time.Since(started).Seconds() }
