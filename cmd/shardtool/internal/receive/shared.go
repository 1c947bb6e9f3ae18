package receive

import (
	"encoding/binary"
	"fmt"
	"os"
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

// frame returns the frame of which head is the body of SHARED.
func (m *Memory) frame(head []byte) (frame, error) {
	slot, kind, n := binary.LittleEndian.Uint32(head), binary.LittleEndian.Uint32(head[4:]), binary.LittleEndian.Uint64(head[8:])
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
