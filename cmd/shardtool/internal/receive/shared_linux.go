package receive

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// open maps the memory. The parent has the same descriptors open under other numbers.
func (m *Memory) open() error {
	if m.Slots < 1 || m.Slots > maxSlots || m.Size < 1 || m.Size > maxSlot {
		return fmt.Errorf("%w: memory of %d slots of %d bytes", ErrProtocol, m.Slots, m.Size)
	}
	var stat unix.Stat_t
	if err := unix.Fstat(m.File, &stat); err != nil {
		return fmt.Errorf("%w: descriptor %d: %w", ErrProtocol, m.File, err)
	}
	if want := int64(m.Slots) * m.Size; stat.Size != want { // a shorter file would end the process by a signal
		return fmt.Errorf("%w: memory of %d bytes, want %d", ErrProtocol, stat.Size, want)
	}
	data, err := unix.Mmap(m.File, 0, int(stat.Size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("map the parent's memory: %w", err)
	}
	m.data, m.free = data, os.NewFile(uintptr(m.Free), "free slots")
	return unix.Close(m.File)
}
