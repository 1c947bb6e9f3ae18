package reader

import "math/bits"

// memory hands out the buffers of a stream, up to a limit. Their sizes are few, so that what a batch is going to take is known
// before it takes it, and one that came back fits the next piece. Stream.mu guards it.
type memory struct {
	limit int64
	used  int64 // handed out, or free for the next
	lent  int64 // handed out
	most  int64 // that used has ever been
	out   int   // handed out
	free  [][]byte
}

// bufferSize is the size of a buffer for n bytes: one of the eight steps between powers of two.
func bufferSize(n int) int {
	step := max(1<<bits.Len(uint(n-1))>>4, 512)
	return (n + step - 1) &^ (step - 1)
}

// take returns a buffer for n bytes, or nil when there is no room. One that would be alone is always granted.
func (m *memory) take(n int) []byte {
	if buf := m.reuse(bufferSize(n)); buf != nil {
		return buf
	}
	if size := int64(bufferSize(n)); m.used+size > m.limit && m.out > 0 {
		return nil
	}
	return m.grow(bufferSize(n))
}

// force returns a buffer whether there is room or not.
func (m *memory) force(n int) []byte {
	if buf := m.reuse(bufferSize(n)); buf != nil {
		return buf
	}
	return m.grow(bufferSize(n))
}

// reuse returns a free buffer of that size: the one put back last, which may still be in the processor's cache. Where there is
// none, free ones of other sizes make room.
func (m *memory) reuse(size int) []byte {
	for i := len(m.free) - 1; i >= 0; i-- {
		if buf := m.free[i]; cap(buf) == size {
			m.free = append(m.free[:i], m.free[i+1:]...)
			m.out++
			m.lent += int64(size)
			return buf
		}
	}
	for m.used+int64(size) > m.limit && len(m.free) > 0 {
		m.used -= int64(cap(m.free[0]))
		m.free[0] = nil
		m.free = m.free[1:]
	}
	return nil
}

func (m *memory) grow(size int) []byte {
	m.used += int64(size)
	m.lent += int64(size)
	m.most = max(m.most, m.used)
	m.out++
	return make([]byte, size)
}

func (m *memory) put(buf []byte) {
	m.out--
	m.lent -= int64(cap(buf))
	m.free = append(m.free, buf[:cap(buf)])
}

// trim gives back what is free.
func (m *memory) trim() {
	for i, buf := range m.free {
		m.used -= int64(cap(buf))
		m.free[i] = nil
	}
	m.free = m.free[:0]
}
