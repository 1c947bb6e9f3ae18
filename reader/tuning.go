package reader

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// gate lets a number of goroutines through at a time, those first that came first. The number may change.
type gate struct {
	mu      sync.Mutex
	limit   int
	inside  int
	waiting []chan struct{}
}

// enter waits its turn. It returns false when ctx has ended; otherwise call leave.
func (g *gate) enter(ctx context.Context) bool {
	g.mu.Lock()
	if g.inside < g.limit && len(g.waiting) == 0 {
		g.inside++
		g.mu.Unlock()
		return true
	}
	turn := make(chan struct{})
	g.waiting = append(g.waiting, turn)
	g.mu.Unlock()
	select {
	case <-turn:
		return true
	case <-ctx.Done(): // with all the others: nobody is kept waiting by a turn that is not used
		return false
	}
}

func (g *gate) leave() {
	g.mu.Lock()
	g.inside--
	g.admit()
	g.mu.Unlock()
}

func (g *gate) set(limit int) {
	g.mu.Lock()
	g.limit = limit
	g.admit()
	g.mu.Unlock()
}

// limited is the number; 0 of nil.
func (g *gate) limited() int {
	if g == nil {
		return 0
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.limit
}

// admit gives turns; g.mu is held.
func (g *gate) admit() {
	for g.inside < g.limit && len(g.waiting) > 0 {
		g.inside++
		close(g.waiting[0])
		g.waiting[0] = nil
		g.waiting = g.waiting[1:]
	}
}

// meters count what the tuner measures by. They only go up.
type meters struct {
	pieces, read, decode, throttled atomic.Int64 // read and decode in nanoseconds
	steps, busy                     atomic.Int64
	held                            atomic.Bool // the consumer waited while the depth kept the planner back; the tuner takes it
}

// load is what the planner says of the order.
type load struct {
	mu              sync.Mutex
	batches, pieces float64 // planned and brought so far
	recent          float64 // pieces a batch
	behind          float64 // pieces that the steps so far left no time for
	epoch           uint64
	peak, lastPeak  float64 // of behind, in this epoch and the one before
	drain           float64 // pieces that can come in a step
}

// batch counts one that brought so many pieces.
func (l *load) batch(epoch uint64, pieces int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if epoch != l.epoch {
		l.epoch, l.lastPeak, l.peak = epoch, l.peak, 0
	}
	n := float64(pieces)
	l.batches++
	l.pieces += n
	l.recent += (n - l.recent) / min(l.batches, 32)
	l.behind = max(l.behind+n-l.drain, 0)
	l.peak = max(l.peak, l.behind)
}

// read returns the pieces that a batch brings and the burst, and takes what can come in a step from now on.
func (l *load) read(drain float64) (perBatch, burst float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drain = drain
	return max(l.pieces/max(l.batches, 1), l.recent), max(l.peak, l.lastPeak)
}

const (
	// tuneEvery is how often is looked whether a window is over: when as many pieces came as are fetched at once, or after tuneWithin
	// times as long.
	tuneEvery  = 200 * time.Millisecond
	tuneWithin = 10
	// firstSteps are looked at one by one.
	firstSteps = 3
	// noticed is the least wait that the depth is blamed for.
	noticed = time.Millisecond
)

// tunes starts the tuner, where there is something to tune.
func (s *Stream) tunes(l tuneLimits) {
	t := newTuner(l)
	s.depth = t.depth
	if l.most > 0 {
		s.gate = &gate{limit: l.start}
		s.ask(l.start)
	}
	if s.opts.NoAutotune {
		if !l.fixedDepth {
			s.depth = l.deepest
		}
		return
	}
	if l.fixedDepth && (l.fixedRequests || l.most == 0) {
		return
	}
	s.tuned = true
	s.wg.Go(func() { s.autotune(s.ctx, t) })
}

// autotune is a goroutine of a stream: it measures, has the tuner decide, and does what it says.
func (s *Stream) autotune(ctx context.Context, t *tuner) {
	every := cmp.Or(s.opts.tuneEvery, tuneEvery)
	tick := time.NewTicker(every)
	defer tick.Stop()
	was := s.readMeters()
	for {
		urgent := false
		select {
		case <-tick.C:
		case <-s.kick:
			urgent = true
		case <-ctx.Done():
			return
		}
		now := s.readMeters()
		full := now.pieces-was.pieces >= int64(max(t.requests, s.opts.Workers)) && now.at-was.at >= every || now.at-was.at >= tuneWithin*every
		if now.batches == 0 || now.at == was.at || !full && !urgent {
			continue
		}
		m := now.since(&was)
		m.partial = !full
		m.held = s.heldBack(&m)
		m.perBatch, m.burst = s.load.read(t.power() * t.step)
		decide := t.decide
		if s.opts.tune != nil {
			decide = s.opts.tune
		}
		for _, d := range decide(m) {
			s.apply(d, t, &m)
		}
		if full {
			was = now
		}
	}
}

// heldBack says whether the consumer waited, or does, because the stream is not far enough ahead.
func (s *Stream) heldBack(m *measure) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.meters.held.Swap(false) || s.waiting && s.kept && m.stalled.Seconds() > starvedShare*m.span.Seconds()
}

