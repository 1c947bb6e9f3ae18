package reader

import (
	"log/slog"
	"time"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/reader/internal/account"
	"github.com/shardtool/shardtool/reader/internal/tune"
)

// tuning is how far ahead a stream reads.
type tuning struct {
	ahead  *tune.Ahead
	load   tune.Load
	gate   *tune.Gate   // of requests; nil where the workers bound reading
	meters *tune.Meters // nil where nothing is tuned
	stores []asked      // owned by the tuner goroutine
}

// tune sets the first requests and depth, and starts the tuner where one of them may change.
func (s *Stream) tune() {
	z, o, t := &s.sizes, &s.opts, &s.tuning
	limits := tune.Limits{
		Start: z.requests, Most: z.most, Deepest: z.depth, FixedRequests: o.Requests > 0, FixedDepth: o.Depth > 0,
		Workers: o.Workers, Room: z.room,
	}
	depth := tune.New(limits).Depth()
	if o.NoAutotune {
		depth = z.depth
	}
	t.ahead = tune.NewAhead(depth)
	if z.most > 0 {
		t.gate = tune.NewGate(z.requests)
		t.stores = elastics(s.inputs)
		t.ask(z.requests)
	}
	if o.NoAutotune || limits.FixedDepth && (limits.FixedRequests || z.most == 0) {
		return
	}
	t.meters = tune.NewMeters()
	var log *slog.Logger
	if o.Log != nil {
		log = o.Log.With("rank", s.split.Rank)
	}
	loop := &tune.Loop{
		Limits: limits, Stream: tuned{s}, Meters: t.meters, Load: &t.load, Ahead: t.ahead, Log: log,
		Every: o.tuneEvery, Decide: o.tune,
	}
	s.life.wg.Go(func() { loop.Run(s.life.ctx, func() { s.count.decisions.Add(1) }) })
}

// asked is a store that sends more requests where it is asked to.
type asked struct {
	objstore.Elastic
	sends int // requests that it sends anyway
	extra int // requests granted for this stream
}

func elastics(inputs []*input) (stores []asked) {
	for _, in := range inputs {
		if in.share > 0 {
			if e, ok := in.source.Store.(objstore.Elastic); ok {
				stores = append(stores, asked{Elastic: e, sends: in.source.Requests()})
			}
		}
	}
	return stores
}

// ask has elastic stores send this number of requests for the stream, where that is more than they send
// anyway. The requests may all be of one source.
func (t *tuning) ask(requests int) {
	for i := range t.stores {
		e := &t.stores[i]
		if extra := max(requests-e.sends, 0); extra != e.extra {
			e.Allow(extra - e.extra)
			e.extra = extra
		}
	}
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
