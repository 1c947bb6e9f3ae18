package reader

import "math"

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
