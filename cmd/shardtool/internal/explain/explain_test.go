package explain_test

import (
	"errors"
	"fmt"
	"io"
	"math/big"
	"slices"
	"testing"

	"github.com/shardtool/shardtool/cmd/shardtool/internal/explain"
	"github.com/shardtool/shardtool/internal/order/ledger"
	"github.com/shardtool/shardtool/internal/order/mix"
	"github.com/shardtool/shardtool/internal/testset"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/order"
)

// dataset is a data set of n samples in blocks of a few.
func dataset(t *testing.T, name string, n int) *reader.Dataset {
	t.Helper()
	var samples []testset.Sample
	for i := range n {
		samples = append(samples, testset.Sample{Key: fmt.Sprintf("%s/%04d", name, i), Fields: []testset.Field{{Name: "txt", Data: make([]byte, 100+i)}}})
	}
	store := mem.New()
	if _, err := testset.Build(t.Context(), store, slices.Values(samples), testset.Options{BlockSize: 4000, ShardSize: 30_000}); err != nil {
		t.Fatal(err)
	}
	ds, err := reader.Open(t.Context(), store, reader.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ds.Close() })
	return ds
}

// mixture is a mix whose second source ends after two epochs and whose weights change at 300.
func mixture(t *testing.T, tail order.Tail) reader.Spec {
	t.Helper()
	s := reader.Spec{
		Length: reader.Length{Units: 333}, Order: order.Choice{Seed: 7, Shuffle: true, Tail: tail, GlobalBatch: 20},
		Segments: []reader.Segment{{At: 300, Shares: []*big.Rat{big.NewRat(1, 1), big.NewRat(1, 1), big.NewRat(2, 1)}}},
	}
	for i, n := range []int{150, 90, 40} {
		name := string(rune('a' + i))
		s.Sources = append(s.Sources, reader.SourceSpec{
			Name: name, Set: dataset(t, name, n), Share: big.NewRat([]int64{5, 3, 0}[i], 1), Fixed: reader.Lanes{Lanes: 3, RunBlocks: 1, Delay: 4, Head: 2},
		})
	}
	s.Sources[1].MaxEpochs = 2
	return s
}

// resolve decides the run of a spec, or that continues from a checkpoint with its data sets.
func resolve(t *testing.T, s reader.Spec, from *reader.Checkpoint) (*reader.Run, error) {
	t.Helper()
	x, err := reader.OpenSources(t.Context(), s, nil, from)
	if err != nil {
		t.Fatal(err)
	}
	return x.Resolve(t.Context(), s, from, reader.Change{AsSaved: from != nil}, reader.Planning{})
}

