package order

// dealing is the tick of a lane that each sample of a slot is dealt to: the u-th sample of slot q,
// of n samples, to tick clamp(q+⌊u·W/n⌋, t0, last). Products stay below 2^64, as W, n and u are
// below 2^32.
type dealing struct {
	delay uint64 // W
	first uint64 // t0, the first tick
	last  uint64 // m-1, the last tick and the last slot
}

func newDealing(p *Params, slots int) dealing {
	m := uint64(slots)
	return dealing{delay: uint64(p.Delay), first: min(uint64(p.Head), uint64(p.Delay), m) - 1, last: m - 1}
}

// through is how many of the n samples of slot q come in ticks up to t, for q ≤ t.
func (d *dealing) through(q, n, t uint64) uint64 {
	ticks := t - q + 1
	if t >= d.last || ticks >= d.delay {
		return n
	}
	return (ticks*n + d.delay - 1) / d.delay
}

// tickOf is the tick of sample u of slot q. u is below n.
func (d *dealing) tickOf(q, n, u uint64) uint64 {
	return min(max(q+u*d.delay/n, d.first), d.last)
}

// find returns the tick that gives index k of a lane, and how many samples the lane gives before
// that tick. No random number is needed: only the sizes of the slots around k. sizes is scratch,
// returned for the next call.
func (d *dealing) find(o *epochOrder, a *arc, k uint64, sizes []uint32) (tick, start uint64, scratch []uint32) {
	// Through tick t come at most slots 0..t whole, and at least slots 0..t-W+1: so the tick lies
	// within W of the slot that k would be in.
	q := uint64(o.slotOf(a, k))
	low := q - min(q, d.delay-1)
	high := min(q+d.delay-1, d.last)
	sizes = sizes[:0]
	for i := low; i <= high; i++ {
		sizes = append(sizes, o.size(a, a.first+int(i)))
	}
	before := o.before(a, int(low))
	emitted := func(t uint64) uint64 {
		if t >= d.last {
			return a.length
		}
		sum := before
		for i := low; i <= t; i++ {
			sum += d.through(i, uint64(sizes[i-low]), t)
		}
		return sum
	}
	from, to := max(q, d.first), max(high, d.first)
	for from < to {
		mid := (from + to) / 2
		if emitted(mid) > k {
			to = mid
		} else {
			from = mid + 1
		}
	}
	if from > d.first {
		// Tick from-1 may be q-1, where slots below low are whole too: low = q-W+1 is the first that may
		// not be.
		start = emitted(from - 1)
	}
	return from, start, sizes
}
