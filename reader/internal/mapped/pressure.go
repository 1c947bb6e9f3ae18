package mapped

import (
	"sync/atomic"
	"time"
)

// pressure is whether this process waits for pages that have left memory, because others need it
// more. It is of the process, as the count of its faults is.
var pressure struct {
	faults atomic.Int64 // those known of
	until  atomic.Int64 // in nanoseconds since 1970
}

const (
	// A process that has waited for more than fewFaults pages since it looked last is under pressure
	// for relief. It looks whenever blocks are to be used, and after a copy that took slow.
	fewFaults = 64
	relief    = 30 * time.Second
	slow      = 3 * time.Millisecond
)

// Pressed reports whether the process is under pressure. Blocks are better read then: each row that
// is copied from a mapped one may wait for the disk.
func Pressed() bool {
	until := pressure.until.Load()
	return until > 0 && time.Now().UnixNano() < until
}

// countFaults is faults, except in tests.
var countFaults = faults

// look counts the faults since the last call.
func look() {
	all := countFaults()
	if before := pressure.faults.Swap(all); before > 0 && all-before > fewFaults { // its start is not counted
		pressure.until.Store(time.Now().Add(relief).UnixNano())
	}
}
