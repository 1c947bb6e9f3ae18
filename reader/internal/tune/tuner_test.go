package tune

import (
	"math/rand/v2"
	"testing"
	"time"
)

// model simulates a store and a consumer: what they do in a window, for a number of requests in
// flight and a depth. It has its own clock.
type model struct {
	latency  float64 // seconds a piece, with little load
	capacity float64 // pieces a second of the whole store
	quota    float64 // requests in flight from which on answers ask for less load; 0: none do
	busy     float64 // share of the answers that do so whatever is in flight
	step     float64 // seconds of a step
	perBatch float64 // pieces
	noise    float64 // of what is measured
	random   *rand.Rand
	at       time.Duration
	waited   float64 // seconds in the last window, as a share
}

func newModel(latency, capacity, step float64) *model {
	return &model{latency: latency, capacity: capacity, step: step, perBatch: 4, noise: 0.05, random: rand.New(rand.NewPCG(1, 2))}
}

// window is half a second of it.
func (m *model) window(t *Tuner) Measure {
	const span = 0.5
	flying := float64(t.requests)
	rate, throttled := min(flying/m.latency, m.capacity), m.busy
	if m.quota > 0 && flying > m.quota {
		rate, throttled = min(rate, 0.8*m.quota/m.latency), 1-m.quota/flying
	}
	rate *= 1 - m.busy
	demand := m.perBatch / m.step
	came := min(rate, demand)
	// The depth has to cover what two pieces take.
	if reach := float64(t.depth) * m.perBatch / (2 * m.latency); reach < came {
		came = reach
	}
	m.waited = max(0, 1-came/demand)
	if came < rate { // the consumer, or the depth, is what bounds it
		flying = came * m.latency
		if m.quota == 0 || flying <= m.quota {
			throttled = m.busy
		}
	}
	m.at += time.Duration(span * float64(time.Second))
	seconds := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	pieces := came * span * (1 + m.noise*(2*m.random.Float64()-1))
	return Measure{
		At: m.at, Span: seconds(span), Steps: max(int(came*span/m.perBatch), 1), Busy: seconds(float64(max(int(came*span/m.perBatch), 1)) * m.step),
		Stalled: seconds(m.waited * span), Held: m.waited > starvedShare && came < rate, Pieces: int(pieces), Read: seconds(flying * span),
		Throttled: int(throttled / (1 - throttled) * pieces), PerBatch: m.perBatch, Burst: 40,
	}
}

// run continues for some windows and counts decisions, those of the second half separately.
func (m *model) run(t *Tuner, windows int) (all, late int) {
	for i := range windows {
		n := len(t.Decide(m.window(t)))
		all += n
		if i >= windows/2 {
			late += n
		}
	}
	return all, late
}

func limits() Limits {
	return Limits{Start: 64, Most: 256, Deepest: 1000, Workers: 4, Room: 60}
}

// within checks a Settings that was come to.
func within(t *testing.T, what string, got, low, high int) {
	t.Helper()
	if got < low || got > high {
		t.Errorf("%s: %d, want %d to %d", what, got, low, high)
	}
}

// TestTunerComesToRest checks for many stores and steps that the requests in flight become what the
// store or the step can use, that the consumer waits no longer than necessary, and that the
// settings then hardly change.
func TestTunerComesToRest(t *testing.T) {
	for name, c := range map[string]struct {
		model
		low, high, deepest int
		waits              float64 // the most, in the end
	}{
		"near, its cap is reached":               {*newModel(0.030, 300, 1e-4), 43, 64, 1000, 1},
		"far, the cap needs more requests":       {*newModel(0.200, 1000, 1e-4), 160, 256, 1000, 1},
		"far, without a cap":                     {*newModel(0.200, 1e6, 1e-4), 256, 256, 1000, 1},
		"far, and a step that needs a part":      {*newModel(0.200, 1e6, 0.02), 40, 110, 300, 0},
		"near, and a slow step":                  {*newModel(0.030, 1e4, 0.5), 2, 8, 10, 0},
		"far, and a slow step":                   {*newModel(0.200, 1e4, 1), 2, 14, 10, 0},
		"a step that needs 90 % of the cap":      {*newModel(0.030, 300, 4/270.), 8, 64, 1000, 0.05},
		"a step that is just beyond the cap":     {*newModel(0.100, 300, 4/310.), 30, 96, 1000, 0.1},
		"latency and step change with a noise":   {model{latency: 0.1, capacity: 500, step: 0.02, perBatch: 4, noise: 0.3, random: rand.New(rand.NewPCG(3, 4))}, 20, 96, 300, 0},
		"one that says busy whatever is asked":   {model{latency: 0.05, capacity: 2000, busy: 0.2, step: 1e-4, perBatch: 4, noise: 0.05, random: rand.New(rand.NewPCG(5, 6))}, 60, 256, 1000, 1},
		"one with a quota of requests in flight": {model{latency: 0.05, capacity: 2000, quota: 20, step: 1e-4, perBatch: 4, noise: 0.05, random: rand.New(rand.NewPCG(7, 8))}, 8, 30, 1000, 1},
	} {
		tuner := New(limits())
		m := c.model
		all, late := m.run(tuner, 4000)
		within(t, name+": requests", tuner.requests, c.low, c.high)
		within(t, name+": depth", tuner.depth, leastDepth, c.deepest)
		// More is tried with pauses that double, up to one in 256 windows.
		if all > 100 || late > 6*2000/holdMost {
			t.Errorf("%s: %d decisions, %d of them in the second half", name, all, late)
		}
		if m.waited > c.waits {
			t.Errorf("%s: %.0f %% of the time is waited", name, 100*m.waited)
		}
	}
}

