package order

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// The reference: the order written straight from the text of SPEC.md, one whole epoch in memory,
// nothing shared with the code it checks (Philox included, in the form of the paper). Slow and
// plain on purpose.

type reference struct {
	samples []uint32
	shards  []int
	p       Params
	total   uint64
	turn    []uint64
	epochs  map[uint64][][]uint64 // lanes of sample numbers
}

func newReference(t Table, p Params) *reference {
	r := &reference{samples: t.Samples, shards: t.ShardFirst, p: p, epochs: map[uint64][][]uint64{}}
	for _, n := range t.Samples {
		r.total += uint64(n)
	}
	v := uint64(p.Lanes)
	r.turn = make([]uint64, v)
	for i := range v {
		l, w, x, rest := uint64(0), v, i, v
		for q := uint64(2); rest > 1; q++ {
			for rest%q == 0 {
				rest /= q
				w /= q
				l += (x % q) * w
				x /= q
			}
		}
		r.turn[l] = i
	}
	return r
}

type referenceWords struct {
	key, dom, lane, epoch, obj uint64
	next                       uint64
}

func (w *referenceWords) word() uint64 {
	const mask = 1<<32 - 1
	c := [4]uint64{w.next / 4, w.obj, w.epoch, w.dom<<24 | w.lane}
	k := [2]uint64{w.key & mask, w.key >> 32}
	for i := range 10 {
		if i > 0 {
			k[0] = (k[0] + 0x9E3779B9) & mask
			k[1] = (k[1] + 0xBB67AE85) & mask
		}
		p, q := 0xD2511F53*c[0], 0xCD9E8D57*c[2]
		c = [4]uint64{q>>32 ^ c[1] ^ k[0], q & mask, p>>32 ^ c[3] ^ k[1], p & mask}
	}
	w.next++
	return c[(w.next-1)%4]
}

func referenceShuffle[T any](a []T, key, dom, lane, epoch, obj uint64) {
	w := &referenceWords{key: key, dom: dom, lane: lane, epoch: epoch, obj: obj}
	for i := len(a) - 1; i >= 1; i-- {
		n := uint64(i + 1)
		m := w.word() * n
		for m%(1<<32) < (1<<32-n)%n {
			m = w.word() * n
		}
		j := m >> 32
		a[i], a[j] = a[j], a[i]
	}
}

// lanes are the lanes of an epoch, as sample numbers.
func (r *reference) lanes(epoch uint64) [][]uint64 {
	if l, ok := r.epochs[epoch]; ok {
		return l
	}
	var runs [][]uint64
	number := uint64(0)
	for i, first := range r.shards {
		end := len(r.samples)
		if i+1 < len(r.shards) {
			end = r.shards[i+1]
		}
		var run []uint64
		for b := first; b < end; b++ {
			for range r.samples[b] {
				run = append(run, number)
				number++
			}
			if b+1 == end || r.p.RunBlocks > 0 && (b+1-first)%int(r.p.RunBlocks) == 0 {
				if len(run) > 0 {
					runs = append(runs, run)
				}
				run = nil
			}
		}
	}
	keep := r.p.Affinity == AffinityRun
	if r.p.Shuffle {
		from := epoch
		if keep {
			from = 0
		}
		referenceShuffle(runs, r.p.Seed, 1, 0, from, 0)
	}
	v := uint64(r.p.Lanes)
	lanes := make([][]uint64, v)
	for l := range v {
		length := (r.total + v - 1 - r.turn[l]) / v
		var slots [][]uint64
		for length > 0 {
			n := min(length, uint64(len(runs[0])))
			slots = append(slots, slices.Clone(runs[0][:n]))
			if runs[0] = runs[0][n:]; len(runs[0]) == 0 {
				runs = runs[1:]
			}
			length -= n
		}
		if keep && epoch > 0 && r.p.Shuffle {
			referenceShuffle(slots, r.p.Seed, 1, l, epoch, 1)
		}
		lanes[l] = r.ticks(slots, epoch, l)
	}
	r.epochs[epoch] = lanes
	return lanes
}

