package reader

import "time"

// tuning is what a stream changes by itself: how fast batches come, never which ones.
type tuning struct {
	requests int // pieces that are fetched at once
	depth    int // batches that are planned, and their pieces asked for, before the consumer takes them
}

// tuneLimits are what a tuning may be.
type tuneLimits struct {
	// start is where the number of requests starts and most its bound; both are 0 where reading is a matter of the processor.
	start, most int
	deepest     int // that the depth may be
	// What the user has said stays.
	fixedRequests, fixedDepth bool

	workers int // that decode
	// room is how many batches the budget has room for, the window left out.
	room float64
}

// measure is what happened in a span of time. A piece is what one request asks for.
type measure struct {
	at, span time.Duration // of its end since the stream was opened, and how long it was
	// steps were taken by the consumer, each between a batch and its asking for the next: together busy.
	steps int
	busy  time.Duration
	// stalled is how long it waited for pieces that were asked for, the first batch left out. held: it did while the depth kept the
	// planner back.
	stalled time.Duration
	held    bool
	// partial: the window is not over yet. Only the depth is looked at, and the window comes again.
	partial bool
	// pieces came, after so much reading and decoding, summed; so many times an answer asked for less load.
	pieces       int
	read, decode time.Duration
	throttled    int
	// perBatch is how many pieces a batch brings, in the long run; burst how many more than the stream can take along with the steps
	// have been needed at once: at the beginning and at the turn of an epoch.
	perBatch, burst float64
}

// decision is a change, and why.
type decision struct {
	of       string // tunedRequests or tunedDepth
	from, to int
	why      string
}

// What is tuned.
const tunedRequests, tunedDepth = "requests", "depth"

// The reasons.
const (
	whyFaster    = "the consumer waits, and all requests are in flight"
	whyNoGain    = "more did not bring more"
	whyBefore    = "the consumer waits, and more were of use before"
	whyThrottled = "the store asks for less load"
	whyNoRelief  = "fewer did not help: the store does not mean us"
	whyStep      = "the step needs more in flight"
	whySlack     = "the step needs fewer"
	whyHeld      = "the consumer waited, and was not far ahead"
	whyLead      = "this far ahead, no step should wait"
)

const (
	starvedShare  = 0.02 // of the time waited, from which on the consumer counts as waiting
	throttleShare = 0.05 // of the answers, from which on the store counts as busy
	calmWindows   = 3    // without a wait before anything is lowered
	// leadLeast is the least time that the depth covers: a request that is given up after a second of silence, and its second try.
	leadLeast = 1500 * time.Millisecond
	// margin is how much more than is needed is set. Lowered is what is twice what is needed: what is measured varies, and a setting
	// should not with it.
	margin      = 1.3
	leastStep   = 0.001 // seconds
	leastDepth  = 2
	leastFlying = 2
	holdFirst   = 8 // windows before what did not help is tried again; doubled each time, to holdMost
	holdMost    = 256
	floorFor    = time.Minute // for which a depth is kept that a wait has led to; halved after that
)

// tuner decides. It is a function of what it is told: it reads no clock and starts nothing.
//
// Requests. While the consumer waits with all of them in flight, they are doubled, later raised by half, and what that brought is
// measured: too little, and they go back, and stay for a time that doubles. Where the store asks for less load they are lowered by a
// third, in the same way. While the consumer does not wait they follow its step by Little's law: requests in flight = pieces a second ×
// seconds a piece.
//
// Depth. What the stream has to have ahead is what the store needs time for: two requests one after the other and, with what it can
// do beyond the step's need, the burst of a new window. The time by the step is the depth. A wait doubles it.
type tuner struct {
	tuneLimits
	tuning

	step, fetch, decode float64 // seconds; of the consumer, of a piece in flight, and of that in decoding
	capacity            float64 // pieces a second when all requests were in flight; 0 while they never were

	best    int // requests that were of use while the consumer waited
	calm    int // windows without a wait, in a row
	probe   *probe
	hold    int // windows to come in which best is not gone beyond
	backoff int
	relief  int // windows to come in which throttling changes nothing
	// What was so when raising was of no use: another store is tried anew.
	heldRate, heldFetch float64

	floor   int // of the depth
	floorAt time.Duration
}