func run(t *testing.T, s reader.Spec) *reader.Run {
	t.Helper()
	r, err := resolve(t, s, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// TestMix compares every step with the batches of a stream: samples, keys, seeds, ranks and counts.
func TestMix(t *testing.T) {
	for _, tail := range []order.Tail{order.TailWrap, order.TailShort, order.TailDrop, order.TailPad} {
		t.Run(string(tail), func(t *testing.T) {
			const batch, world = 20, 3
			spec := mixture(t, tail)
			m := run(t, spec)
			spec.Order.Epochs = 3
			ends := run(t, spec)
			given := map[string]uint64{}
			streams := make([]*reader.Stream, world)
			for r := range streams {
				var err error
				streams[r], err = ends.Stream(t.Context(), reader.StreamOptions{GlobalBatch: batch, Rank: r, World: world})
				if err != nil {
					t.Fatal(err)
				}
				defer streams[r].Close()
			}
			for number := uint64(0); ; number++ {
				at, err := m.Step(t.Context(), number, batch)
				if err != nil {
					t.Fatal(err)
				}
				step, err := explain.Of(t.Context(), m, at, explain.Options{GlobalBatch: batch, World: world, Keys: true})
				if err != nil {
					t.Fatal(err)
				}
				i := 0
				for rank, s := range streams {
					b, err := s.Next(t.Context())
					if errors.Is(err, io.EOF) {
						if number < 40 {
							t.Fatalf("the stream ended after %d steps", number)
						}
						return
					}
					if err != nil {
						t.Fatal(err)
					}
					one, err := explain.Of(t.Context(), m, at, explain.Options{GlobalBatch: batch, World: world, OneRank: true, Rank: rank})
					if err != nil || len(one.Samples) != len(b.Samples) {
						t.Fatalf("step %d: %d samples of rank %d, want %d, %v", number, len(one.Samples), rank, len(b.Samples), err)
					}
					for k := range b.Samples {
						got, want := step.Samples[i], &b.Samples[k]
						i++
						if got.Source != want.Source() || got.Number != want.Number || got.Epoch != uint64(want.Epoch) || got.Key != string(want.Key) || got.Padding != want.Padding || got.Rank != rank {
							t.Fatalf("step %d: %+v, want %+v of rank %d", number, got, want, rank)
						}
						if !got.Padding && got.Seed != want.Seed() {
							t.Fatalf("step %d: seed %d, want %d", number, got.Seed, want.Seed())
						}
						if !got.Padding {
							given[got.Source]++
						}
					}
				}
				if i != len(step.Samples) || step.Step != number || step.Position != at.Position {
					t.Fatalf("step %d: %d samples of %d, step %d at %d", number, i, len(step.Samples), step.Step, step.Position)
				}
				for _, s := range step.Sources {
					if tail != order.TailDrop && s.Given+s.InStep != given[s.Name] {
						t.Fatalf("step %d: %+v, but %d were delivered", number, s, given[s.Name])
					}
				}
			}
		})
	}
}

// TestDataset compares every step of one data set with the batches of a stream.
func TestDataset(t *testing.T) {
	for _, tail := range []order.Tail{order.TailWrap, order.TailShort, order.TailDrop, order.TailPad} {
		t.Run(string(tail), func(t *testing.T) {
			ds := dataset(t, "a", 131)
			s, err := ds.Stream(t.Context(), reader.StreamOptions{Shuffle: true, Seed: 3, GlobalBatch: 20, Epochs: 3, Tail: tail, Order: reader.OrderOptions{Lanes: 4, Delay: 2}})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			order := order.Choice{Shuffle: true, Seed: 3, GlobalBatch: 20, Tail: tail, Lanes: 4, Delay: 2}
			whole := run(t, reader.Spec{Sources: []reader.SourceSpec{{Set: ds}}, Order: order})
			for number := uint64(0); ; number++ {
				b, err := s.Next(t.Context())
				if errors.Is(err, io.EOF) && number > 15 {
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				at, err := whole.Step(t.Context(), number, 20)
				if err != nil {
					t.Fatal(err)
				}
				step, err := explain.Of(t.Context(), whole, at, explain.Options{GlobalBatch: 20, Keys: true})
				if err != nil || step.Step != number || len(step.Samples) != len(b.Samples) {
					t.Fatalf("step %d: %+v, %v", number, step, err)
				}
				for k, got := range step.Samples {
					want := &b.Samples[k]
					if got.Number != want.Number || got.Epoch != uint64(want.Epoch) || got.Key != string(want.Key) || got.Padding != want.Padding || !got.Padding && got.Seed != want.Seed() {
						t.Fatalf("step %d: %+v, want %+v", number, got, want)
					}
				}
			}
		})
	}
}

// TestEnd: a step after the end is an error that a caller can tell from others, and so is a data
// set that is not the mix's.
func TestEnd(t *testing.T) {
	spec := mixture(t, order.TailShort)
	for i := range spec.Sources {
		spec.Sources[i].MaxEpochs = 1
	}
	m := run(t, spec)
	if step, err := explain.Of(t.Context(), m, reader.Place{Position: 279}, explain.Options{GlobalBatch: 20}); err != nil || len(step.Samples) != 1 {
		t.Errorf("the last sample: %+v, %v", step, err)
	}
	if _, err := explain.Of(t.Context(), m, reader.Place{Position: 280}, explain.Options{GlobalBatch: 20}); !errors.Is(err, explain.ErrEnd) {
		t.Errorf("after the end: %v", err)
	}
	saved, err := m.Checkpoint(reader.Place{Position: 20}, 20, ledger.Mark{})
	if err != nil {
		t.Fatal(err)
	}
	spec.Sources[1].Set = spec.Sources[0].Set
	var of *mix.SourceError
	if _, err := resolve(t, spec, &saved); !errors.Is(err, order.ErrMismatch) || !errors.As(err, &of) || of.Source != "b" {
		t.Errorf("another data set: %v", err)
	}
}

// TestStanding: a checkpoint stands where its stream stopped, and a place that no position counts
// is refused.
func TestStanding(t *testing.T) {
	s, err := run(t, mixture(t, order.TailWrap)).Stream(t.Context(), reader.StreamOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	given := map[string]uint64{}
	for step := uint64(1); step < 20; step++ {
		b, err := s.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for i := range b.Samples {
			given[b.Samples[i].Source()]++
		}
		cp, err := b.Checkpoint()
		if err != nil {
			t.Fatal(err)
		}
		at, err := explain.Checkpoint(cp)
		if err != nil || at.Step != step || at.Position != 20*step || at.EpochPosition != 20*step%333 {
			t.Fatalf("after step %d: %+v, %v", step, at, err)
		}
		for _, x := range at.Sources {
			if x.Given != given[x.Name] || x.Epoch != x.Given/x.Samples || x.Place != x.Given%x.Samples {
				t.Fatalf("after step %d: %+v, %d were given", step, x, given[x.Name])
			}
		}
		if ahead := len(at.Segments); (ahead == 1) != (at.Position < 300) {
			t.Fatalf("at %d: %d changes to come", at.Position, ahead)
		}
	}
	far := order.Checkpoint{Epoch: 1 << 31, Position: 0, Sources: []order.SourceMark{{Samples: 1 << 60, Weight: 1}}}
	if _, err := explain.Checkpoint(reader.Checkpoint{Dataset: &far}); err == nil {
		t.Error("positions past 2^63")
	}
}
