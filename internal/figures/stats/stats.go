// Package stats has the figures of a stream: what it delivered, what it read, and what its consumer
// waited for. Each is a copy of a moment; subtract two to get the figures of the time between.
package stats

import (
	"iter"
	"time"

	"github.com/shardtool/shardtool/internal/figures/account"
	"github.com/shardtool/shardtool/internal/order/units"
)

// Stalls is the time that the consumer of a stream waited in Next, divided by what held back the
// batch that was next. A moment has one cause, so the causes sum to the wait.
type Stalls struct {
	// Request: a block was being read from the store, over the network or from disk.
	Request time.Duration
	// Throttled: that read paused, because the store asked for less load, failed or broke off.
	Throttled time.Duration
	// Cache: that read used the cache on local disk, to find the block or to keep it.
	Cache time.Duration
	// Window: the batch needed more blocks than it holds bytes for, and they made the window that
	// samples are shuffled in larger than before in the epoch: at the beginning, after a resume,
	// and at the turn of an epoch. A block that waits for its turn counts here too.
	Window time.Duration
	// Decode: a block was being checked, decoded and indexed, or waited for a processor to do it.
	Decode time.Duration
	// Memory: the budget was full. A block had no memory yet, or it had to go for want of memory and
	// was read again.
	Memory time.Duration
	// Order: the batch was being planned, assembled or handed over.
	Order time.Duration
	// Map: StreamOptions.Map ran.
	Map time.Duration
}

// All yields the causes by the names that metrics and JSON have for them, in the order of Stalls.
func (s Stalls) All() iter.Seq2[string, time.Duration] {
	return func(yield func(string, time.Duration) bool) {
		for c, d := range (account.Totals{s.Request, s.Throttled, s.Cache, s.Window, s.Decode, s.Memory, s.Order,
			s.Map}) {
			if !yield(account.Cause(c).String(), d) {
				return
			}
		}
	}
}

// Total returns the wait.
func (s Stalls) Total() (d time.Duration) {
	for _, of := range s.All() {
		d += of
	}
	return d
}

// Sub returns the stalls since before, an earlier reading of the same stream.
func (s Stalls) Sub(before Stalls) Stalls {
	return Stalls{
		Request: s.Request - before.Request, Throttled: s.Throttled - before.Throttled, Cache: s.Cache - before.Cache,
		Window: s.Window - before.Window, Decode: s.Decode - before.Decode, Memory: s.Memory - before.Memory,
		Order: s.Order - before.Order, Map: s.Map - before.Map,
	}
}

// Pieces counts pieces by what happens to them at a moment. A piece is consecutive blocks that are
// read and held together.
type Pieces struct {
	// Queued pieces have their memory and wait for a worker.
	Queued int
	// Reading pieces are being read, Paused ones of them wait to ask again.
	Reading, Paused int
	// Decoding pieces are checked, decoded and indexed, or wait for a processor.
	Decoding int
}

// Stream counts what a stream has done so far.
type Stream struct {
	// Batches counts the batches delivered, Samples the samples in them without padding, Bytes the
	// bytes of their fields before Map.
	Batches, Samples, Bytes uint64
	// Sources are the samples and bytes of each source of a mix, by its number in the plan; nil for
	// one data set.
	Sources []Source
	// Elapsed is the time since the stream was opened, until it was closed.
	Elapsed time.Duration
	// Wait is the time that calls of Next have waited, FirstWait how long the first one has. Stalls
	// is the same by its causes.
	Wait, FirstWait time.Duration
	Stalls          Stalls
	// Pieces counts the pieces on their way now.
	Pieces Pieces
	// Requests is the most pieces of a remote store that are fetched at once, 0 where the processor
	// bounds reading. Depth is the most batches that are planned and asked for before the consumer
	// takes them. Decisions counts the changes that autotuning has made to the two.
	Requests, Depth int
	Decisions       uint64
	// Blocks and StoredBytes count what was fetched, blocks read again included.
	Blocks, StoredBytes uint64
	// Evicted counts blocks that were dropped for want of memory while samples of them were still to
	// be delivered: they are read again.
	Evicted uint64
	// Rereads are reads repeated because the first gave damaged bytes.
	Rereads uint64
	// Skipped counts the samples of all blocks in the ledger.
	Skipped uint64
	// Lengths is StreamInfo.Lengths: what an epoch in units cuts off and leaves out of long samples.
	Lengths units.Summary
	// Held is the most bytes of blocks that were held at once.
	Held int64
}

// Source counts what a stream has delivered of a source of a mix.
type Source struct {
	Name           string
	Samples, Bytes uint64
}
