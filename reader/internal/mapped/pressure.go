package mapped

import (
	"sync/atomic"
	"time"
)

// pressure is whether this process waits for pages that have left memory, because others need it
// more. It is of the process, as the count of its faults is.
var pressure struct {
	faults atomic.Int64 // those known of,
	at     atomic.Int64 // since when, as until is
	until  atomic.Int64 // in nanoseconds since 1970
}

const (
	// A process that has waited for more than fewFaults pages within span is under pressure for relief.
	// It looks whenever blocks are to be used, and after a copy that took slow: a small batch waits for
	// few pages.
	fewFaults = 256
	span      = time.Second
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

// look counts the faults of the last moments.
func look() {
	all, now := countFaults(), time.Now().UnixNano()
	if before := pressure.faults.Load(); before > 0 { // its start is not counted
		switch {
		case all-before > fewFaults:
			pressure.until.Store(now + int64(relief))
		case now-pressure.at.Load() < int64(span):
			return
		}
	}
	pressure.faults.Store(all)
	pressure.at.Store(now)
}
