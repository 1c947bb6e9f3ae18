// Package allocated measures the memory that decoders ask for, in tests: hostile bytes must not get
// more than they justify.
package allocated

import "runtime"

// Bytes returns how many bytes f allocates. Other goroutines count too.
func Bytes(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}
