package mix

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/shardtool/shardtool/internal/curate/view"
	"github.com/shardtool/shardtool/reader/order"
)

// world is a mix with the tables that its sources are over.
type world struct {
	Mix
	tables []order.Table
}

func randomTable(rnd *rand.Rand) (t order.Table, samples uint64) {
	for samples == 0 {
		t = order.Table{ShardFirst: []int{0}}
		for b := range 1 + rnd.IntN(6) {
			if b > 0 && rnd.IntN(3) == 0 {
				t.ShardFirst = append(t.ShardFirst, b)
			}
			n := uint32(rnd.IntN(12))
			t.Samples = append(t.Samples, n)
			samples += uint64(n)
		}
	}
	if rnd.IntN(3) > 0 {
		return t, samples
	}
	t.View = randomView(rnd, t.Samples, samples)
	return t, t.View.Samples()
}

// chosenView is a view with what it was made from.
type chosenView struct {
	order.View `json:"-"`
	vectorView
}

// randomView is a view of a table of n samples.
func randomView(rnd *rand.Rand, blocks []uint32, n uint64) chosenView {
	for {
		c := chosenView{}
		chosen := make([]byte, (n+7)/8)
		for x := range n {
			u := rnd.Uint32N(4) * rnd.Uint32N(1<<rnd.Uint32N(32))
			c.Weights = append(c.Weights, u)
			if u > 0 {
				c.Subset = append(c.Subset, x)
				chosen[x/8] |= 1 << (x % 8)
			}
		}
		var err error
		switch rnd.IntN(3) {
		case 0:
			c.Weights = nil
			c.View, err = view.Subset(blocks, chosen)
		case 1:
			c.Subset, c.Draws = nil, 1+rnd.Uint64N(2*n)
			for i := range c.Weights {
				k := rnd.Uint32N(2 + uint32(len(c.Classes)))
				if c.Weights[i] = k; uint64(k) > uint64(len(c.Classes)) {
					c.Classes = append(c.Classes, 1+rnd.Uint64N(4)*rnd.Uint64N(1<<rnd.Uint32N(50)))
				}
			}
			c.View, err = view.Classes(blocks, c.Weights, c.Classes, c.Draws)
		default:
			c.Subset, c.Draws = nil, 1+rnd.Uint64N(2*n)
			c.View, err = view.Weights(blocks, c.Weights, c.Draws)
		}
		if err == nil {
			return c
		}
	}
}

func randomSource(rnd *rand.Rand, name string) (Source, order.Table) {
	t, n := randomTable(rnd)
	delay := 1 + rnd.Uint32N(4)
	id := ""
	if t.View != nil {
		id = fmt.Sprintf("%016x", rnd.Uint64())
	}
	return Source{
		View: id, Name: name, Digest: fmt.Sprintf("sha256:%08x", rnd.Uint32()), Units: n,
		Lanes: 1 + rnd.Uint32N(6), RunBlocks: rnd.Uint32N(3), Delay: delay, Head: 1 + rnd.Uint32N(delay),
		Affinity: []order.Affinity{order.AffinityEpoch, order.AffinityRun}[rnd.IntN(2)],
	}, t
}

// withoutView makes a source the whole of its data set.
func withoutView(x *Source, t *order.Table) {
	t.View, x.View, x.Units = nil, "", 0
	for _, n := range t.Samples {
		x.Units += uint64(n)
	}
}

var sourceNames = []string{"a", "a.b", "code", "math", "web", "web-2", "x_1"}

// randomWorld is a mix of up to seven sources with segments, some of limited epochs.
func randomWorld(rnd *rand.Rand) world {
	var w world
	w.Seed, w.Shuffle, w.Epoch = rnd.Uint64(), true, 1+rnd.Uint64N(120)
	w.Tail = []order.Tail{order.TailShort, order.TailDrop, order.TailWrap, order.TailPad}[rnd.IntN(4)]
	for _, name := range sourceNames {
		if rnd.IntN(2) == 0 {
			continue
		}
		s, t := randomSource(rnd, name)
		if rnd.IntN(3) == 0 {
			s.MaxEpochs = 1 + rnd.Uint64N(3)
		}
		w.Sources, w.tables = append(w.Sources, s), append(w.tables, t)
	}
	if len(w.Sources) == 0 {
		return randomWorld(rnd)
	}
	for at := uint64(0); len(w.Segments) < 1+rnd.IntN(4); at += 1 + rnd.Uint64N(80) {
		w.Segments = append(w.Segments, Segment{at, randomWeights(rnd, len(w.Sources))})
	}
	return w
}

func randomWeights(rnd *rand.Rand, n int) []uint64 {
	weights := make([]uint64, n)
	ties := rnd.IntN(3) == 0
	for s := range weights {
		switch {
		case rnd.IntN(4) == 0:
		case ties:
			weights[s] = 1 + rnd.Uint64N(3)
		default:
			weights[s] = 1 + rnd.Uint64N(1<<rnd.IntN(33))
		}
	}
	if sum(weights) == 0 {
		weights[rnd.IntN(n)] = 1
	}
	return weights
}