// TestTunerFollowsTheStore changes the store: fast, far away, with a quota, fast again. The
// consumer takes all it gets.
func TestTunerFollowsTheStore(t *testing.T) {
	tuner, m := New(limits()), newModel(0.030, 3000, 1e-4)
	m.run(tuner, 100)
	within(t, "fast", tuner.requests, 64, 160)
	m.latency = 0.3
	m.run(tuner, 60)
	within(t, "far away", tuner.requests, 220, 256)
	m.quota = 40
	m.run(tuner, 60)
	within(t, "with a quota", tuner.requests, 10, 60)
	m.quota = 0
	m.run(tuner, 120)
	within(t, "without it again", tuner.requests, 120, 256)
	m.step = 2
	m.run(tuner, 60)
	within(t, "and hardly used", tuner.requests, leastFlying, 20)
}

// TestTunerFollowsTheStep checks that a slow step needs little, and that the settings recover
// within a few windows when it becomes fast.
func TestTunerFollowsTheStep(t *testing.T) {
	tuner, m := New(limits()), newModel(0.100, 1000, 1)
	m.run(tuner, 50)
	within(t, "slow: requests", tuner.requests, leastFlying, 12)
	within(t, "slow: depth", tuner.depth, leastDepth, 8)
	m.step = 4 / 400. // of 1000
	m.run(tuner, 6)
	within(t, "fast: requests", tuner.requests, 40, 256)
	within(t, "fast: depth", tuner.depth, 100, 1000)
	if m.waited > 0 {
		t.Errorf("%.0f %% of the time is waited", 100*m.waited)
	}
	m.step = 30 // one long step, then steps as before
	requests, depth := tuner.requests, tuner.depth
	tuner.Decide(m.window(tuner))
	m.step = 4 / 400.
	m.run(tuner, 2)
	within(t, "after a pause: requests", tuner.requests, requests*7/10, 256)
	within(t, "after a pause: depth", tuner.depth, depth*6/10, 1000)
	m.step = 1
	m.run(tuner, 100)
	within(t, "slow again: requests", tuner.requests, leastFlying, 12)
	within(t, "slow again: depth", tuner.depth, leastDepth, 8)
}

// TestTunerWaitDoublesTheDepth checks that an unexplained wait doubles the depth for a while.
func TestTunerWaitDoublesTheDepth(t *testing.T) {
	tuner, m := New(limits()), newModel(0.030, 1000, 1)
	m.run(tuner, 50)
	before := tuner.depth
	w := m.window(tuner)
	w.Held, w.Stalled = true, 50*time.Millisecond
	all := tuner.Decide(w)
	if len(all) == 0 || all[len(all)-1] != (Decision{Depth, before, 2 * before, whyHeld}) {
		t.Fatalf("%+v, of a depth of %d", all, before)
	}
	m.run(tuner, int(2*floorFor.Seconds())-2)
	within(t, "within a minute", tuner.depth, 2*before, 2*before)
	m.run(tuner, int(20*floorFor.Seconds()))
	within(t, "in the long run", tuner.depth, before-1, before+1)
}

// TestTunerLeavesWhatWasSet: settings that the user has made stay, whatever happens.
func TestTunerLeavesWhatWasSet(t *testing.T) {
	for _, m := range []*model{newModel(0.3, 1e6, 1e-4), newModel(0.001, 1e6, 2), {latency: 0.1, capacity: 1000, quota: 5, step: 0.01, perBatch: 4, random: rand.New(rand.NewPCG(1, 1))}} {
		l := limits()
		l.Start, l.Most, l.FixedRequests = 10, 10, true
		tuner := New(l)
		m.run(tuner, 300)
		within(t, "requests", tuner.requests, 10, 10)
		l = limits()
		l.Deepest, l.FixedDepth = 30, true
		tuner = New(l)
		m.run(tuner, 300)
		within(t, "depth", tuner.depth, 30, 30)
		l = limits()
		l.Start, l.Most = 0, 0 // a local store
		tuner = New(l)
		m.run(tuner, 10)
		within(t, "requests to a local store", tuner.requests, 0, 0)
	}
}

// TestTunerStaysInBounds: whatever is measured, also what cannot be.
func TestTunerStaysInBounds(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 9))
	any := func() float64 {
		return []float64{0, 0, 1e-12, 1e-3, 0.1, 1, 10, 1e9}[r.IntN(8)] * r.Float64()
	}
	for range 300 {
		l := Limits{Start: 1 + r.IntN(64), Deepest: 2 + r.IntN(1000), Workers: 1 + r.IntN(8), Room: any()}
		l.Most = l.Start + r.IntN(200)
		tuner := New(l)
		for i := range 200 {
			m := Measure{
				At: time.Duration(i) * time.Second, Span: time.Duration(any() * 1e9), Steps: int(any()), Busy: time.Duration(any() * 1e9),
				Stalled: time.Duration(any() * 1e9), Held: r.IntN(5) == 0, Pieces: int(any()), Read: time.Duration(any() * 1e9),
				Decode: time.Duration(any() * 1e9), Throttled: int(any()), PerBatch: any(), Burst: any(),
			}
			tuner.Decide(m)
			if tuner.requests < 1 || tuner.requests > l.Most || tuner.depth < min(leastDepth, l.Deepest) || tuner.depth > l.Deepest {
				t.Fatalf("%+v: %+v of %+v", m, tuner, l)
			}
		}
	}
}
