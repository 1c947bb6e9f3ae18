//go:build !unix

package bench

// processorSeconds returns 0: this system does not report it.
func processorSeconds() float64 { return 0 }
