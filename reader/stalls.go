package reader

import (
	"context"
	"iter"
	"log/slog"
	"slices"
	"time"

	"github.com/shardtool/shardtool/reader/internal/account"
)

// Stalls says what the consumer of a stream has waited for: the time in Next, divided by what held
// back the batch that was next. A moment has one cause, so that the causes sum to the wait.
type Stalls struct {
	// Request: a block was being read from the store, over the network or from disk.
	Request time.Duration
	// Throttled: that read paused, because the store asked for less load, failed or broke off.
	Throttled time.Duration
	// Cache: that read used the cache on local disk, to find the block or to keep it.
	Cache time.Duration
	// Window: the batch needed more blocks than it holds bytes for, and they made the window that
	// samples are shuffled in larger than it had been in the epoch: at the beginning, after a resume,
	// and at the turn of an epoch. A block that waits its turn behind others counts here too.
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
		for c, d := range (account.Totals{s.Request, s.Throttled, s.Cache, s.Window, s.Decode, s.Memory, s.Order, s.Map}) {
			if !yield(account.Cause(c).String(), d) {
				return
			}
		}
	}
}

func stallsOf(t account.Totals) Stalls {
	return Stalls{
		Request: t[account.Request], Throttled: t[account.Throttled], Cache: t[account.Cache], Window: t[account.Window],
		Decode: t[account.Decode], Memory: t[account.Memory], Order: t[account.Order], Map: t[account.Map],
	}
}

// Total is the wait.
func (s Stalls) Total() (d time.Duration) {
	for _, of := range s.All() {
		d += of
	}
	return d
}

// Sub is what came since before, an earlier reading of the same stream.
func (s Stalls) Sub(before Stalls) Stalls {
	return Stalls{
		Request: s.Request - before.Request, Throttled: s.Throttled - before.Throttled, Cache: s.Cache - before.Cache,
		Window: s.Window - before.Window, Decode: s.Decode - before.Decode, Memory: s.Memory - before.Memory,
		Order: s.Order - before.Order, Map: s.Map - before.Map,
	}
}

// PieceCounts says how many pieces, consecutive blocks that are read and held together, are where
// on their way at a moment.
type PieceCounts struct {
	// Queued pieces have their memory and wait for a worker.
	Queued int
	// Reading pieces are being read, Paused ones of them wait to ask again.
	Reading, Paused int
	// Decoding pieces are checked, decoded and indexed, or wait their turn for it.
	Decoding int
}

// StreamStats counts what a stream has done so far.
type StreamStats struct {
	// Batches were delivered, with so many Samples, padding left out. Bytes are those of their fields,
	// before Map.
	Batches, Samples, Bytes uint64
	// Sources are the samples and bytes of each source of a mix, by its number in the plan; nil for
	// one data set.
	Sources []SourceStats
	// Elapsed is the time since the stream was opened, until it was closed.
	Elapsed time.Duration
	// Wait is the time that calls of Next have waited, FirstWait that of the first one. Stalls is the
	// same by its causes.
	Wait, FirstWait time.Duration
	Stalls          Stalls
	// Pieces is where pieces are now.
	Pieces PieceCounts
	// Requests is how many pieces of a remote store are fetched at once at most, 0 where reading is a
	// matter of the processor; Depth how many batches may be planned and asked for before the consumer
	// takes them. Decisions counts the changes that autotuning has made to them.
	Requests, Depth int
	Decisions       uint64
	// Blocks and StoredBytes were fetched, the ones read again included.
	Blocks, StoredBytes uint64
	// Evicted blocks had to go while samples of them were still to come, for want of memory: they are
	// read again.
	Evicted uint64
	// Rereads are reads repeated because the first gave damaged bytes.
	Rereads uint64
	// Skipped samples are those of all blocks in the ledger.
	Skipped uint64
	// Held is the most bytes of blocks that were held at once.
	Held int64
}

// SourceStats counts what a stream has delivered of a source of a mix.
type SourceStats struct {
	Name           string
	Samples, Bytes uint64
}

// Stats counts what the stream has done so far. It may be called from any goroutine.
func (s *Stream) Stats() StreamStats {
	c, n := &s.clock, &s.count
	stalls := stallsOf(c.Totals())
	evicted, most := s.window.Stats()
	n.mu.Lock()
	defer n.mu.Unlock()
	elapsed := n.ended
	if elapsed == 0 {
		elapsed = time.Since(s.life.opened)
	}
	return StreamStats{
		Batches: n.batches, Samples: n.samples, Bytes: n.bytes, Sources: slices.Clone(n.sources),
		Elapsed: elapsed, Wait: stalls.Total(), FirstWait: n.firstWait, Stalls: stalls,
		Pieces: PieceCounts{
			Queued: c.Count(account.Queued), Reading: c.Count(account.Reading) + c.Count(account.Room), Paused: c.Paused(),
			Decoding: c.Count(account.Decoding),
		},
		Requests: s.tuning.gate.Limit(), Depth: s.tuning.ahead.Depth(), Decisions: n.decisions.Load(),
		Blocks: n.blocks.Load(), StoredBytes: n.stored.Load(), Evicted: evicted,
		Rereads: n.rereads.Load(), Skipped: n.skipped.Samples, Held: most,
	}
}

// log describes the order, then writes a line at every interval, and one behind the last.
func (s *Stream) log(ctx context.Context, epoch uint64) {
	s.logOrder(ctx, epoch)
	tick := time.NewTicker(s.opts.StatsEvery)
	defer tick.Stop()
	var before StreamStats
	for more := true; more; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			more = false
		}
		now := s.Stats()
		if more || now.Batches > before.Batches {
			s.logLine(before, now)
		}
		before = now
	}
}

// logLine tells what happened between two readings.
func (s *Stream) logLine(before, now StreamStats) {
	took := max((now.Elapsed - before.Elapsed).Seconds(), 1e-9)
	attrs := []any{
		"rank", s.split.Rank, "batches", now.Batches, "batches_per_s", round3(float64(now.Batches-before.Batches) / took),
		"mb_per_s", round3(float64(now.Bytes-before.Bytes) / 1e6 / took), "wait_share", round3((now.Wait - before.Wait).Seconds() / took),
	}
	stalls := now.Stalls.Sub(before.Stalls)
	for range 2 { // the greatest first
		most, of := "", time.Duration(0)
		for name, d := range stalls.All() {
			if d > of && d.Seconds() >= 0.001*took && !told(attrs, name) {
				most, of = name, d
			}
		}
		if most != "" {
			attrs = append(attrs, most, round3(of.Seconds()/took))
		}
	}
	if now.Requests > 0 {
		attrs = append(attrs, "requests", now.Requests)
	}
	for i, of := range now.Sources {
		n := of.Samples
		if before.Sources != nil {
			n -= before.Sources[i].Samples
		}
		attrs = append(attrs, slog.Uint64("samples."+of.Name, n))
	}
	s.opts.Log.Info("stream", append(attrs, "depth", now.Depth)...)
}

func told(attrs []any, name string) bool {
	for _, a := range attrs {
		if a == name {
			return true
		}
	}
	return false
}
