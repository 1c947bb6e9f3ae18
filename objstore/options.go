package objstore

import "time"

// ReadOptions tune how stores read over a network. Zero fields have the
// defaults given below. Every wait is bounded, so a read ends in all its bytes or an error.
type ReadOptions struct {
	// Concurrency is the number of requests in flight, by default 64. Hedges may add an eighth.
	Concurrency int
	// MostConcurrency is the largest number that [Traits].Reserve can raise Concurrency to. The
	// default is 256 if Concurrency is the default, and Concurrency otherwise.
	MostConcurrency int
	// PartSize is the largest range of one request in bytes, by default 8 MiB. Larger reads are split.
	PartSize int64

	// FirstByteTimeout is the longest wait for the first byte of an answer, by default 10 s. Observed
	// latencies shorten it, down to 1 s.
	FirstByteTimeout time.Duration
	// StallTimeout is the longest wait between two bytes, by default 5 s. Observed latencies shorten
	// it for a tenth of the requests.
	StallTimeout time.Duration
	// MinRate is the lowest rate in bytes per second, measured over twice StallTimeout. A slower
	// request is cancelled and resumed. The default is 1,024; a negative value means no limit.
	MinRate int64

	// MaxAttempts, if positive, limits the requests in a row that fail without a byte. By default
	// only MaxElapsed limits them. Until the store has answered once, a host name that does not
	// resolve has four attempts.
	MaxAttempts int
	// MaxElapsed is how long a read may take without progress (64 KiB, or its end), by default 60 s,
	// whether the store was down at the start or went down later. Time in the queue for a request
	// does not count. Until the store has answered once, an address that refuses connections is
	// tried for 4 s.
	MaxElapsed time.Duration
	// BackoffMin and BackoffMax bound the pause before a retry, by default 20 ms and 5 s. The pause is
	// random between 0 and a bound that doubles with every failure in a row.
	BackoffMin, BackoffMax time.Duration
	// NoHedge disables hedging, the second request for one whose answer is late.
	NoHedge bool
}
