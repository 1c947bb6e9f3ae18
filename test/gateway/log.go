package gateway

import "sync"

// logBuffer keeps the end of the text written to it.
type logBuffer struct {
	mu   sync.Mutex
	data []byte
}

const logSize = 256 << 10

// Write implements io.Writer; it never fails.
func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.data = append(b.data, p...)
	if over := len(b.data) - logSize; over > logSize {
		b.data = append([]byte(nil), b.data[over:]...)
	}
	return len(p), nil
}

// String returns the text kept.
func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return string(b.data[max(0, len(b.data)-logSize):])
}
