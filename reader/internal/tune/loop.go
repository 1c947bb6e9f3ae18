package tune

import (
	"cmp"
	"context"
	"log/slog"
	"math"
	"time"
)

const (
	// checkEvery is how often the Loop checks whether a window is over. A window ends when as many
	// pieces came as are fetched at once, or after windowMost checks.
	checkEvery = 200 * time.Millisecond
	windowMost = 10
)

// Progress is what a stream has done at a moment.
type Progress struct {
	At      time.Duration // since the stream was opened
	Batches uint64        // delivered
	// Stalled is how long the consumer waited for pieces that were asked for; First is about the
	// part of it that was spent on the first batch.
	Stalled, First time.Duration
	Waiting        bool // the consumer waits now
}

// Stream is a stream that the Loop tunes.
type Stream interface {
	Progress() Progress
	SetRequests(n int)
	SetDepth(n int)
}

// Loop measures a stream at intervals, decides and applies. Fill in the fields, then call Run.
type Loop struct {
	Limits Limits
	Stream Stream
	Meters *Meters
	Load   *Load
	Ahead  *Ahead
	Log    *slog.Logger // takes a line for every decision; may be nil

	// Every and Decide take the place of checkEvery and of the Tuner in tests.
	Every  time.Duration
	Decide func(Measure) []Decision
}

// Run tunes the stream until ctx ends. apply is called for every decision made.
func (l *Loop) Run(ctx context.Context, decided func()) {
	t := New(l.Limits)
	every := cmp.Or(l.Every, checkEvery)
	tick := time.NewTicker(every)
	defer tick.Stop()
	was := l.read()
	for {
		urgent := false
		select {
		case <-tick.C:
		case <-l.Meters.kick:
			urgent = true
		case <-ctx.Done():
			return
		}
		now := l.read()
		span := now.At - was.At
		full := span >= every && now.pieces-was.pieces >= int64(max(t.requests, l.Limits.Workers)) ||
			span >= windowMost*every
		if now.Batches == 0 || span == 0 || !full && !urgent {
			continue
		}
		m := now.since(&was)
		m.Partial = !full
		m.Held = l.Meters.held.Swap(false) || now.Waiting && l.Ahead.Kept() && t.starved(&m)
		m.PerBatch, m.Burst = l.Load.read(t.power() * t.seen.step)
		decide := t.Decide
		if l.Decide != nil {
			decide = l.Decide
		}
		for _, d := range decide(m) {
			l.apply(d, t, &m)
			decided()
		}
		if full {
			was = now
		}
	}
}

func (l *Loop) apply(d Decision, t *Tuner, m *Measure) {
	switch d.Of {
	case Requests:
		l.Stream.SetRequests(d.To)
	case Depth:
		l.Stream.SetDepth(d.To)
	}
	if l.Log == nil {
		return
	}
	ms := func(seconds float64) float64 { return round3(1000 * seconds) }
	l.Log.Info("autotune", "setting", d.Of, "from", d.From, "to", d.To, "why", d.Why,
		"step_ms", ms(t.seen.step), "fetch_ms", ms(t.seen.fetch), "pieces_per_s", round3(m.rate()), "in_flight",
		round3(m.flying()),
		"waited", round3(m.Stalled.Seconds()/max(m.Span.Seconds(), 1e-9)), "throttled", round3(m.busyShare()))
}

// round3 rounds to three decimals.
func round3(v float64) float64 { return math.Round(v*1000) / 1000 }

// reading is the meters and the progress at a moment.
type reading struct {
	Progress
	pieces, read, decode, throttled, steps, busy int64
}

func (l *Loop) read() reading {
	m := l.Meters
	return reading{
		Progress: l.Stream.Progress(), pieces: m.pieces.Load(), read: m.read.Load(), decode: m.decode.Load(),
		throttled: m.throttled.Load(), steps: m.steps.Load(), busy: m.busy.Load(),
	}
}

// since returns what happened after an earlier reading.
func (r *reading) since(was *reading) Measure {
	m := Measure{
		At: r.At, Span: r.At - was.At, Steps: int(r.steps - was.steps), Busy: time.Duration(r.busy - was.busy),
		Stalled: r.Stalled - was.Stalled,
		Pieces:  int(r.pieces - was.pieces), Read: time.Duration(r.read - was.read),
		Decode:    time.Duration(r.decode - was.decode),
		Throttled: int(r.throttled - was.throttled),
	}
	if was.Batches == 0 { // the wait for the first batch does not predict later ones
		m.Stalled = max(m.Stalled-r.First, 0)
	}
	return m
}