func (r *reference) ticks(slots [][]uint64, epoch, l uint64) []uint64 {
	if len(slots) == 0 {
		return nil
	}
	w, m := int(r.p.Delay), len(slots)
	ticks := make([][]uint64, m)
	first := min(int(r.p.Head), w, m) - 1
	for q, slot := range slots {
		if r.p.Shuffle {
			referenceShuffle(slot, r.p.Seed, 2, l, epoch, uint64(q))
		}
		for u, x := range slot {
			t := q + u*w/len(slot)
			t = min(max(t, first), m-1)
			ticks[t] = append(ticks[t], x)
		}
	}
	var lane []uint64
	for t, tick := range ticks {
		if r.p.Shuffle {
			referenceShuffle(tick, r.p.Seed, 3, l, epoch, uint64(t))
		}
		lane = append(lane, tick...)
	}
	return lane
}

// positions lists n positions of an epoch from p on, lane by lane.
func (r *reference) positions(epoch, p, n uint64) []uint64 {
	v := uint64(r.p.Lanes)
	count := func(x, l uint64) uint64 {
		if r.turn[l] < x%v {
			return x/v + 1
		}
		return x / v
	}
	var list []uint64
	lanes := r.lanes(epoch)
	for l := range v {
		list = append(list, lanes[l][count(p, l):count(p+n, l)]...)
	}
	return list
}

type referenceRef struct {
	number  uint64
	padding bool
}

// batch is the whole global batch at a place, and the place after it. epoch is that of its first
// sample.
func (r *reference) batch(epoch, p, g uint64) (list []referenceRef, nextEpoch, next uint64) {
	if r.p.Tail == TailDrop && r.total-p < g {
		epoch, p = epoch+1, 0
	}
	for uint64(len(list)) < g {
		n := min(g-uint64(len(list)), r.total-p)
		for _, x := range r.positions(epoch, p, n) {
			list = append(list, referenceRef{x, false})
		}
		if p += n; p < r.total {
			break
		}
		epoch, p = epoch+1, 0
		if r.p.Tail == TailPad {
			for k := uint64(len(list)); k < g; k++ {
				list = append(list, referenceRef{list[k%n].number, true})
			}
		}
		if r.p.Tail != TailWrap {
			break
		}
	}
	return list, epoch, p
}

// randomTable makes a small table: some blocks empty, some of one sample, some shards without
// blocks.
func randomTable(rnd *rand.Rand) Table {
	var t Table
	empty, largest := rnd.IntN(4), 1+rnd.IntN(30)
	for range rnd.IntN(8) {
		t.ShardFirst = append(t.ShardFirst, len(t.Samples))
		for range rnd.IntN(20) {
			n := rnd.IntN(largest + 1)
			if rnd.IntN(4) < empty {
				n = 0
			}
			t.Samples = append(t.Samples, uint32(n))
			t.Decoded += uint64(n) * 100
		}
	}
	return t
}

func randomParams(rnd *rand.Rand) Params {
	p := Params{
		Seed: rnd.Uint64(), Shuffle: rnd.IntN(6) > 0, Lanes: 1 + rnd.Uint32N(14), RunBlocks: rnd.Uint32N(5), Delay: 1,
		Affinity: []Affinity{AffinityEpoch, AffinityRun}[rnd.IntN(2)],
		Tail:     []Tail{TailShort, TailDrop, TailWrap, TailPad}[rnd.IntN(4)],
	}
	if rnd.IntN(5) == 0 {
		p.Lanes = 96
	}
	p.Head = 1
	if p.Shuffle {
		p.Delay = 1 + rnd.Uint32N([]uint32{3, 12, 100, 5000}[rnd.IntN(4)])
		p.Head = 1 + rnd.Uint32N(min(p.Delay, 8))
	}
	return p
}

func mustPlan(t testing.TB, table Table, p Params) *Plan {
	t.Helper()
	plan, err := New(table, "test", p)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}
