//go:build !unix

package bench

// processorSeconds is not known here.
func processorSeconds() float64 { return 0 }