// cursor starts a cursor; every source has an order.
func (w *world) cursor(t testing.TB, position uint64) *Cursor {
	t.Helper()
	c, err := mustPlan(t, w.Mix).Seek(position, ordersOf(t, &w.Mix, w.tables))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestShares: a source is less than 2 units from its share before any position, and gets within 4
// units of its share of any stretch. Each position adds one to one source.
func TestShares(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	const positions = 20_000
	for range 40 {
		weights := randomWeights(rnd, 1+rnd.IntN(64))
		total := int64(sum(weights))
		tr := newTree(weights)
		sources := new(sequencer).append(nil, &tr, 0, positions)
		counts := make([]int64, len(weights))
		units := make([]uint64, len(weights))
		least, most := make([]int64, len(weights)), make([]int64, len(weights))
		for q, s := range sources {
			counts[s]++
			for s, c := range counts {
				off := c*total - int64(q+1)*int64(weights[s]) // in units of 1/total
				least[s], most[s] = min(least[s], off), max(most[s], off)
			}
			if q%997 == 0 {
				got := make([]uint64, len(weights))
				tr.addCounts(got, units, uint64(q+1))
				for s := range got {
					if got[s] != uint64(counts[s]) {
						t.Fatalf("weights %d: counts before %d are %d, one by one %d", weights, q+1, got, counts)
					}
				}
			}
		}
		for s := range weights {
			if least[s] <= -2*total || most[s] >= 2*total || most[s]-least[s] >= 4*total {
				t.Errorf("weights %d: source %d is from %d to %d units/%d off its share", weights, s, least[s], most[s], total)
			}
		}
		// A sequence that begins later is the same one.
		from := rnd.IntN(positions)
		if later := new(sequencer).append(nil, &tr, uint64(from), positions-from); !slices.Equal(later, sources[from:]) {
			t.Errorf("weights %d: the sequence from %d differs", weights, from)
		}
	}
}

// TestReach: reach is where a count is first reached, for small numbers and near the limits.
func TestReach(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	var past int
	for range 400 {
		weights := randomWeights(rnd, 1+rnd.IntN(20))
		if rnd.IntN(3) == 0 {
			for s := range weights {
				weights[s] *= rnd.Uint64N(1 << 24)
			}
			weights[0]++
		}
		tr := newTree(weights)
		units := make([]uint64, len(weights))
		for i, l := range tr.leaves {
			k := rnd.Uint64N(1 << (1 + rnd.IntN(63)))
			q, ok := tr.reach(i, k)
			if !ok {
				past++
				q = maxPosition + 1
			}
			at := func(q uint64) uint64 {
				counts := make([]uint64, len(weights))
				tr.addCounts(counts, units, q)
				return counts[l.source]
			}
			if ok && at(q) != k || q > 0 && k > 0 && at(q-1) >= k {
				t.Fatalf("weights %d: source %d is said to reach %d at %d", weights, l.source, k, q)
			}
		}
	}
	if past < 10 {
		t.Errorf("only %d counts lie past the positions", past)
	}
}

// TestCountsByHand holds counts against a walk over single positions that follows the rules on
// segments and max_epochs as they are written, without reach.
func TestCountsByHand(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	var ends, pulled int
	for range 150 {
		w := randomWorld(rnd)
		p := mustPlan(t, w.Mix)
		given := make([]uint64, len(w.Sources))
		limit := func(s int) uint64 { return w.Sources[s].maxEpochs() * w.Sources[s].Units }
		segment, before := 0, []uint64(nil)
		for g := uint64(0); ; g++ {
			if counts, err := p.Counts(nil, g); err != nil || !slices.Equal(counts, given) {
				t.Fatalf("%+v: before %d: %d, %v, by hand %d", w.Mix, g, counts, err, given)
			}
			if segment+1 < len(w.Segments) && w.Segments[segment+1].At == g {
				segment++
			}
			open := func() []uint64 {
				weights := slices.Clone(w.Segments[segment].Weights)
				for s := range weights {
					if given[s] >= limit(s) {
						weights[s] = 0
					}
				}
				return weights
			}
			weights := open()
			for sum(weights) == 0 && segment+1 < len(w.Segments) {
				segment++
				pulled++
				weights = open()
			}
			if sum(weights) == 0 {
				ends++
				if endOf(t, p) != g {
					t.Fatalf("%+v: ends at %d, by hand at %d", w.Mix, endOf(t, p), g)
				}
				if _, err := p.Counts(nil, g+1); err == nil {
					t.Fatal("counts past the end")
				}
				break
			}
			if g == 600 {
				break
			}
			tr, units := newTree(weights), make([]uint64, len(weights))
			now := make([]uint64, len(weights))
			tr.addCounts(now, units, g+1)
			before = make([]uint64, len(weights))
			tr.addCounts(before, units, g)
			for s := range given {
				given[s] += now[s] - before[s]
			}
		}
	}
	if ends < 10 || pulled < 5 {
		t.Errorf("%d streams ended and %d segments began early: the mixes are too simple", ends, pulled)
	}
}

// TestEpochLength holds the rules first and all against counts at every position.
func TestEpochLength(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 8))
	var never, found int
	for range 200 {
		w := randomWorld(rnd)
		p := mustPlan(t, w.Mix)
		for _, rule := range []EpochRule{EpochFirst, EpochAll} {
			got, err := w.EpochLength(rule)
			want, ok := lengthByHand(p, rule)
			switch {
			case ok && (err != nil || got != want):
				t.Fatalf("%+v: epoch %s is %d, %v, by hand %d", w.Mix, rule, got, err, want)
			case !ok && err == nil && got <= 2000:
				t.Fatalf("%+v: epoch %s is %d, by hand there is none", w.Mix, rule, got)
			case ok:
				found++
			case err != nil:
				never++
			}
		}
	}
	if never < 5 || found < 100 {
		t.Errorf("%d epochs end, %d never: the mixes are too simple", found, never)
	}
}

