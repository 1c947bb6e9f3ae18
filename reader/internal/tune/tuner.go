package tune

import "time"

// Limits bound what the Tuner may choose.
type Limits struct {
	// Start is the first number of requests in flight, Most the largest. Both are 0 for a local store,
	// where the workers bound reading.
	Start, Most int
	Deepest     int // the largest depth
	// A fixed setting was chosen by the user and stays.
	FixedRequests, FixedDepth bool

	Workers int // goroutines that decode
	// Room is how many batches the memory budget can hold besides the shuffle window.
	Room float64
}

// Measure describes what happened in a window of time. A piece is what one request asks for.
type Measure struct {
	At, Span time.Duration // end of the window since the stream was opened, and its length
	// Steps is how many steps the consumer took, each from a batch to its next request for one; Busy
	// is their total time.
	Steps int
	Busy  time.Duration
	// Stalled is how long the consumer waited for pieces that were asked for, without the first batch.
	// Held reports that it waited while the depth kept the planner back.
	Stalled time.Duration
	Held    bool
	// Partial marks a window that is not over. It changes only the depth and is measured again.
	Partial bool
	// Pieces is how many pieces landed; Read and Decode are their total times. Throttled counts the
	// answers that asked for less load.
	Pieces       int
	Read, Decode time.Duration
	Throttled    int
	// PerBatch is how many pieces a batch brings in the long run. Burst is how many pieces beyond what
	// the steps leave time for were needed at once, at the start and at the turn of an epoch.
	PerBatch, Burst float64
}

// Decision is a change and its reason.
type Decision struct {
	Of       string // Requests or Depth
	From, To int
	Why      string
}

// The settings that are tuned.
const (
	Requests = "requests" // pieces that are fetched at once
	Depth    = "depth"    // batches that are planned, and their pieces asked for, before the consumer takes them
)

// The reasons.
const (
	whyFaster    = "the consumer waits, and all requests are in flight"
	whyNoGain    = "more requests did not bring more"
	whyBefore    = "the consumer waits, and more requests helped before"
	whyThrottled = "the store asks for less load"
	whyNoRelief  = "fewer requests did not help: another client loads the store"
	whyStep      = "the step needs more requests in flight"
	whySlack     = "the step needs fewer requests"
	whyHeld      = "the consumer waited, and the stream was not far ahead"
	whyLead      = "at this depth no step should wait"
)

const (
	starvedShare  = 0.02 // share of the time waited from which the consumer counts as waiting
	throttleShare = 0.05 // share of the answers from which the store counts as busy
	calmWindows   = 3    // windows without a wait before a setting is lowered
	// leadLeast is the shortest time that the depth covers: a request that is given up after a second
	// of silence, and its second try.
	leadLeast = 1500 * time.Millisecond
	// margin is the factor by which a setting exceeds the need. A setting is lowered only when it is
	// twice the need: measures vary, and the setting should not vary with them.
	margin      = 1.3
	leastStep   = 0.001 // seconds
	leastDepth  = 2
	leastFlying = 2
	holdFirst   = 8 // windows before a change that did not help is tried again; doubled each time, up to holdMost
	holdMost    = 256
	floorFor    = time.Minute // how long a depth that a wait led to is kept; halved afterwards
)

// Tuner decides. It is a function of the measures so far: it reads no clock and starts nothing.
//
// Requests. While the consumer waits with all requests in flight, the Tuner doubles them, later
// raises them by half, and measures the gain. Without enough gain they return to the old number for
// a time that doubles. Where the store asks for less load, the Tuner lowers them by a third in the
// same way. While the consumer does not wait, they follow its step by Little's law: requests in
// flight = pieces per second × seconds per piece.
//
// Depth. The stream must be far enough ahead to cover the store's latency: two requests in
// sequence, plus the burst of a new window at the rate that the store has beyond the step's need.
// That time divided by the step is the depth. A wait doubles it.
type Tuner struct {
	Limits
	requests, depth int

	seen seen

	best    int // requests that helped while the consumer waited
	calm    int // windows without a wait, in a row
	probe   *probe
	hold    int // windows to come in which requests do not exceed best
	backoff int
	relief  int // windows to come in which throttling changes nothing
	// The rate and latency when raising did not help: a store that changed is tried again.
	heldRate, heldFetch float64

	floor   int // of the depth
	floorAt time.Duration
}

// seen has the figures that the Tuner has learned of the consumer and of the store; 0 is not known.
type seen struct {
	step, fetch, decode float64 // seconds; of the consumer, of a piece in flight, and of its decoding
	capacity            float64 // pieces per second with all requests in flight
}

