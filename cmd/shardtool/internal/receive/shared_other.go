//go:build !linux

package receive

import "fmt"

// open refuses: the Python package needs Linux.
func (m *Memory) open() error { return fmt.Errorf("%w: memory is shared on Linux only", ErrProtocol) }
