package ranged

import (
	"sync/atomic"
	"time"
)

// Stats counts the requests of a store since it was opened. The fields are read one after the
// other: they are consistent between requests, and approximately under load.
type Stats struct {
	// Requests counts all requests, including retries and hedges.
	Requests int64
	// Retries counts requests that were repeated from the same byte, Resumes those for the rest of
	// an answer that broke off.
	Retries, Resumes int64
	// Hedges counts second requests for late ones, HedgesWon those that answered first.
	Hedges, HedgesWon int64
	// Stalls counts requests that were cancelled because too few bytes were received.
	Stalls int64
	// Throttled counts answers that asked for less load: 503 and 429.
	Throttled int64
	// Bytes counts the bytes delivered to callers.
	Bytes int64
	// WaitRetry is the time spent waiting before retries, summed over requests.
	WaitRetry time.Duration
}

type counters struct {
	requests, retries, resumes, hedges, hedgesWon, stalls, throttled, bytes, waitRetry atomic.Int64

	answered atomic.Bool // the store has answered at least once, with any status
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
		WaitRetry: time.Duration(c.waitRetry.Load()),
	}
}