// probe is a number of requests on trial.
type probe struct {
	from          int
	rate, fetch   float64 // pieces per second and seconds per piece before
	busy          float64 // share of throttled answers before
	refusals      float64 // throttled answers per piece before
	settle, lower bool
}

// New returns a Tuner with its first settings.
func New(l Limits) *Tuner {
	t := &Tuner{Limits: l, requests: l.Start, depth: min(max(int(l.Room/4), firstDepth), l.Deepest), best: l.Start,
		backoff: holdFirst}
	if l.FixedDepth {
		t.depth = l.Deepest
	}
	return t
}

// firstDepth is the least depth until the first step has been measured, when the consumer asks for
// the second batch. The depth starts at a quarter of what the budget has room for, if that is more.
const firstDepth = 8

// Depth returns the depth in use.
func (t *Tuner) Depth() int { return t.depth }

// Decide takes the measure of a window and returns what changes. The Tuner has adopted the changes.
func (t *Tuner) Decide(m Measure) (all []Decision) {
	requests, depth := t.requests, t.depth
	why := ""
	if m.Partial {
		t.glimpse(&m)
	} else if t.observe(&m); t.Most > 0 && !t.FixedRequests {
		why = t.tuneRequests(&m)
	}
	if t.requests != requests {
		all = append(all, Decision{Requests, requests, t.requests, why})
	}
	if !t.FixedDepth {
		why = t.tuneDepth(&m)
	}
	if t.depth != depth {
		all = append(all, Decision{Depth, depth, t.depth, why})
	}
	return all
}

// observe learns from a window.
func (t *Tuner) observe(m *Measure) {
	if m.Steps > 0 {
		// A shorter step counts at once. A longer one may be the first, or include a validation.
		step := m.Busy.Seconds() / float64(m.Steps)
		if blend(&t.seen.step, step); step < t.seen.step {
			t.seen.step = step
		}
	}
	if m.Pieces > 0 && m.Throttled == 0 {
		blend(&t.seen.fetch, (m.Read+m.Decode).Seconds()/float64(m.Pieces))
		blend(&t.seen.decode, m.Decode.Seconds()/float64(m.Pieces))
	}
	if rate := m.rate(); t.saturated(m) {
		blend(&t.seen.capacity, rate)
	} else if t.seen.capacity > 0 {
		t.seen.capacity = max(t.seen.capacity, rate)
	}
	if t.starved(m) {
		t.calm = 0
	} else {
		t.calm++
	}
	t.hold, t.relief = max(t.hold-1, 0), max(t.relief-1, 0)
}

// glimpse learns from a window that is not over: values that were unknown, and that the step became
// shorter. Steps below leastStep are ignored, because a consumer with its own queue fills it first.
func (t *Tuner) glimpse(m *Measure) {
	if step := m.Busy.Seconds() / max(float64(m.Steps), 1); step >= leastStep &&
		(t.seen.step == 0 || step < t.seen.step) {
		t.seen.step = step
	}
	if t.seen.fetch == 0 && m.Pieces > 0 {
		t.seen.fetch, t.seen.decode = (m.Read+m.Decode).Seconds()/float64(m.Pieces),
			m.Decode.Seconds()/float64(m.Pieces)
	}
}

// blend moves a mean half way to v. The first value becomes the mean.
func blend(mean *float64, v float64) {
	if *mean == 0 {
		*mean = v
		return
	}
	*mean += (v - *mean) / 2
}

func (m *Measure) rate() float64 { return float64(m.Pieces) / max(m.Span.Seconds(), 1e-9) }

// flying returns the mean number of pieces in flight, among those that landed.
func (m *Measure) flying() float64 {
	return (m.Read + m.Decode).Seconds() / max(m.Span.Seconds(), 1e-9)
}

func (m *Measure) busyShare() float64 {
	return float64(m.Throttled) / max(float64(m.Pieces+m.Throttled), 1)
}

func (m *Measure) refusals() float64 { return float64(m.Throttled) / max(float64(m.Pieces), 1) }

func (t *Tuner) starved(m *Measure) bool {
	return m.Stalled.Seconds() > starvedShare*m.Span.Seconds()
}

func (t *Tuner) saturated(m *Measure) bool {
	return t.Most > 0 && m.Pieces > 0 && m.flying() >= 0.75*float64(t.requests)
}

// demand returns how many pieces per second the step needs; 0 while that is unknown.
func (t *Tuner) demand(m *Measure) float64 {
	if t.seen.step <= 0 {
		return 0
	}
	return m.PerBatch / t.seen.step
}
