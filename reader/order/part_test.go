package order

import (
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestNextPart: parts by places are the batches of ranks, and places that are skipped are those of
// batches that nobody listed.
func TestNextPart(t *testing.T) {
	rnd := rand.New(rand.NewPCG(31, 32))
	for range 80 {
		table, p := randomTable(rnd), randomParams(rnd)
		p.Tail = TailWrap
		plan := mustPlan(t, table, p)
		if plan.Samples() == 0 {
			continue
		}
		start := rnd.Uint64N(plan.Samples())
		a, b := mustSeek(t, plan, 1, start), mustSeek(t, plan, 1, start)
		var open []uint64 // slots of spans of b that are open
		for range 20 {
			g, world := 1+rnd.IntN(40), 1+rnd.IntN(5)
			s := Split{g, rnd.IntN(world), world}
			var skip uint64
			if rnd.IntN(4) == 0 {
				skip = 1 + rnd.Uint64N(3*plan.Samples())
				if _, _, err := a.NextBatch(nil, Split{int(skip), 0, 1}); err != nil {
					t.Fatal(err)
				}
			}
			want, at, err := a.NextBatch(nil, s)
			if err != nil {
				t.Fatal(err)
			}
			got, part, err := b.NextPart(nil, skip, uint64(g), Share(uint64(g), s.Rank, world), Share(uint64(g), s.Rank+1, world))
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range part.Opened {
				open = append(open, x.Slot)
			}
			for i := range got {
				if !slices.Contains(open, got[i].Slot) {
					t.Fatalf("the span of %+v is not open", got[i])
				}
				got[i].Slot, want[i].Slot = 0, 0
			}
			for _, x := range part.Closed {
				i := slices.Index(open, x.Slot)
				if i < 0 {
					t.Fatalf("%+v is closed, but not open", x)
				}
				open = slices.Delete(open, i, i+1)
			}
			if skip >= plan.Samples() && len(open) > len(part.Opened) {
				t.Fatalf("%d spans stay open over an epoch that was skipped", len(open))
			}
			if !slices.Equal(got, want) || part.Epoch != at.Epoch || part.Position != at.Position || part.NextEpoch != at.NextEpoch || part.NextPosition != at.NextPosition || part.First != at.First {
				t.Fatalf("%+v: after %d, rank %d of %d has %v in %+v, want %v in %+v", p, skip, s.Rank, world, got, part, want, at)
			}
		}
	}
}

func mustSeek(t *testing.T, plan *Plan, epoch, position uint64) *Cursor {
	t.Helper()
	c, err := plan.Seek(epoch, position)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestNextPartRefusals(t *testing.T) {
	table := Table{Samples: []uint32{3, 4}, ShardFirst: []int{0}}
	p := Params{Shuffle: true, Lanes: 2, RunBlocks: 1, Delay: 1, Head: 1, Affinity: AffinityEpoch, Tail: TailWrap}
	c := mustSeek(t, mustPlan(t, table, p), maxEpochs-1, 2)
	for _, n := range [][2]uint64{{0, 6}, {1, 5}, {5, 1}, {7, 1}, {1 << 62, 1 << 62}, {0, 1<<64 - 1}} {
		if _, _, err := c.NextPart(nil, n[0], n[1], 0, 0); !errors.Is(err, io.EOF) {
			t.Errorf("%d places after %d in an epoch that has 5 left, the last: %v", n[1], n[0], err)
		}
	}
	if _, _, err := c.NextPart(nil, 0, 5, 3, 2); err == nil {
		t.Error("places 3 to 2")
	}
	if _, _, err := c.NextPart(nil, 0, 5, 3, 6); err == nil {
		t.Error("places 3 to 6 of 5")
	}
	if refs, b, err := c.NextPart(nil, 1, 4, 1, 3); err != nil || len(refs) != 2 || b.NextEpoch != maxEpochs {
		t.Errorf("the last places: %v, %+v, %v", refs, b, err)
	}
	p.Tail = TailPad
	if _, _, err := mustSeek(t, mustPlan(t, table, p), 0, 0).NextPart(nil, 0, 1, 0, 1); err == nil {
		t.Error("parts of an order with tail pad")
	}
	if err := p.validate(); err != nil {
		t.Error(err)
	}
	p.Head = 2
	if p.validate() == nil || (Split{1, 1, 1}).Check() == nil {
		t.Error("values out of their limits pass")
	}
}
