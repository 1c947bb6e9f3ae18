package reader

import (
	"log/slog"
	"time"

	"github.com/shardtool/shardtool/reader/internal/account"
	"github.com/shardtool/shardtool/reader/internal/tune"
)

// tune sets the first requests and depth, and starts the tuner where one of them may change.
func (s *Stream) tune(l tune.Limits) {
	depth := tune.New(l).Depth()
	if s.opts.NoAutotune {
		depth = l.Deepest
	}
	s.ahead = tune.NewAhead(depth)
	if l.Most > 0 {
		s.gate = tune.NewGate(l.Start)
		s.ask(l.Start)
	}
	if s.opts.NoAutotune || l.FixedDepth && (l.FixedRequests || l.Most == 0) {
		return
	}
	s.meters = tune.NewMeters()
	var log *slog.Logger
	if s.opts.Log != nil {
		log = s.opts.Log.With("rank", s.split.Rank)
	}
	loop := &tune.Loop{
		Limits: l, Stream: tuned{s}, Meters: s.meters, Load: &s.load, Ahead: s.ahead, Log: log,
		Every: s.opts.tuneEvery, Decide: s.opts.tune,
	}
	s.wg.Go(func() { loop.Run(s.ctx, func() { s.stats.decisions.Add(1) }) })
}

// tuned is a Stream as the tuner drives it.
type tuned struct{ s *Stream }

func (t tuned) Progress() tune.Progress {
	s := t.s
	c := s.clock.Totals()
	s.mu.Lock()
	defer s.mu.Unlock()
	return tune.Progress{
		At: time.Since(s.opened), Batches: s.stats.batches, First: s.stats.firstWait, Waiting: s.waiting,
		Stalled: c[account.Request] + c[account.Throttled] + c[account.Cache] + c[account.Window],
	}
}

func (t tuned) SetRequests(n int) {
	t.s.ask(n)
	t.s.gate.Set(n)
}

func (t tuned) SetDepth(n int) {
	lower := n < t.s.ahead.Depth()
	t.s.ahead.SetDepth(n)
	if lower {
		t.s.mu.Lock()
		t.s.memory.trim()
		t.s.mu.Unlock()
	}
}
