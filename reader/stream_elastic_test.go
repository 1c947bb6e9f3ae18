package reader

import (
	"cmp"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/shardtool/shardtool/internal/order/ledger"
	"github.com/shardtool/shardtool/internal/testset"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/reader/order"
)

// throughText is a checkpoint as the next process reads it.
func throughText(t testing.TB, cp Checkpoint) *Checkpoint {
	t.Helper()
	text, err := cp.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	again, err := DecodeCheckpoint(text)
	if err != nil {
		t.Fatal(err)
	}
	return &again
}

func numbersOf(b *Batch) (n []uint64) {
	for i := range b.Samples {
		n = append(n, b.Samples[i].Number)
	}
	return n
}

// TestStreamElastic makes chains of starts with other ranks and batch sizes. All ranks are killed
// in the middle: some at the step that they resume from, some a few steps after it, without having
// saved that. The batches of all starts must be those of one order, read by one process. Some
// starts have costs, by which the ranks share a batch in another way.
func TestStreamElastic(t *testing.T) {
	watch(t)
	samples := mixed(700)
	set := newStreamed(t, mem.New(), samples, testset.Options{BlockSize: 4000, ShardSize: 40_000, Integer: lengthOf})
	other := newStreamed(t, inDir(t), samples, testset.Options{BlockSize: 4000, ShardSize: 40_000, Plain: true, Integer: lengthOf})
	random := rand.New(rand.NewPCG(5, 6))
	chains := 12
	if testing.Short() {
		chains = 4
	}
	for chain := range chains {
		o := StreamOptions{
			Shuffle: true, Seed: random.Uint64(), Epochs: 3, Tail: []order.Tail{order.TailWrap, order.TailShort, order.TailDrop}[chain%3],
			Order: OrderOptions{Lanes: 12, Delay: 5, Affinity: []order.Affinity{order.AffinityEpoch, order.AffinityRun}[random.IntN(2)]},
		}
		if chain%2 == 1 {
			o.Tuning.Memory = 1 << 20
		}
		var cp *Checkpoint
		var ref *order.Cursor
		count := make([]int, len(samples))
		total, wrapped, last := 0, 0, 0
		for starts := 0; ; starts++ {
			p := o
			p.Checkpoint, p.World, p.GlobalBatch = cp, 1+random.IntN(8), 1+random.IntN(90)
			if starts%3 == 1 && cp != nil {
				p.GlobalBatch = 0 // that of the checkpoint
			}
			if p.Cost = []string{"", "tokens", "0.5*tokens^2 + 3"}[random.IntN(3)]; p.Cost != "" && random.IntN(2) == 0 {
				p.CostGroup = 1 + random.IntN(3)
				p.World = p.CostGroup * (1 + random.IntN(3))
			}
			if most := cmp.Or(p.GlobalBatch, last) / p.World; p.Cost != "" && most > 1 {
				p.MicroBatches = random.IntN(min(most, 6))
			}
			steps := 1 + random.IntN(12)
			next, batches, size, done := startAll(t, []*streamed{set, other}[starts%2], p, steps, random)
			last = size
			if ref == nil {
				plan := set.stream(t, withBatch(o, size)).Info().Plans[0]
				var err error
				if ref, err = plan.Seek(0, 0); err != nil {
					t.Fatal(err)
				}
				ref.Until(o.Epochs)
			}
			for _, got := range batches {
				refs, b, err := ref.NextBatch(nil, order.Split{GlobalBatch: size, World: 1})
				if err != nil {
					t.Fatal(err)
				}
				want := make([]uint64, len(refs))
				for i, r := range refs {
					want[i] = r.Number
					count[r.Number]++
				}
				total += len(want)
				if b.NextEpoch == o.Epochs {
					wrapped = int(b.NextPosition)
				}
				if p.Cost != "" { // ranks have others of the same
					slices.Sort(got)
					slices.Sort(want)
				}
				if !slices.Equal(got, want) {
					t.Fatalf("chain %d, start %d: batch at %d/%d: %v, want %v", chain, starts, b.Epoch, b.Position, got, want)
				}
			}
			if cp = next; done {
				break
			}
		}
		if o.Tail == order.TailDrop { // what is left depends on the batch size
			continue
		}
		if _, _, err := ref.NextBatch(nil, order.Split{GlobalBatch: 1, World: 1}); !errors.Is(err, io.EOF) {
			t.Fatalf("chain %d ended too early: %v", chain, err)
		}
		for n, c := range count {
			if c != int(o.Epochs) && wrapped == 0 {
				t.Fatalf("chain %d: sample %d came %d times in %d epochs", chain, n, c, o.Epochs)
			}
		}
		if total != int(o.Epochs)*len(samples)+wrapped {
			t.Fatalf("chain %d: %d samples came", chain, total)
		}
	}
}

func withBatch(o StreamOptions, size int) StreamOptions {
	o.GlobalBatch = size
	return o
}

// startAll runs all ranks for some steps. It returns the checkpoint of a rank at that step, and
// what came until then.
func startAll(t *testing.T, set *streamed, o StreamOptions, steps int, random *rand.Rand) (cp *Checkpoint, batches [][]uint64, size int, done bool) {
	t.Helper()
	teller := random.IntN(o.World)
	var streams []*Stream
	for o.Rank = range o.World {
		s := set.stream(t, o)
		streams = append(streams, s)
		size = s.Info().GlobalBatch
		for step := range steps {
			b, err := s.Next(t.Context())
			if errors.Is(err, io.EOF) {
				if done = true; o.Rank > 0 && step != len(batches) {
					t.Fatalf("rank %d of %d ends behind %d steps, others behind %d", o.Rank, o.World, step, len(batches))
				}
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if step == len(batches) {
				batches = append(batches, nil)
			}
			batches[step] = append(batches[step], numbersOf(b)...)
		}
		if o.Rank == teller {
			at, err := s.Checkpoint()
			if err != nil {
				t.Fatal(err)
			}
			cp = throughText(t, at)
		}
	}
	for _, s := range streams { // some run ahead of the step that was saved
		for range random.IntN(3) {
			if _, err := s.Next(t.Context()); err != nil {
				break
			}
		}
		s.Close()
	}
	return cp, batches, size, done
}

// TestStreamResumesAnywhere starts at every position of two epochs.
func TestStreamResumesAnywhere(t *testing.T) {
	watch(t)
	samples := mixed(40)
	set := newStreamed(t, mem.New(), samples, testset.Options{BlockSize: 2000, ShardSize: 9000})
	o := StreamOptions{Shuffle: true, GlobalBatch: 7, Epochs: 2, Tail: order.TailWrap, Order: OrderOptions{Lanes: 4, Delay: 3}}
	run := set.stream(t, o).run.Load()
	for epoch := range uint64(2) {
		for position := range uint64(len(samples)) {
			cp, err := run.Checkpoint(Place{epoch, position}, 7, ledger.Mark{})
			if err != nil {
				t.Fatal(err)
			}
			f := set.follow(t, StreamOptions{Checkpoint: throughText(t, cp), Epochs: 2, World: 2, Rank: int(position % 2)})
			if left := int(2-epoch)*len(samples) - int(position); f.rest(t) != (left+6)/7 {
				t.Fatalf("from %d/%d: another number of batches than %d samples make", epoch, position, left)
			}
			f.Close()
		}
	}
}
