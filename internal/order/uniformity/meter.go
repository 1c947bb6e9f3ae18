package uniformity

import (
	"math/bits"

	"github.com/shardtool/shardtool/reader/order"
)

// Meter measures global batches that follow one another in an epoch. It is not safe for concurrent
// use.
type Meter struct {
	labels  *Labels
	global  inflation
	pooled  inflation // of Accumulated batches together
	last    int       // label of the last sample, -1 before the first
	same    uint64
	pairs   uint64
	samples uint64
	worlds  []world
}

// maxRanks bounds the cost of a world size: a bit a label for each of these ranks, and the time to
// look at their samples.
const maxRanks = 256

// NewMeter returns a Meter of the batches over all ranks, and of their parts for each of these
// world sizes.
func NewMeter(labels *Labels, worlds ...int) *Meter {
	m := &Meter{labels: labels, global: newInflation(labels, 1), pooled: newInflation(labels, Accumulated), last: -1}
	for _, size := range worlds {
		ranks := make([]int, min(size, maxRanks))
		for i := range ranks {
			ranks[i] = i * size / len(ranks)
		}
		m.worlds = append(m.worlds, newWorld(labels, size, ranks))
	}
	return m
}

// Batch adds a global batch over all ranks. Its first own samples are of the epoch, and only they
// are measured. The rest is padding or belongs to the next epoch. Ranks share the whole batch.
func (m *Meter) Batch(refs []order.Ref, own int) {
	for i := range refs[:own] {
		l := m.labels.Of(refs[i].Number)
		if m.last >= 0 {
			m.pairs++
			if m.last == l {
				m.same++
			}
		}
		m.last = l
	}
	m.samples += uint64(own)
	m.global.batch(m.labels, refs[:own])
	m.pooled.batch(m.labels, refs[:own])
	for i := range m.worlds {
		w := &m.worlds[i]
		for j := range w.ranks {
			r := &w.ranks[j]
			from, to := int(order.Share(uint64(len(refs)), r.rank, w.size)), int(order.Share(uint64(len(refs)),
				r.rank+1, w.size))
			if to = min(to, own); from < to {
				w.part(m.labels, r, refs[from:to])
			}
		}
		w.local.next()
	}
}

// Figures returns what was measured so far.
func (m *Meter) Figures() Figures {
	f := Figures{
		Samples: m.samples, VIF: m.global.mean(), Pooled: m.pooled.mean(), First: m.global.first,
		Adjacent: ratio(m.same, m.pairs),
	}
	for _, c := range m.labels.count {
		p := ratio(c, m.labels.total)
		f.Expected += p * p
	}
	for i := range m.worlds {
		f.Worlds = append(f.Worlds, m.worlds[i].figures())
	}
	return f
}

func ratio(a, b uint64) float64 { return float64(a) / float64(max(b, 1)) }

// world is the ranks of one world size.
type world struct {
	size        int
	ranks       []rank
	local       inflation
	same, pairs uint64
}

// rank counts what one rank saw.
type rank struct {
	rank   int
	labels []uint64 // a bit a label
	last   int64    // block of its last sample, -1 before the first
}

func newWorld(l *Labels, size int, ranks []int) world {
	w := world{size: size, local: newInflation(l, 1)}
	for _, r := range ranks {
		w.ranks = append(w.ranks, rank{rank: r, labels: make([]uint64, (l.Len()+63)/64), last: -1})
	}
	return w
}

// part adds a rank's part of the batch at hand.
func (w *world) part(l *Labels, r *rank, refs []order.Ref) {
	w.local.part(l, refs)
	for i := range refs {
		x := l.Of(refs[i].Number)
		r.labels[x/64] |= 1 << (x % 64)
		if r.last >= 0 {
			w.pairs++
			if r.last == int64(refs[i].Block) {
				w.same++
			}
		}
		r.last = int64(refs[i].Block)
	}
}

func (w *world) figures() World {
	f := World{Size: w.size, Ranks: len(w.ranks), VIF: w.local.mean(), SameBlock: ratio(w.same, w.pairs)}
	for i := range w.ranks {
		seen := 0
		for _, word := range w.ranks[i].labels {
			seen += bits.OnesCount64(word)
		}
		if i == 0 || seen < f.LabelsLeast {
			f.LabelsLeast = seen
		}
		f.LabelsMean += float64(seen) / float64(len(w.ranks))
	}
	return f
}
