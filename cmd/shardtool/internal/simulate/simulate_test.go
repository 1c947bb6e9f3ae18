package simulate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/shardtool/shardtool/internal/order/uniformity"
	"github.com/shardtool/shardtool/internal/testset"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/order"
)

// newPlan is an order over 60 blocks of up to 30 samples.
func newPlan(t *testing.T, tail order.Tail) *order.Plan {
	t.Helper()
	rnd := rand.New(rand.NewPCG(1, 2))
	var table order.Table
	for b := range 60 {
		if b%9 == 0 {
			table.ShardFirst = append(table.ShardFirst, b)
		}
		table.Samples = append(table.Samples, uint32(1+rnd.IntN(30)))
	}
	plan, err := order.New(table, "", order.Params{
		Seed: 3, Shuffle: true, Lanes: 12, RunBlocks: 2, Delay: 4, Head: 2, Affinity: order.AffinityEpoch, Tail: tail,
	})
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// TestEpoch counts again what each rank gets, from a cursor of that rank.
func TestEpoch(t *testing.T) {
	const batch, epoch, perNode = 40, 2, 4
	for _, tail := range []order.Tail{order.TailShort, order.TailDrop, order.TailWrap, order.TailPad} {
		plan := newPlan(t, tail)
		o := Options{
			Epoch: epoch, GlobalBatch: batch, Worlds: []int{1, 3, 8},
			Job: Job{RanksPerNode: perNode, SamplesPerSecond: 100},
		}
		r, err := Epoch(t.Context(), plan, Source{60, 60_000, uniformity.Parts(plan.Samples())}, o)
		if err != nil {
			t.Fatal(err)
		}
		if r.ExactlyOnce != (tail != order.TailDrop) || (r.Missing == 0) != r.ExactlyOnce || r.Repeated != 0 || (r.Padding > 0) != (tail == order.TailPad) {
			t.Errorf("%s: %+v", tail, r)
		}
		for _, w := range r.Worlds {
			least, most, read, largest := uint64(math.MaxUint64), uint64(0), 0, 0
			var nodes, union []map[uint32]bool // by node: each rank's blocks, and those of all its ranks
			all, first, resume := 0, 0, 0
			for rank := range w.Size {
				blocks, n, f, m := rankBlocks(t, plan, order.Split{GlobalBatch: batch, World: w.Size, Rank: rank}, epoch)
				first, resume = max(first, f), max(resume, m)
				least, most, read, largest = min(least, n), max(most, n), read+len(blocks), max(largest, len(blocks))
				if rank%perNode == 0 {
					union = append(union, map[uint32]bool{})
				}
				for b := range blocks {
					union[rank/perNode][b] = true
				}
				nodes = append(nodes, blocks)
			}
			for _, u := range union {
				all += len(u)
			}
			if w.Least != least || w.Most != most || w.Blocks != uint64(largest) || w.Amplification != float64(read)/60 {
				t.Errorf("%s: %d ranks: %+v; want %d to %d samples, %d blocks, %d read", tail, w.Size, w, least, most, largest, read)
			}
			n := w.Needs
			busiest, cached := 0, 0
			for node, u := range union {
				sum := 0
				for _, b := range nodes[node*perNode : min((node+1)*perNode, w.Size)] {
					sum += len(b)
				}
				busiest, cached = max(busiest, sum), max(cached, len(u))
			}
			hours := float64(plan.Samples()) / 100 / 3600
			if n.Nodes != len(union) || n.ReadBytes != uint64(busiest)*1000 || n.CacheBytes != uint64(cached)*1000 || n.Requests != uint64((busiest+1)/2) ||
				n.Amplification != float64(all)/60 || math.Abs(n.Hours-hours) > 1e-12 {
				t.Errorf("%s: %d ranks: %+v; want %d nodes, %d blocks read, %d cached, %d of all nodes", tail, w.Size, n, len(union), busiest, cached, all)
			}
			if n.First != uint64(first)*1000 || n.Resume != uint64(resume)*1000 || resume == 0 {
				t.Errorf("%s: %d ranks: %+v; want %d blocks before the first batch, %d after a resume", tail, w.Size, n, first, resume)
			}
		}
	}
}

// rankBlocks returns the blocks that a rank reads in an epoch, how many samples it gets, and how
// many blocks its first batch and the one in the middle need.
func rankBlocks(t *testing.T, plan *order.Plan, s order.Split, epoch uint64) (blocks map[uint32]bool, samples uint64, first, middle int) {
	t.Helper()
	c, err := plan.Seek(epoch, 0)
	if err != nil {
		t.Fatal(err)
	}
	c.Until(epoch + 1)
	blocks = map[uint32]bool{}
	for n := plan.Samples(); ; {
		refs, b, err := c.NextBatch(nil, s)
		if errors.Is(err, io.EOF) {
			return blocks, samples, first, middle
		}
		if err != nil {
			t.Fatal(err)
		}
		own := map[uint32]bool{}
		for _, r := range refs {
			samples++
			if !r.Padding {
				blocks[r.Block], own[r.Block] = true, true
			}
		}
		if b.Position == 0 {
			first = len(own)
		}
		if b.Position <= n/2 && n/2 < b.Position+min(uint64(b.Global), n-b.Position) {
			middle = len(own)
		}
	}
}

// TestEpochStops ends with the context.
func TestEpochStops(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	plan := newPlan(t, order.TailShort)
	if _, err := Epoch(ctx, plan, Source{60, 0, uniformity.Parts(plan.Samples())}, Options{GlobalBatch: 8, Worlds: []int{1}}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// TestLabels reads an attribute, and refuses one that a data set lacks.
func TestLabels(t *testing.T) {
	var samples []testset.Sample
	for i := range 60 {
		samples = append(samples, testset.Sample{Key: fmt.Sprintf("%03d", i), Fields: []testset.Field{{Name: "x", Data: []byte{byte(i)}}}})
	}
	store := mem.New()
	o := testset.Options{BlockSize: 4000, ShardSize: 12_000, Label: func(key string) string { return key[:2] }}
	if _, err := testset.Build(t.Context(), store, slices.Values(samples), o); err != nil {
		t.Fatal(err)
	}
	d, err := reader.Open(t.Context(), store, reader.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	l, err := Labels(t.Context(), d, "label")
	if err != nil || l.Len() != 6 || l.Of(0) != l.Of(9) || l.Of(9) == l.Of(10) {
		t.Errorf("%+v, %v", l, err)
	}
	if _, err := Labels(t.Context(), d, "nosuch"); !errors.Is(err, ErrNoAttribute) {
		t.Errorf("%v", err)
	}
	if l, err := Labels(t.Context(), d, ""); err != nil || l.Len() != 60 {
		t.Errorf("%+v, %v", l, err)
	}
}
