//go:build !linux && !darwin

package source

import "errors"

// readFile is not available: its caller uses os.File.
func readFile(uintptr, string, []byte) (read, error) { return read{}, errors.ErrUnsupported }
