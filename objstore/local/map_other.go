//go:build !linux

package local

// mapping is nothing: files are not mapped.
type mapping struct{}

func (o *object) unmap() error { return nil }
