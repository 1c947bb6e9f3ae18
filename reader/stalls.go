package reader

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/shardtool/shardtool/internal/figures/account"
	"github.com/shardtool/shardtool/internal/figures/stats"
)

// stallsOf names the causes of a wait.
func stallsOf(t account.Totals) stats.Stalls {
	return stats.Stalls{
		Request: t[account.Request], Throttled: t[account.Throttled], Cache: t[account.Cache],
		Window: t[account.Window],
		Decode: t[account.Decode], Memory: t[account.Memory], Order: t[account.Order], Map: t[account.Map],
	}
}

// Stats counts what the stream has done so far. It may be called from any goroutine.
func (s *Stream) Stats() stats.Stream {
	c, n := &s.clock, &s.count
	stalls := stallsOf(c.Totals())
	evicted, most := s.window.Stats()
	for _, in := range s.inputs {
		if in.Dataset != nil && in.plan != nil && in.shares(&s.opts) {
			for i := range in.parts {
				most += in.parts[i].held().Bytes()
			}
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	elapsed := n.ended
	if elapsed == 0 {
		elapsed = time.Since(s.life.opened)
	}
	return stats.Stream{
		Batches: n.batches, Samples: n.samples, Bytes: n.bytes, Sources: slices.Clone(n.sources),
		Elapsed: elapsed, Wait: stalls.Total(), FirstWait: n.firstWait, Stalls: stalls,
		Pieces: stats.Pieces{
			Queued: c.Count(account.Queued), Reading: c.Count(account.Reading) + c.Count(account.Room),
			Paused:   c.Paused(),
			Decoding: c.Count(account.Decoding),
		},
		Requests: s.tuning.gate.Limit(), Depth: s.tuning.ahead.Depth(), Decisions: n.decisions.Load(),
		Blocks: n.blocks.Load(), StoredBytes: n.stored.Load(), Evicted: evicted,
		Rereads: n.rereads.Load(), Skipped: n.skipped.Samples, Held: most, Lengths: s.lengths,
	}
}

// log describes the order, then writes a line at every interval, and one after the last.
func (s *Stream) log(ctx context.Context, epoch uint64) {
	if lost := s.lengths.Lost(); lost != "" {
		s.opts.Log.Warn("stream: "+lost, "truncated", s.lengths.Truncated, "tokens_cut", s.lengths.Cut,
			"dropped", s.lengths.Dropped, "tokens_dropped", s.lengths.Left)
	}
	for _, in := range s.inputs {
		if in.Dataset != nil && len(in.all) > 1 {
			s.opts.Log.Info("stream: layers", "source", in.name, "dataset", in.Store(), "tables", in.catalog.Name,
				"layers", in.layerNames())
		}
	}
	s.logOrder(ctx, epoch)
	tick := time.NewTicker(s.opts.StatsEvery)
	defer tick.Stop()
	var before stats.Stream
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

// logLine logs what happened between two readings.
func (s *Stream) logLine(before, now stats.Stream) {
	took := max((now.Elapsed - before.Elapsed).Seconds(), 1e-9)
	attrs := []any{
		"rank", s.split.Rank, "batches", now.Batches, "batches_per_s",
		round3(float64(now.Batches-before.Batches) / took),
		"mb_per_s", round3(float64(now.Bytes-before.Bytes) / 1e6 / took), "wait_share",
		round3((now.Wait - before.Wait).Seconds() / took),
	}
	stalls := now.Stalls.Sub(before.Stalls)
	for range 2 { // the greatest first
		most, of := "", time.Duration(0)
		for name, d := range stalls.All() {
			if d > of && d.Seconds() >= 0.001*took && !slices.Contains(attrs, any(name)) {
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