func lengthByHand(p *Plan, rule EpochRule) (uint64, bool) {
	begun := map[int]bool{}
	end, _ := p.End()
	w := p.walk()
	for g := uint64(0); g <= min(end, 2000); g++ {
		if ok, _ := w.seek(g); ok {
			for s, weight := range p.mix.Segments[w.segment].Weights {
				if weight > 0 {
					begun[s] = true
				}
			}
		}
		all, first := true, false
		counts := w.counts(nil, g)
		for s := range begun {
			once := counts[s] >= p.mix.Sources[s].Units
			all, first = all && once, first || once
		}
		if rule == EpochAll && all || rule == EpochFirst && first {
			return g, true
		}
	}
	return 0, false
}

// next is the next batch over all ranks, and what each rank has of it.
func next(t testing.TB, cursors []*Cursor, g int) (refs []order.Ref, b order.Batch, ok bool) {
	t.Helper()
	for r, c := range cursors {
		part, batch, err := c.NextBatch(nil, order.Split{GlobalBatch: g, Rank: r, World: len(cursors)})
		if errors.Is(err, io.EOF) {
			if r > 0 && ok {
				t.Fatalf("rank %d is at the end, rank 0 is not", r)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if r > 0 && (batch.Position != b.Position || batch.NextPosition != b.NextPosition || batch.Global != b.Global) || batch.First != len(refs) {
			t.Fatalf("rank %d has %+v, rank 0 %+v", r, batch, b)
		}
		refs, b, ok = append(refs, part...), batch, true
	}
	return refs, b, ok
}

// TestTails holds batches at the ends of epochs and of the stream against the rules by hand.
func TestTails(t *testing.T) {
	rnd := rand.New(rand.NewPCG(9, 10))
	seen := map[string]int{}
	for range 400 {
		w := randomWorld(rnd)
		p := mustPlan(t, w.Mix)
		end := endOf(t, p)
		g := 1 + rnd.IntN(30)
		if w.Tail == order.TailDrop {
			g = min(g, int(w.Epoch))
		}
		ranks := make([]*Cursor, 1+rnd.IntN(5))
		for r := range ranks {
			ranks[r] = w.cursor(t, 0)
		}
		for position := uint64(0); position < 400; {
			size, global := uint64(g), g
			left := w.Epoch - position%w.Epoch
			if w.Tail == order.TailDrop && left < size {
				position, left = position+left, w.Epoch
				seen["drop"]++
			}
			if w.Tail != order.TailWrap {
				size = min(size, left)
			}
			if position+size > end {
				size = end - min(position, end)
				seen["end "+string(w.Tail)]++
				if w.Tail == order.TailDrop || w.Tail == order.TailWrap {
					size = 0
				}
			}
			if w.Tail == order.TailShort {
				global = int(size)
			}
			refs, b, ok := next(t, ranks, g)
			if ok != (size > 0) {
				t.Fatalf("%+v: batch of %d at %d: %v, by hand %d", w.Mix, g, position, ok, size)
			}
			if !ok {
				break
			}
			if b.Position != position || b.NextPosition != position+size || len(refs) != global || b.Global != global {
				t.Fatalf("%+v: batch of %d at %d: %+v with %d samples, by hand %d to %d", w.Mix, g, position, b, len(refs), position, position+size)
			}
			counts, _ := p.Counts(nil, position)
			for k, r := range refs {
				if k < int(size) {
					after, _ := p.Counts(nil, position+uint64(k)+1)
					if counts[r.Source]++; r.Padding || !slices.Equal(counts, after) {
						t.Fatalf("%+v: entry %d at %d is %+v", w.Mix, k, position, r)
					}
					continue
				}
				seen["pad"]++
				same := refs[k%int(size)]
				if same.Padding, same.Slot = true, 0; r != same {
					t.Fatalf("%+v: padding %d at %d is %+v, want %+v", w.Mix, k, position, r, same)
				}
			}
			position += size
		}
	}
	for _, what := range []string{"drop", "pad", "end short", "end pad", "end wrap", "end drop"} {
		if seen[what] < 3 {
			t.Errorf("%s came up %d times", what, seen[what])
		}
	}
}
