package reader

import (
	"math"
	"time"
)

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

// tuneRequests changes t.requests and says why.
func (t *tuner) tuneRequests(m *measure) string {
	if t.probe != nil {
		return t.judge(m)
	}
	if busy := m.busyShare(); busy > throttleShare && m.throttled > 1 && t.relief == 0 && t.requests > leastFlying {
		t.try(m, max(t.requests*2/3, leastFlying), true)
		return whyThrottled
	}
	switch {
	case t.starved(m) && t.saturated(m):
		return t.climb(m)
	case t.starved(m) && t.requests < t.best: // not even all are in flight, but more are about to be needed
		t.requests = t.best
		return whyBefore
	case t.starved(m):
		return ""
	}
	return t.follow(m)
}

// climb is for a consumer that waits while all requests are in flight.
func (t *tuner) climb(m *measure) string {
	if t.requests < t.best {
		t.requests = t.best
		return whyBefore
	}
	if changed(t.heldRate, m.rate(), 1.3) || changed(t.heldFetch, t.fetch, 1.5) {
		t.hold, t.backoff, t.heldRate, t.heldFetch = 0, holdFirst, 0, 0
	}
	if t.hold > 0 || t.requests >= t.most {
		return ""
	}
	more := t.requests * 3 / 2
	if t.backoff == holdFirst { // nothing was in vain so far
		more = 2 * t.requests
	}
	t.try(m, min(max(more, t.requests+2), t.most), false)
	return whyFaster
}

// changed says whether a value is another than it was, by a factor.
func changed(was, is, factor float64) bool {
	return was > 0 && is > 0 && (is > was*factor || is*factor < was)
}

func (t *tuner) try(m *measure, requests int, lower bool) {
	t.probe = &probe{from: t.requests, rate: m.rate(), fetch: t.fetch, busy: m.busyShare(), refusals: m.refusals(), settle: true, lower: lower}
	t.requests = requests
}

// judge says what a probe has brought. The window in which it began is of both numbers, and says nothing.
func (t *tuner) judge(m *measure) string {
	p := t.probe
	if p.settle {
		p.settle = false
		return ""
	}
	t.probe = nil
	if p.lower {
		if m.refusals() <= 0.8*p.refusals || m.rate() >= 0.97*p.rate {
			t.best, t.hold = t.requests, max(t.backoff, 2*holdFirst)
			return ""
		}
		t.requests, t.relief = p.from, holdMost
		return whyNoRelief
	}
	need := 1 + 0.2*(float64(t.requests)/float64(p.from)-1) // a fifth of what it would bring if the store had no bounds
	switch {
	case m.busyShare() > max(throttleShare, 1.5*p.busy):
	case m.rate() >= need*p.rate:
		t.best, t.backoff = t.requests, holdFirst
		return ""
	case !t.starved(m):
		t.best = t.requests // the wait has ended; what is too many comes out later
		return ""
	}
	t.requests, t.best = p.from, p.from
	t.hold, t.backoff = t.backoff, min(2*t.backoff, holdMost)
	t.heldRate, t.heldFetch = p.rate, p.fetch
	return whyNoGain
}

// follow is for a consumer that does not wait.
func (t *tuner) follow(m *measure) string {
	if t.step <= 0 || t.fetch <= 0 || m.perBatch <= 0 {
		return ""
	}
	most := t.most
	if t.hold > 0 {
		most = max(t.best, t.requests)
	}
	// The burst has half the time that the budget can run ahead, and is no reason for more than there are at first.
	ahead := min(max(t.room*t.step/2, 2*t.fetch), 10)
	flying := func(rate float64) float64 {
		need := 1.5*t.fetch*rate + leastFlying
		return max(need, min(need+1.5*t.fetch*m.burst/ahead, float64(t.start)/margin))
	}
	need := flying(t.demand(m))
	enough := int(min(math.Ceil(need*margin), float64(most)))
	switch {
	case need > float64(t.requests) && enough > t.requests:
		// A step that is kept by decoding, or by its own map, takes no more than it does.
		need = flying(min(t.demand(m), 1.25*m.rate()))
		if enough = int(min(math.Ceil(need*margin), float64(enough))); enough <= t.requests {
			return ""
		}
		t.requests = enough
		return whyStep
	case t.calm >= calmWindows && need < float64(t.requests)/2 && enough < t.requests:
		t.requests = max(enough, t.requests/2)
		return whySlack
	}
	return ""
}

// tuneDepth changes t.depth and says why.
func (t *tuner) tuneDepth(m *measure) string {
	if m.held && t.depth < t.deepest {
		t.depth = min(2*t.depth, t.deepest)
		t.floor, t.floorAt = t.depth, m.at
		return whyHeld
	}
	if m.at-t.floorAt > floorFor {
		t.floor, t.floorAt = t.floor/2, m.at
	}
	if t.step <= 0 && m.steps == 0 {
		return ""
	}
	want := t.lead(m)
	enough := max(int(min(math.Ceil(want*margin), float64(t.deepest))), t.floor)
	switch {
	case want > float64(t.depth) && enough > t.depth:
		t.depth = enough
	case t.calm >= calmWindows && want < float64(t.depth)/2 && enough < t.depth:
		t.depth = max(enough, t.depth/2)
	default:
		return ""
	}
	return whyLead
}

// lead is how many batches the stream should be ahead.
func (t *tuner) lead(m *measure) float64 {
	seconds := leadLeast.Seconds()
	if power := t.power(); power > 0 {
		spare := power - t.demand(m)
		if spare <= 0.05*power {
			return float64(t.deepest)
		}
		seconds = max(seconds, 2*t.fetch+m.burst/spare)
	}
	return seconds/max(t.step, 1e-9) + leastDepth
}

// power is how many pieces a second could come; 0 while nothing has.
func (t *tuner) power() float64 {
	if t.fetch <= 0 {
		return 0
	}
	power := float64(t.workers) / t.fetch
	if t.most > 0 {
		power = float64(t.requests) / t.fetch
	}
	if t.capacity > 0 {
		power = min(power, t.capacity)
	}
	if t.decode > 0 {
		power = min(power, float64(t.workers)/t.decode)
	}
	return power
}