// apply does what was decided, and tells of it.
func (s *Stream) apply(d decision, t *tuner, m *measure) {
	switch d.of {
	case tunedRequests:
		s.ask(d.to)
		s.gate.set(d.to)
	case tunedDepth:
		s.mu.Lock()
		s.depth = d.to
		if d.to < d.from {
			s.memory.trim()
		}
		s.mu.Unlock()
		s.nudge()
	}
	s.stats.decisions.Add(1)
	if s.opts.Log == nil {
		return
	}
	ms := func(seconds float64) float64 { return round3(1000 * seconds) }
	s.opts.Log.Info("autotune", "rank", s.split.Rank, "setting", d.of, "from", d.from, "to", d.to, "why", d.why,
		"step_ms", ms(t.step), "fetch_ms", ms(t.fetch), "pieces_per_s", round3(m.rate()), "in_flight", round3(m.flying()),
		"waited", round3(m.stalled.Seconds()/max(m.span.Seconds(), 1e-9)), "throttled", round3(m.busyShare()))
}

// reading is the meters at a moment.
type reading struct {
	at                                           time.Duration
	pieces, read, decode, throttled, steps, busy int64
	stalled                                      time.Duration
	first                                        time.Duration // of stalled, about: the wait for the first batch
	batches                                      uint64
}

func (s *Stream) readMeters() (r reading) {
	c, m := s.stalls.stalls(), &s.meters
	r.stalled = c.Request + c.Throttled + c.Cache + c.Window
	r.pieces, r.read, r.decode, r.throttled = m.pieces.Load(), m.read.Load(), m.decode.Load(), m.throttled.Load()
	r.steps, r.busy = m.steps.Load(), m.busy.Load()
	s.mu.Lock()
	r.at, r.batches, r.first = time.Since(s.opened), s.stats.batches, s.stats.firstWait
	s.mu.Unlock()
	return r
}

func (r *reading) since(was *reading) measure {
	m := measure{
		at: r.at, span: r.at - was.at, steps: int(r.steps - was.steps), busy: time.Duration(r.busy - was.busy), stalled: r.stalled - was.stalled,
		pieces: int(r.pieces - was.pieces), read: time.Duration(r.read - was.read), decode: time.Duration(r.decode - was.decode),
		throttled: int(r.throttled - was.throttled),
	}
	if was.batches == 0 { // the wait for the first batch says nothing of those to come
		m.stalled = max(m.stalled-r.first, 0)
	}
	return m
}

// stepped counts a step of the consumer, which asks for the next batch now.
func (s *Stream) stepped(now time.Time) {
	if !s.tuned || s.returned.IsZero() {
		return
	}
	s.meters.busy.Add(int64(now.Sub(s.returned)))
	if s.meters.steps.Add(1) <= firstSteps {
		signal(s.kick)
	}
}

// keepBack waits until the consumer has taken enough of what is ahead. It returns false when ctx has ended.
func (s *Stream) keepBack(ctx context.Context) bool {
	for {
		s.mu.Lock()
		s.kept = s.coming >= max(s.depth, 1)
		kept := s.kept
		s.mu.Unlock()
		if !kept {
			return true
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
			return false
		}
	}
}
