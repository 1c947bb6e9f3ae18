package tune

import "math"

// tuneRequests adjusts t.requests and returns the reason.
func (t *Tuner) tuneRequests(m *Measure) string {
	if t.probe != nil {
		return t.judge(m)
	}
	if busy := m.busyShare(); busy > throttleShare && m.Throttled > 1 && t.relief == 0 && t.requests > leastFlying {
		t.try(m, max(t.requests*2/3, leastFlying), true)
		return whyThrottled
	}
	switch {
	case t.starved(m) && t.saturated(m):
		return t.climb(m)
	case t.starved(m) && t.requests < t.best: // not all are in flight, but more will be needed
		t.requests = t.best
		return whyBefore
	case t.starved(m):
		return ""
	}
	return t.follow(m)
}

// climb raises the requests for a consumer that waits while all of them are in flight.
func (t *Tuner) climb(m *Measure) string {
	if t.requests < t.best {
		t.requests = t.best
		return whyBefore
	}
	if changed(t.heldRate, m.rate(), 1.3) || changed(t.heldFetch, t.seen.fetch, 1.5) {
		t.hold, t.backoff, t.heldRate, t.heldFetch = 0, holdFirst, 0, 0
	}
	if t.hold > 0 || t.requests >= t.Most {
		return ""
	}
	more := t.requests * 3 / 2
	if t.backoff == holdFirst { // every raise helped so far
		more = 2 * t.requests
	}
	t.try(m, min(max(more, t.requests+2), t.Most), false)
	return whyFaster
}

// changed reports whether a value changed by more than a factor.
func changed(was, is, factor float64) bool {
	return was > 0 && is > 0 && (is > was*factor || is*factor < was)
}

func (t *Tuner) try(m *Measure, requests int, lower bool) {
	t.probe = &probe{from: t.requests, rate: m.rate(), fetch: t.seen.fetch, busy: m.busyShare(), refusals: m.refusals(),
		settle: true, lower: lower}
	t.requests = requests
}

// judge ends a probe and returns the reason of a change back. The first window mixes both numbers
// of requests and is not judged.
func (t *Tuner) judge(m *Measure) string {
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
	need := 1 + 0.2*(float64(t.requests)/float64(p.from)-1) // a fifth of the gain from a store without limits
	switch {
	case m.busyShare() > max(throttleShare, 1.5*p.busy):
	case m.rate() >= need*p.rate:
		t.best, t.backoff = t.requests, holdFirst
		return ""
	case !t.starved(m):
		t.best = t.requests // the wait has ended; follow lowers what is too many
		return ""
	}
	t.requests, t.best = p.from, p.from
	t.hold, t.backoff = t.backoff, min(2*t.backoff, holdMost)
	t.heldRate, t.heldFetch = p.rate, p.fetch
	return whyNoGain
}

// follow adapts the requests to the step of a consumer that does not wait.
func (t *Tuner) follow(m *Measure) string {
	if t.seen.step <= 0 || t.seen.fetch <= 0 || m.PerBatch <= 0 {
		return ""
	}
	most := t.Most
	if t.hold > 0 {
		most = max(t.best, t.requests)
	}
	// A burst has half the time that the budget can run ahead. It does not justify more requests than
	// at the start.
	ahead := min(max(t.Room*t.seen.step/2, 2*t.seen.fetch), 10)
	flying := func(rate float64) float64 {
		need := 1.5*t.seen.fetch*rate + leastFlying
		return max(need, min(need+1.5*t.seen.fetch*m.Burst/ahead, float64(t.Start)/margin))
	}
	need := flying(t.demand(m))
	enough := int(min(math.Ceil(need*margin), float64(most)))
	switch {
	case need > float64(t.requests) && enough > t.requests:
		// A step limited by decoding, or by its own map function, takes no more than now.
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
