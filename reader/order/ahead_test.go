package order

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestLaneHeadsAndBlocksAhead(t *testing.T) {
	rnd := rand.New(rand.NewPCG(9, 10))
	table := tableOf(rnd, 700, 2)
	p := Params{Seed: 5, Shuffle: true, Lanes: 12, RunBlocks: 2, Delay: 4, Head: 2, Affinity: AffinityEpoch, Tail: TailShort}
	plan, ref := mustPlan(t, table, p), newReference(table, p)
	lanes := ref.lanes(2)
	for _, position := range []uint64{0, 1, 5, 333, 698, 699} {
		heads, err := plan.LaneHeads(2, position)
		if err != nil {
			t.Fatal(err)
		}
		var done uint64
		for l, h := range heads {
			done += h.Done
			if h.Length != uint64(len(lanes[l])) {
				t.Fatalf("lane %d has %d samples, want %d", l, h.Length, len(lanes[l]))
			}
			if h.Done == h.Length {
				continue
			}
			if h.Next.Number != lanes[l][h.Done] {
				t.Fatalf("at %d lane %d goes on with %d, want %d", position, l, h.Next.Number, lanes[l][h.Done])
			}
			if end := (&table).shardEnd(h.Shard); int(h.Next.Block) < table.ShardFirst[h.Shard] || int(h.Next.Block) >= end {
				t.Fatalf("block %d is not in shard %d", h.Next.Block, h.Shard)
			}
		}
		if done != position {
			t.Fatalf("lanes at %d have done %d", position, done)
		}
		ahead, err := plan.BlocksAhead(2, position, Split{50, 1, 3}, 2)
		if err != nil {
			t.Fatal(err)
		}
		want := blocksOf(t, plan, position, Split{50, 1, 3}, 2)
		if !slices.Equal(ahead, want) {
			t.Fatalf("blocks ahead of %d: %d, want %d", position, ahead, want)
		}
	}
}

func blocksOf(t *testing.T, plan *Plan, position uint64, s Split, batches int) []uint32 {
	t.Helper()
	c, err := plan.Seek(2, position)
	if err != nil {
		t.Fatal(err)
	}
	var blocks []uint32
	for range batches {
		refs, _, err := c.NextBatch(nil, s)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range refs {
			if !slices.Contains(blocks, r.Block) {
				blocks = append(blocks, r.Block)
			}
		}
	}
	return blocks
}
