package order

import "sort"

// epochOrder is the order of one epoch as far as it is held: the permuted runs, cut into lanes. Its
// slices are kept from epoch to epoch.
type epochOrder struct {
	plan   *Plan
	epoch  uint32
	blocks *blocks
	// slots are the runs of all lanes, lane after lane. A run that crosses the end of an arc is there
	// twice, so there are fewer than runs + lanes.
	slots []uint32
	marks []uint64 // samples before slots[64·i]
	arcs  []arc
}

// arc is a lane's part of the line of permuted runs.
type arc struct {
	start  uint64 // samples before it on the line
	length uint64 // its samples
	first  int    // its slot 0 in slots
	count  int    // m, its slots
	// The pieces cut by the ends of the arc, as places in slots: skip samples are missing from the
	// front of the one, drop from the end of the other. Both may be the same slot.
	head, tail int
	skip, drop uint32
}

// load computes the order of an epoch: O(runs), one random access a run and pass.
func (o *epochOrder) load(p *Plan, epoch uint32) {
	o.plan, o.epoch = p, epoch
	o.blocks = p.blocksOf(epoch)
	if need := o.blocks.runs.count + int(min(uint64(p.params.Lanes), p.total)); cap(o.slots) < need {
		o.slots = make([]uint32, 0, need)
		o.marks = make([]uint64, 0, need>>markShift+1)
	}
	if o.arcs == nil {
		o.arcs = make([]arc, p.params.Lanes)
	}
	o.slots = o.blocks.runs.appendAll(o.slots[:0])
	keep := p.params.Affinity == AffinityRun
	if p.params.Shuffle {
		from := epoch
		if keep {
			from = 0
		}
		shuffle(o.slots, newWords(p.params.Seed, domainRuns, 0, from, objRuns))
	}
	o.cut()
	if keep && epoch > 0 && p.params.Shuffle {
		for l := range o.arcs {
			o.shuffleSlots(l)
		}
		o.mark()
	}
}

// cut lays the arcs on the line of runs, gives every arc its slots and marks them.
func (o *epochOrder) cut() {
	samples, line := o.blocks.runs.samples, o.slots
	o.marks = o.marks[:0]
	var run, slot int // next run of the line, next slot
	var used uint32   // samples of that run already in an arc
	var start uint64  // samples in arcs so far
	for l := range o.arcs {
		a := arc{start: start, length: o.plan.laneLength(l), first: slot, skip: used}
		from, rest := run, a.length
		for rest > 0 {
			if slot&(markEvery-1) == 0 {
				o.marks = append(o.marks, start+a.length-rest)
			}
			n := samples[line[run]] - used
			slot++
			if uint64(n) > rest {
				used += uint32(rest)
				a.drop = n - uint32(rest)
				break
			}
			rest -= uint64(n)
			used = 0
			run++
		}
		a.count = slot - a.first
		a.head, a.tail = from, slot-1 // head carries the source until the slots are spread
		start += a.length
		o.arcs[l] = a
	}
	// From the last arc down, so that no slot is overwritten before it has been moved: an arc moves
	// up, by as many places as runs were split before it.
	o.slots = o.slots[:slot]
	for l := len(o.arcs) - 1; l >= 0; l-- {
		a := &o.arcs[l]
		copy(o.slots[a.first:a.first+a.count], o.slots[a.head:])
		a.head = a.first
	}
}

// shuffleSlots permutes the slots of a lane (AffinityRun after epoch 0) and finds its cut pieces
// again. A run is in a lane once, so its number identifies it.
func (o *epochOrder) shuffleSlots(l int) {
	a := &o.arcs[l]
	if a.count < 2 {
		return
	}
	slots := o.slots[a.first : a.first+a.count]
	head, tail := slots[0], slots[len(slots)-1]
	shuffle(slots, newWords(o.plan.params.Seed, domainRuns, uint32(l), o.epoch, objLaneSlots))
	for i, run := range slots {
		switch run {
		case head:
			a.head = a.first + i
		case tail:
			a.tail = a.first + i
		}
	}
}

// mark makes the marks anew for slots that have changed places.
func (o *epochOrder) mark() {
	o.marks = o.marks[:0]
	var sum uint64
	for l := range o.arcs {
		a := &o.arcs[l]
		for i := a.first; i < a.first+a.count; i++ {
			if i&(markEvery-1) == 0 {
				o.marks = append(o.marks, sum)
			}
			sum += uint64(o.size(a, i))
		}
	}
}

// size is the samples of the slot at place i of slots, in arc a.
func (o *epochOrder) size(a *arc, i int) uint32 {
	n := o.blocks.runs.samples[o.slots[i]]
	if i == a.head {
		n -= a.skip
	}
	if i == a.tail {
		n -= a.drop
	}
	return n
}

// before is the samples of lane l in its slots below q.
func (o *epochOrder) before(a *arc, q int) uint64 {
	end := a.first + q
	at := end &^ (markEvery - 1)
	if at <= a.first {
		return o.sum(a, a.first, end)
	}
	return o.marks[at>>markShift] - a.start + o.sum(a, at, end)
}

func (o *epochOrder) sum(a *arc, from, to int) uint64 {
	var sum uint64
	for i := from; i < to; i++ {
		sum += uint64(o.size(a, i))
	}
	return sum
}

// slotOf is the slot of lane index k when its arc is read straight on. k is below the arc's length.
func (o *epochOrder) slotOf(a *arc, k uint64) int {
	at := a.first
	var sum uint64
	// The last mark within the arc that is not past k.
	low := (a.first + markEvery - 1) >> markShift
	marks := o.marks[low:max(low, (a.first+a.count-1)>>markShift+1)]
	if i := sort.Search(len(marks), func(i int) bool { return marks[i]-a.start > k }); i > 0 {
		at, sum = (low+i-1)<<markShift, marks[i-1]-a.start
	}
	for {
		sum += uint64(o.size(a, at))
		if sum > k {
			return at - a.first
		}
		at++
	}
}
