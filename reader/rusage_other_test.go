//go:build !unix

package reader

import "time"

var started = time.Now()

// processorTime is wall time where the system does not say.
func processorTime() float64 { return time.Since(started).Seconds() }
