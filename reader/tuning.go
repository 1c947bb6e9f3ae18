package reader

import (
	"log/slog"
	"time"

	"github.com/shardtool/shardtool/internal/figures/account"
	"github.com/shardtool/shardtool/reader/internal/tune"
)

// tune sets the first requests and depth, and starts the tuner if one of them may change.
func (s *Stream) tune() {
	z, o, t := &s.sizes, &s.opts, &s.tuning
	limits := tune.Limits{
		Start: z.requests, Most: z.most, Deepest: z.depth, FixedRequests: o.Tuning.Requests > 0,
		FixedDepth: o.Tuning.Depth > 0,
		Workers:    o.Tuning.Workers, Room: z.room,
	}
	depth := tune.New(limits).Depth()
	if o.Tuning.NoAutotune {
		depth = z.depth
	}
	t.ahead = tune.NewAhead(depth)
	if z.most > 0 {
		t.gate = tune.NewGate(z.requests)
		t.stores = elastics(s.inputs)
		t.ask(z.requests)
	}
	if o.Tuning.NoAutotune || limits.FixedDepth && (limits.FixedRequests || z.most == 0) {
		return
	}
	t.meters = tune.NewMeters()
	var log *slog.Logger
	if o.Log != nil {
		log = o.Log.With("rank", s.split.Rank)
	}
	loop := &tune.Loop{
		Limits: limits, Stream: tuned{s}, Meters: t.meters, Load: &t.load, Ahead: t.ahead, Log: log,
		Every: o.Tuning.tuneEvery, Decide: o.Tuning.tune,
	}
	s.life.wg.Go(func() { loop.Run(s.life.ctx, func() { s.count.decisions.Add(1) }) })
}

// tuned is a Stream as the tuner drives it.
type tuned struct{ s *Stream }

func (t tuned) Progress() tune.Progress {
	s := t.s
	c := s.clock.Totals()
	s.count.mu.Lock()
	defer s.count.mu.Unlock()
	return tune.Progress{
		At: time.Since(s.life.opened), Batches: s.count.batches, First: s.count.firstWait, Waiting: s.count.waiting,
		Stalled: c[account.Request] + c[account.Throttled] + c[account.Cache] + c[account.Window],
	}
}

func (t tuned) SetRequests(n int) {
	t.s.tuning.ask(n)
	t.s.tuning.gate.Set(n)
}

func (t tuned) SetDepth(n int) {
	lower := n < t.s.tuning.ahead.Depth()
	t.s.tuning.ahead.SetDepth(n)
	if lower {
		t.s.window.Trim()
	}
}
