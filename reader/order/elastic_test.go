package order

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// TestElasticChains kills and resumes with other ranks and other batch sizes, through checkpoints,
// and compares what all ranks got with one cursor that was never interrupted.
func TestElasticChains(t *testing.T) {
	rnd := rand.New(rand.NewPCG(11, 12))
	worlds := []int{64, 96, 97}
	for r := 1; r <= 16; r++ {
		worlds = append(worlds, r)
	}
	for _, tail := range []Tail{TailShort, TailDrop, TailWrap, TailPad} {
		for _, affinity := range []Affinity{AffinityEpoch, AffinityRun} {
			for _, v := range []uint32{12, 96} {
				t.Run(fmt.Sprintf("tail=%s/affinity=%s/lanes=%d", tail, affinity, v), func(t *testing.T) {
					p := Params{
						Seed: rnd.Uint64(), Shuffle: true, Lanes: v, RunBlocks: 1, Delay: 6, Head: 4, Affinity: affinity, Tail: tail,
					}
					plan := mustPlan(t, tableOf(rnd, 4000+rnd.IntN(200), 2), p)
					elasticChain(t, rnd, plan, worlds)
				})
			}
		}
	}
}

func elasticChain(t *testing.T, rnd *rand.Rand, plan *Plan, worlds []int) {
	whole, err := plan.Seek(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	place, err := plan.Checkpoint(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	text, err := AppendCheckpoint(nil, place)
	if err != nil {
		t.Fatal(err)
	}
	for start := range 25 {
		if place, err = DecodeCheckpoint(text); err != nil {
			t.Fatal(err)
		}
		if err := place.Fits(plan); err != nil {
			t.Fatal(err)
		}
		world, g := worlds[rnd.IntN(len(worlds))], 1+rnd.IntN(300)
		if start%8 == 7 {
			g = 1 + rnd.IntN(int(plan.Samples())) // up to a batch an epoch
		}
		var next Batch
		got := make([][]Ref, 1+rnd.IntN(8)) // batches until the kill
		for r := range world {
			c, err := plan.Seek(place.Epoch, place.Position)
			if err != nil {
				t.Fatal(err)
			}
			for i := range got {
				if got[i], next, err = c.NextBatch(got[i], Split{g, r, world}); err != nil {
					t.Fatal(err)
				}
			}
		}
		for i := range got {
			want, b, err := whole.NextBatch(nil, Split{g, 0, 1})
			if err != nil {
				t.Fatal(err)
			}
			sameRefs(t, fmt.Sprintf("start %d on %d ranks, batch %d of %d at %d/%d", start, world, i, g, b.Epoch, b.Position), got[i], want)
		}
		if place, err = plan.Checkpoint(next.NextEpoch, next.NextPosition); err != nil {
			t.Fatal(err)
		}
		if text, err = AppendCheckpoint(text[:0], place); err != nil {
			t.Fatal(err)
		}
	}
}

func sameRefs(t *testing.T, what string, got, want []Ref) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d samples, want %d", what, len(got), len(want))
	}
	for k := range want {
		a, b := got[k], want[k]
		a.Slot, b.Slot = 0, 0 // counts of a cursor
		if a != b {
			t.Fatalf("%s: place %d is %+v, want %+v", what, k, a, b)
		}
	}
}

// TestConsumedDoesNotDependOnBatches: what has come by a position is the same set for all batch
// sizes.
func TestConsumedDoesNotDependOnBatches(t *testing.T) {
	rnd := rand.New(rand.NewPCG(13, 14))
	p := Params{Seed: 3, Shuffle: true, Lanes: 12, RunBlocks: 1, Delay: 6, Head: 4, Affinity: AffinityEpoch, Tail: TailShort}
	plan := mustPlan(t, tableOf(rnd, 3000, 2), p)
	const stop = 1200
	var want map[uint64]bool
	for range 10 {
		c, err := plan.Seek(0, 0)
		if err != nil {
			t.Fatal(err)
		}
		got := map[uint64]bool{}
		for position := uint64(0); position < stop; {
			refs, b, err := c.NextBatch(nil, Split{min(1+rnd.IntN(200), int(stop-position)), 0, 1})
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range refs {
				got[r.Number] = true
			}
			position = b.NextPosition
		}
		if len(got) != stop {
			t.Fatalf("%d samples by position %d", len(got), stop)
		}
		if want == nil {
			want = got
		}
		for x := range got {
			if !want[x] {
				t.Fatalf("sample %d comes before position %d with some batch sizes only", x, stop)
			}
		}
	}
}

// TestSplitMayChangeInACursor: rank, world and batch size are taken anew by every call.
func TestSplitMayChangeInACursor(t *testing.T) {
	rnd := rand.New(rand.NewPCG(15, 16))
	table := tableOf(rnd, 3000, 3)
	p := Params{Seed: 3, Shuffle: true, Lanes: 12, RunBlocks: 1, Delay: 6, Head: 4, Affinity: AffinityRun, Tail: TailWrap}
	plan, ref := mustPlan(t, table, p), newReference(table, p)
	c, err := plan.Seek(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	watch := spanWatch{table: table, open: map[uint64]Span{}}
	for range 300 {
		world := 1 + rnd.IntN(20)
		s := Split{1 + rnd.IntN(400), rnd.IntN(world), world}
		epoch, position := c.epoch, c.position
		refs, b, err := c.NextBatch(nil, s)
		if err != nil {
			t.Fatal(err)
		}
		watch.check(t, refs, b)
		want, _, _ := ref.batch(epoch, position, uint64(s.GlobalBatch))
		for i, r := range refs {
			if r.Number != want[b.First+i].number {
				t.Fatalf("%+v at %d/%d: place %d is %d, want %d", s, epoch, position, b.First+i, r.Number, want[b.First+i].number)
			}
		}
	}
}
