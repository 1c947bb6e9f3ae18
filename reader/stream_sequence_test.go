package reader

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/testset"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/reader/order"
)

// mapKey is a Map: it adds a field and puts another in place of the first.
func mapKey(_ context.Context, s *Sample) error {
	s.Fields[0].Data = slices.Clone(s.Fields[0].Data)
	s.Fields = append(s.Fields, format.FieldView{Name: []byte("mapped"), Data: slices.Clone(s.Key)})
	return nil
}

// anyOrder draws options of all kinds.
func anyOrder(random *rand.Rand) StreamOptions {
	o := StreamOptions{
		Shuffle: random.IntN(5) > 0, Seed: random.Uint64(), Epochs: 1 + uint64(random.IntN(2)), Epoch: uint64(random.IntN(3)), GlobalBatch: []int{1, 7, 64, 256, 1000, 2500}[random.IntN(6)], World: []int{1, 2, 3, 4, 7, 16, 64, 97}[random.IntN(8)], Tail: []order.Tail{order.TailDrop, order.TailShort, order.TailWrap, order.TailPad}[random.IntN(4)], Hold: random.IntN(4),
		Order:  OrderOptions{Affinity: []order.Affinity{order.AffinityEpoch, order.AffinityRun}[random.IntN(2)]},
		Tuning: Tuning{Workers: 1 + random.IntN(4), Memory: []int64{1 << 20, 1 << 20, 3 << 20, 64 << 20, 0}[random.IntN(5)]},
	}
	o.Rank = random.IntN(o.World)
	if o.Shuffle {
		o.Order.Lanes = []uint32{1, 3, 8, 24, 96}[random.IntN(5)]
		o.Order.Delay = 1 + uint32(random.IntN(20))
	}
	if e := []uint32{0, 1, 3, 4}[random.IntN(4)]; e == 0 {
		o.Order.WholeShards = true
	} else {
		o.Order.RunBlocks = e
	}
	if random.IntN(4) == 0 {
		o.Map = mapKey
	}
	return o
}

// TestStreamEqualsPlan draws orders, ranks and options, and compares every byte of every batch,
// when it is delivered and when it is released.
func TestStreamEqualsPlan(t *testing.T) {
	watch(t)
	random := rand.New(rand.NewPCG(11, 12))
	samples := mixed(2100)
	sets := []*streamed{
		newStreamed(t, mem.New(), samples, testset.Options{BlockSize: 9000, ShardSize: 100_000}),
		newStreamed(t, inDir(t), samples, testset.Options{BlockSize: 12_000, FrameSize: 5000, ShardSize: 150_000}),
		newStreamed(t, inDir(t), samples, testset.Options{BlockSize: 9000, ShardSize: 100_000, Plain: true}),
		newStreamed(t, mem.New(), samples, testset.Options{BlockSize: 30_000, ShardSize: 200_000, Raw: true}),
	}
	runs := 48
	if testing.Short() {
		runs = 8
	}
	var evicted uint64
	copied := 0
	for i := range runs {
		o := anyOrder(random)
		set := sets[i%len(sets)]
		if o.Tail == order.TailDrop {
			o.GlobalBatch = min(o.GlobalBatch, len(samples))
		}
		t.Run(fmt.Sprintf("%d", i), func(t *testing.T) {
			f := set.follow(t, o)
			var held []*expected
			for e := f.next(t); e != nil; e = f.next(t) {
				e.check(t)
				if e.draft.Copied {
					copied++
				}
				if o.Hold == 0 {
					if random.IntN(2) == 0 {
						e.Release() // and Next once more
					}
					continue
				}
				if held = append(held, e); len(held) < o.Hold {
					continue
				}
				at := random.IntN(len(held))
				held[at].check(t)
				held[at].Release()
				held[at].Release()
				held = slices.Delete(held, at, at+1)
			}
			stats := f.Stats()
			evicted += stats.Evicted
			if stats.Held > f.Info().Memory+int64(o.GlobalBatch)*4096*int64(max(o.Hold, 1)) {
				t.Errorf("%+v: %d bytes were held of %d", o, stats.Held, f.Info().Memory)
			}
		})
	}
	if !testing.Short() && (evicted == 0 || copied == 0) {
		t.Errorf("%d blocks evicted, %d batches copied: the test does not test them", evicted, copied)
	}
}

// TestStreamTiny has data sets of 0 to 3 samples, with batches larger than they are, over many
// epochs.
func TestStreamTiny(t *testing.T) {
	watch(t)
	for n := range 4 {
		for _, plain := range []bool{false, true} {
			set := newStreamed(t, inDir(t), mixed(n), testset.Options{BlockSize: 600, ShardSize: 2000, Plain: plain})
			for _, tail := range []order.Tail{order.TailShort, order.TailWrap, order.TailPad, order.TailDrop} {
				for _, batch := range []int{1, 2, 5, 40} {
					for _, world := range []int{1, 3} {
						for _, shuffle := range []bool{false, true} {
							o := StreamOptions{Shuffle: shuffle, GlobalBatch: batch, World: world, Rank: world - 1, Tail: tail, Epochs: 30}
							if tail == order.TailDrop && batch > n {
								if _, err := set.Stream(t.Context(), o); err == nil {
									t.Fatalf("n=%d batch=%d: drop delivers nothing, and that was accepted", n, batch)
								}
								continue
							}
							f := set.follow(t, o)
							if got := f.rest(t); (got == 0) != (n == 0) {
								t.Fatalf("n=%d %+v: %d batches", n, o, got)
							}
							f.Close()
						}
					}
				}
			}
		}
	}
}

// TestStreamRanksMakeTheBatch: the parts of all ranks, one after the other, are the global batch.
func TestStreamRanksMakeTheBatch(t *testing.T) {
	watch(t)
	set := newStreamed(t, mem.New(), mixed(500), testset.Options{BlockSize: 5000, ShardSize: 40_000})
	for _, world := range []int{2, 5, 16} {
		o := StreamOptions{Shuffle: true, GlobalBatch: 48, Epochs: 2, Tail: order.TailShort, Order: OrderOptions{Lanes: 12, Delay: 4}}
		whole := set.stream(t, o)
		ranks := make([]*Stream, world)
		for r := range ranks {
			p := o
			p.World, p.Rank = world, r
			ranks[r] = set.stream(t, p)
		}
		for want, err := range whole.Batches(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			var got []uint64
			for _, s := range ranks {
				b, err := s.Next(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if b.First != len(got) {
					t.Fatalf("rank's part begins at %d, not %d", b.First, len(got))
				}
				for i := range b.Samples {
					got = append(got, b.Samples[i].Number)
				}
			}
			if !slices.EqualFunc(want.Samples, got, func(s Sample, n uint64) bool { return s.Number == n }) {
				t.Fatalf("batch at %d/%d: the ranks have %v", want.Epoch, want.Position, got)
			}
		}
	}
}
