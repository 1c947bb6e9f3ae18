package receive

import (
	"encoding/binary"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Memory is memory that the parent shares with the child, so that bodies need not pass through a
// pipe, which copies them twice. It has slots of one size. The parent writes a body into a free
// slot and sends SHARED; the child frees the slot when it has taken all samples of it.
type Memory struct {
	// File is the descriptor of the memory, and Free the pipe to which the child writes the number
	// of each slot that it frees, as a byte.
	File int `json:"file"`
	Free int `json:"free"`
	// Slots is the number of slots and Size the length of each.
	Slots int   `json:"slots"`
	Size  int64 `json:"size"`

	data []byte
	free *os.File
}

const (
	maxSlots = 255
	maxSlot  = 64 << 20
)

// sharedLen is the length of the body of SHARED.
const sharedLen = 16

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

// frame returns the frame of which head is the body of SHARED.
func (m *Memory) frame(head []byte) (frame, error) {
	slot, kind, n := binary.LittleEndian.Uint32(head), binary.LittleEndian.Uint32(head[4:]),
		binary.LittleEndian.Uint64(head[8:])
	if m == nil || m.data == nil {
		return frame{}, fmt.Errorf("%w: SHARED without memory", ErrProtocol)
	}
	if slot >= uint32(m.Slots) || n > uint64(m.Size) || kind != kindSamples && kind != kindColumns {
		return frame{}, fmt.Errorf("%w: SHARED slot %d, kind %d, %d bytes", ErrProtocol, slot, kind, n)
	}
	at := int64(slot) * m.Size
	end := at + int64(n)
	return frame{kind: byte(kind), body: m.data[at:end:end], slot: int(slot), shared: true}, nil
}

// release frees the slot of a frame. A parent that has ended does not take it.
func (m *Memory) release(f *frame) {
	if f.shared {
		_, _ = m.free.Write([]byte{byte(f.slot)})
		f.shared, f.body = false, nil
	}
}

// close ends the pipe. The memory stays mapped until the process ends, because samples point there.
func (m *Memory) close() {
	if m != nil && m.free != nil {
		_ = m.free.Close()
	}
}
