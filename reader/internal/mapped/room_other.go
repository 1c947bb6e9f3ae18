//go:build !linux

package mapped

// Room returns how many bytes of files the page cache can be expected to keep. No object can be
// mapped here.
func Room() int64 { return 0 }

func faults() int64 { return 0 }
