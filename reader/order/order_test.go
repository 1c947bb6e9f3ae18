package order

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// spanWatch checks guarantees that a reader relies on: when a sample is listed its span is open and
// contains its block, and each span is opened and closed once.
type spanWatch struct {
	table Table
	open  map[uint64]Span
	seen  uint64
}

func (w *spanWatch) check(t *testing.T, refs []Ref, b Batch) {
	t.Helper()
	for _, s := range b.Opened {
		if s.Slot != w.seen+1 {
			t.Fatalf("span %d opened after span %d", s.Slot, w.seen)
		}
		w.seen = s.Slot
		w.open[s.Slot] = s
		if r := refs[s.Place]; r.Slot != s.Slot || slices.ContainsFunc(refs[:s.Place], func(r Ref) bool { return r.Slot == s.Slot }) {
			t.Fatalf("span %+v does not begin with %+v", s, r)
		}
	}
	for _, r := range refs {
		if n := w.number(r); n != r.Number {
			t.Fatalf("block %d index %d is sample %d, not %d", r.Block, r.Index, n, r.Number)
		}
		if r.Padding {
			continue
		}
		s, ok := w.open[r.Slot]
		if !ok {
			t.Fatalf("sample %d of span %d, which is not open", r.Number, r.Slot)
		}
		if r.Block < s.Block || r.Block >= s.Block+s.Blocks {
			t.Fatalf("block %d is not in span %+v", r.Block, s)
		}
	}
	for _, s := range b.Closed {
		opened := w.open[s.Slot]
		if opened.Place = s.Place; opened != s {
			t.Fatalf("closed %+v, opened %+v", s, opened)
		}
		if slices.ContainsFunc(refs[s.Place:], func(r Ref) bool { return r.Slot == s.Slot && !r.Padding }) {
			t.Fatalf("span %+v is closed before its last sample", s)
		}
		delete(w.open, s.Slot)
	}
	if b.NextEpoch != b.Epoch && len(w.open) > 0 && b.NextPosition == 0 {
		t.Fatalf("%d spans open at an epoch's turn", len(w.open))
	}
}

func (w *spanWatch) number(r Ref) uint64 {
	if r.Index >= w.table.Samples[r.Block] {
		return 1 << 63
	}
	n := uint64(r.Index)
	for _, s := range w.table.Samples[:r.Block] {
		n += uint64(s)
	}
	return n
}

func TestAgainstReference(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range 1500 {
		table, p := randomTable(rnd), randomParams(rnd)
		plan, ref := mustPlan(t, table, p), newReference(table, p)
		g := 1 + rnd.IntN(40)
		if ref.total == 0 || p.Tail == TailDrop && uint64(g) > ref.total {
			continue
		}
		world := 1 + rnd.IntN(9)
		epoch, position := uint64(rnd.IntN(3)), rnd.Uint64N(ref.total)
		cursors, watches := make([]*Cursor, world), make([]spanWatch, world)
		for r := range world {
			c, err := plan.Seek(epoch, position)
			if err != nil {
				t.Fatal(err)
			}
			cursors[r], watches[r] = c, spanWatch{table: table, open: map[uint64]Span{}}
		}
		for batch := range 30 {
			want, nextEpoch, next := ref.batch(epoch, position, uint64(g))
			var got []referenceRef
			for r, c := range cursors {
				refs, b, err := c.NextBatch(nil, Split{g, r, world})
				if err != nil {
					t.Fatal(err)
				}
				if b.First != len(got) || b.Global != len(want) || b.NextEpoch != nextEpoch || b.NextPosition != next {
					t.Fatalf("table %d batch %d rank %d: %+v after %d samples; want %d samples, next %d/%d",
						i, batch, r, b, len(got), len(want), nextEpoch, next)
				}
				watches[r].check(t, refs, b)
				for _, x := range refs {
					got = append(got, referenceRef{x.Number, x.Padding})
				}
			}
			if !slices.Equal(got, want) {
				t.Fatalf("table %d %v %+v\nbatch %d of %d at %d/%d over %d ranks:\n got %v\nwant %v",
					i, table, p, batch, g, epoch, position, world, got, want)
			}
			epoch, position = nextEpoch, next
		}
	}
}

// sizesAround are the numbers of samples at which something may go wrong with v lanes.
func sizesAround(v int) []int {
	sizes := []int{0, 1, 2, v - 1, v, v + 1}
	for k := 2; k <= 10; k++ {
		sizes = append(sizes, 1<<k-1, 1<<k, 1<<k+1)
	}
	return sizes
}