// probe is a number of requests that is tried.
type probe struct {
	from          int
	rate, fetch   float64 // pieces a second and seconds a piece before
	busy          float64 // the throttled share before
	refusals      float64 // and how many answers asked for less load before a piece came
	settle, lower bool
}

func newTuner(l tuneLimits) *tuner {
	t := &tuner{tuneLimits: l, tuning: tuning{requests: l.start, depth: min(max(int(l.room/4), firstDepth), l.deepest)}, best: l.start, backoff: holdFirst}
	if l.fixedDepth {
		t.depth = l.deepest
	}
	return t
}

// firstDepth is the least depth until a step has been measured, which is when the second batch is asked for; a quarter of what the
// budget has room for, if that is more.
const firstDepth = 8

// decide takes the measure of a window and says what changes; t.tuning has changed already.
func (t *tuner) decide(m measure) (all []decision) {
	before := t.tuning
	why := ""
	if m.partial {
		t.glimpse(&m)
	} else if t.observe(&m); t.most > 0 && !t.fixedRequests {
		why = t.tuneRequests(&m)
	}
	if t.requests != before.requests {
		all = append(all, decision{tunedRequests, before.requests, t.requests, why})
	}
	if !t.fixedDepth {
		why = t.tuneDepth(&m)
	}
	if t.depth != before.depth {
		all = append(all, decision{tunedDepth, before.depth, t.depth, why})
	}
	return all
}

// observe learns from a window.
func (t *tuner) observe(m *measure) {
	if m.steps > 0 {
		// A shorter step counts at once: a longer one may be the first, or one with a validation in it.
		step := m.busy.Seconds() / float64(m.steps)
		if blend(&t.step, step); step < t.step {
			t.step = step
		}
	}
	if m.pieces > 0 && m.throttled == 0 {
		blend(&t.fetch, (m.read+m.decode).Seconds()/float64(m.pieces))
		blend(&t.decode, m.decode.Seconds()/float64(m.pieces))
	}
	if rate := m.rate(); t.saturated(m) {
		blend(&t.capacity, rate)
	} else if t.capacity > 0 {
		t.capacity = max(t.capacity, rate)
	}
	if t.starved(m) {
		t.calm = 0
	} else {
		t.calm++
	}
	t.hold, t.relief = max(t.hold-1, 0), max(t.relief-1, 0)
}

// glimpse learns from a window that is not over what is not known at all, and that the step has become shorter. A consumer with a queue
// of its own fills that at first, in no time: this says nothing of its step.
func (t *tuner) glimpse(m *measure) {
	if step := m.busy.Seconds() / max(float64(m.steps), 1); step >= leastStep && (t.step == 0 || step < t.step) {
		t.step = step
	}
	if t.fetch == 0 && m.pieces > 0 {
		t.fetch, t.decode = (m.read+m.decode).Seconds()/float64(m.pieces), m.decode.Seconds()/float64(m.pieces)
	}
}

// blend moves a mean half way; the first value is taken as it is.
func blend(mean *float64, v float64) {
	if *mean == 0 {
		*mean = v
		return
	}
	*mean += (v - *mean) / 2
}

func (m *measure) rate() float64 { return float64(m.pieces) / max(m.span.Seconds(), 1e-9) }

// flying is how many pieces were in flight, in the mean, of those that came.
func (m *measure) flying() float64 {
	return (m.read + m.decode).Seconds() / max(m.span.Seconds(), 1e-9)
}

func (m *measure) busyShare() float64 {
	return float64(m.throttled) / max(float64(m.pieces+m.throttled), 1)
}

func (m *measure) refusals() float64 { return float64(m.throttled) / max(float64(m.pieces), 1) }

func (t *tuner) starved(m *measure) bool {
	return m.stalled.Seconds() > starvedShare*m.span.Seconds()
}

func (t *tuner) saturated(m *measure) bool {
	return t.most > 0 && m.pieces > 0 && m.flying() >= 0.75*float64(t.requests)
}

// demand is how many pieces a second the step takes; 0 while that is not known.
func (t *tuner) demand(m *measure) float64 {
	if t.step <= 0 {
		return 0
	}
	return m.perBatch / t.step
}
