package order

import (
	"math/rand/v2"
	"testing"
)

func TestLaneHeads(t *testing.T) {
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
	}
}
