//go:build !linux

package fetch

// maxPinned returns how many objects blocks in memory may keep open: none, where no object can be
// mapped.
func maxPinned() int { return 0 }
