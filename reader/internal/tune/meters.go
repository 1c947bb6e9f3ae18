package tune

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// firstSteps are measured one by one, without waiting for the end of a window.
	firstSteps = 3
	// noticed is the shortest wait for which the depth is blamed.
	noticed = time.Millisecond
)

// Meters count events for the measures of the Loop. The methods may be called from several
// goroutines at once. Methods of nil Meters do nothing.
type Meters struct {
	pieces, read, decode, throttled atomic.Int64 // read and decode in nanoseconds
	steps, busy                     atomic.Int64
	held                            atomic.Bool // the consumer waited while the depth kept the planner back
	kick                            chan struct{}
}

// NewMeters returns meters that have counted nothing.
func NewMeters() *Meters { return &Meters{kick: make(chan struct{}, 1)} }

// Landed counts a piece, and how long it was read and decoded.
func (m *Meters) Landed(read, decode time.Duration) {
	m.pieces.Add(1)
	m.read.Add(int64(read))
	m.decode.Add(int64(decode))
}

// Throttled counts an answer of the store that asked for less load.
func (m *Meters) Throttled() { m.throttled.Add(1) }

// Stepped counts a step of the consumer, from a batch to its next request for one.
func (m *Meters) Stepped(d time.Duration) {
	if m == nil {
		return
	}
	m.busy.Add(int64(d))
	if m.steps.Add(1) <= firstSteps {
		Signal(m.kick)
	}
}

// Waited reports a wait of the consumer while the depth kept the planner back.
func (m *Meters) Waited(d time.Duration) {
	if m == nil || d < noticed {
		return
	}
	m.held.Store(true)
	Signal(m.kick)
}

// Load measures what the order needs: how many pieces a batch brings, and how many come in a burst.
// The zero value is ready for use by several goroutines at once.
type Load struct {
	mu              sync.Mutex
	batches, pieces float64 // planned and brought so far
	recent          float64 // pieces a batch
	backlog         float64 // pieces that the steps so far left no time for
	epoch           uint64
	peak, lastPeak  float64 // of backlog, in this epoch and the one before
	drain           float64 // pieces that can come in a step
}

// Batch counts a batch of an epoch that brought a number of pieces.
func (l *Load) Batch(epoch uint64, pieces int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if epoch != l.epoch {
		l.epoch, l.lastPeak, l.peak = epoch, l.peak, 0
	}
	n := float64(pieces)
	l.batches++
	l.pieces += n
	l.recent += (n - l.recent) / min(l.batches, 32)
	l.backlog = max(l.backlog+n-l.drain, 0)
	l.peak = max(l.peak, l.backlog)
}

// read returns the pieces that a batch brings and the burst, and sets how many can come in a step
// from now on.
func (l *Load) read(drain float64) (perBatch, burst float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drain = drain
	return max(l.pieces/max(l.batches, 1), l.recent), max(l.peak, l.lastPeak)
}
