package ranged

import (
	"sync/atomic"
	"time"
)

// Stats counts what a store's readers did since it was made. The fields are read one after the other: between requests
// they fit together exactly, under load nearly.
type Stats struct {
	// Requests is all that were sent, retries and hedges included.
	Requests int64
	// Retries counts requests sent again from the same byte, Resumes those for what a broken answer left out.
	Retries, Resumes int64
	// Hedges counts second requests for one that was late; HedgesWon those whose answer came first.
	Hedges, HedgesWon int64
	// Stalls counts requests ended because no byte, or too few, came.
	Stalls int64
	// Throttled counts answers that asked for less load: 503 and 429.
	Throttled int64
	// Bytes is what reached callers' buffers.
	Bytes int64
	// WaitSlot is the time spent waiting for a slot of the limiter, WaitRetry that before retries, summed over requests.
	WaitSlot, WaitRetry time.Duration
}

type counters struct {
	requests, retries, resumes, hedges, hedgesWon, stalls, throttled, bytes, waitSlot, waitRetry atomic.Int64

	answered atomic.Bool // the store has answered once, whatever it said
}

// Stats returns the counters.
func (r *Reader) Stats() Stats {
	c := &r.stats
	return Stats{
		Requests:  c.requests.Load(),
		Retries:   c.retries.Load(),
		Resumes:   c.resumes.Load(),
		Hedges:    c.hedges.Load(),
		HedgesWon: c.hedgesWon.Load(),
		Stalls:    c.stalls.Load(),
		Throttled: c.throttled.Load(),
		Bytes:     c.bytes.Load(),
		WaitSlot:  time.Duration(c.waitSlot.Load()),
		WaitRetry: time.Duration(c.waitRetry.Load()),
	}
}
