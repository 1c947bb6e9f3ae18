package reader

import "math"

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
