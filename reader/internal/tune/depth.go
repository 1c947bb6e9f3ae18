package tune

import "math"

// tuneDepth adjusts t.depth and returns the reason.
func (t *Tuner) tuneDepth(m *Measure) string {
	if m.Held && t.depth < t.Deepest {
		t.depth = min(2*t.depth, t.Deepest)
		t.floor, t.floorAt = t.depth, m.At
		return whyHeld
	}
	if m.At-t.floorAt > floorFor {
		t.floor, t.floorAt = t.floor/2, m.At
	}
	if t.seen.step <= 0 && m.Steps == 0 {
		return ""
	}
	want := t.lead(m)
	enough := max(int(min(math.Ceil(want*margin), float64(t.Deepest))), t.floor)
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

// lead returns how many batches ahead the stream should be.
func (t *Tuner) lead(m *Measure) float64 {
	seconds := leadLeast.Seconds()
	if power := t.power(); power > 0 {
		spare := power - t.demand(m)
		if spare <= 0.05*power {
			return float64(t.Deepest)
		}
		seconds = max(seconds, 2*t.seen.fetch+m.Burst/spare)
	}
	return seconds/max(t.seen.step, 1e-9) + leastDepth
}

// power returns how many pieces per second the store and the workers can bring; 0 before any
// landed.
func (t *Tuner) power() float64 {
	if t.seen.fetch <= 0 {
		return 0
	}
	power := float64(t.Workers) / t.seen.fetch
	if t.Most > 0 {
		power = float64(t.requests) / t.seen.fetch
	}
	if t.seen.capacity > 0 {
		power = min(power, t.seen.capacity)
	}
	if t.seen.decode > 0 {
		power = min(power, float64(t.Workers)/t.seen.decode)
	}
	return power
}