// tableOf cuts n samples into blocks: of one sample, with empty ones between, or of random sizes.
func tableOf(rnd *rand.Rand, n, kind int) Table {
	t := Table{ShardFirst: []int{0}}
	for n > 0 {
		s := 1
		switch kind {
		case 1:
			s = rnd.IntN(2)
		case 2:
			s = min(n, rnd.IntN(20))
		case 3:
			s = min(n, 100)
		}
		t.Samples = append(t.Samples, uint32(s))
		n -= s
		if rnd.IntN(6) == 0 {
			t.ShardFirst = append(t.ShardFirst, len(t.Samples))
		}
	}
	if kind == 1 {
		t.Samples = append(t.Samples, 0, 0)
	}
	return t
}

func TestEveryEpochIsABijection(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for _, v := range []int{1, 7, 12, 96} {
		for _, n := range sizesAround(v) {
			for kind := range 4 {
				table := tableOf(rnd, n, kind)
				for _, affinity := range []Affinity{AffinityEpoch, AffinityRun} {
					p := Params{
						Seed: rnd.Uint64(), Shuffle: true, Lanes: uint32(v), RunBlocks: rnd.Uint32N(4), Delay: 5, Head: 3,
						Affinity: affinity, Tail: TailShort,
					}
					plan := mustPlan(t, table, p)
					for epoch := range uint64(3) {
						checkBijection(t, plan, epoch, n, 1+rnd.IntN(2*v+5))
					}
				}
			}
		}
	}
}

func checkBijection(t *testing.T, plan *Plan, epoch uint64, n, g int) {
	t.Helper()
	seen := make([]bool, n)
	var count int
	for _, b := range batchesOf(t, plan, epoch, 0, epoch+1, Split{g, 0, 1}) {
		for _, x := range b {
			if seen[x] {
				t.Fatalf("%d samples, %+v, epoch %d: sample %d twice", n, plan.params, epoch, x)
			}
			seen[x] = true
			count++
		}
	}
	if count != n {
		t.Fatalf("%d samples, %+v, epoch %d: %d delivered", n, plan.params, epoch, count)
	}
}

func TestUnshuffledIsStorageOrder(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	table := tableOf(rnd, 500, 2)
	for _, e := range []uint32{0, 1, 3} {
		p, err := Choose(table, Choice{RunBlocks: e, WholeShards: e == 0, World: 1, Tail: TailShort, Seed: 99})
		if err != nil {
			t.Fatal(err)
		}
		if p.Lanes != 1 || p.Delay != 1 || p.Head != 1 {
			t.Fatalf("chosen %+v", p)
		}
		next := uint64(0)
		for _, b := range batchesOf(t, mustPlan(t, table, p), 7, 0, 8, Split{64, 0, 1}) {
			for _, x := range b {
				if x != next {
					t.Fatalf("position %d is sample %d", next, x)
				}
				next++
			}
		}
		if next != 500 {
			t.Fatalf("%d samples", next)
		}
	}
	// With more ranks each lane is an arc of storage order.
	p, err := Choose(table, Choice{World: 2})
	if err != nil || p.Lanes != DefaultLanes {
		t.Fatalf("chosen %+v, %v", p, err)
	}
	heads, err := mustPlan(t, table, p).LaneHeads(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	next := uint64(0)
	for _, h := range heads {
		if h.Next.Number != next {
			t.Fatalf("lane %d begins at sample %d, want %d", h.Lane, h.Next.Number, next)
		}
		next += h.Length
	}
}

func TestResumeAtEveryPosition(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 8))
	table := tableOf(rnd, 200, 2)
	for _, tail := range []Tail{TailShort, TailDrop, TailWrap, TailPad} {
		for _, affinity := range []Affinity{AffinityEpoch, AffinityRun} {
			p := Params{Seed: 5, Shuffle: true, Lanes: 6, RunBlocks: 1, Delay: 4, Head: 2, Affinity: affinity, Tail: tail}
			plan := mustPlan(t, table, p)
			ref := newReference(table, p)
			for position := range uint64(201) {
				c, err := plan.Seek(1, position)
				if err != nil {
					t.Fatal(err)
				}
				epoch, at := c.epoch, c.position
				for range 4 {
					refs, b, err := c.NextBatch(nil, Split{32, 0, 1})
					if err != nil {
						t.Fatal(err)
					}
					want, nextEpoch, next := ref.batch(epoch, at, 32)
					for i, w := range want {
						if refs[i].Number != w.number || refs[i].Padding != w.padding {
							t.Fatalf("%s %s from %d, batch at %d/%d: place %d is %+v, want %+v", tail, affinity, position, epoch, at, i, refs[i], w)
						}
					}
					if epoch, at = nextEpoch, next; b.NextEpoch != epoch || b.NextPosition != at || len(refs) != len(want) {
						t.Fatalf("%s from %d: next %+v, want %d/%d", tail, position, b, epoch, at)
					}
				}
			}
		}
	}
}
