package explain_test

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"

	"github.com/shardtool/shardtool/cmd/shardtool/internal/explain"
	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/mix"
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
func mixture(t *testing.T, tail order.Tail) reader.Mix {
	t.Helper()
	m := mix.Mix{Seed: 7, Shuffle: true, Tail: tail, Epoch: 333, Segments: []mix.Segment{{Weights: []uint64{5, 3, 0}}, {At: 300, Weights: []uint64{1, 1, 2}}}}
	var out reader.Mix
	for i, n := range []int{150, 90, 40} {
		name := string(rune('a' + i))
		ds := dataset(t, name, n)
		out.Sets = append(out.Sets, ds)
		m.Sources = append(m.Sources, mix.Source{
			Name: name, Digest: format.DigestString(ds.Digest()), Units: uint64(n), Lanes: 3, RunBlocks: 1, Delay: 4, Head: 2, Affinity: order.AffinityEpoch,
		})
	}
	m.Sources[1].MaxEpochs = 2
	var err error
	if out.Plan, err = mix.New(m); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestMix compares every step with the batches of a stream: samples, keys, seeds, ranks and counts.
func TestMix(t *testing.T) {
	for _, tail := range []order.Tail{order.TailWrap, order.TailShort, order.TailDrop, order.TailPad} {
		t.Run(string(tail), func(t *testing.T) {
			const batch, world = 20, 3
			m := mixture(t, tail)
			p := m.Plan.Mix()
			given := map[string]uint64{}
			streams := make([]*reader.Stream, world)
			for r := range streams {
				var err error
				streams[r], err = reader.OpenMix(t.Context(), m, reader.StreamOptions{Order: reader.Order{GlobalBatch: batch, Rank: r, World: world, Epochs: 3}})
				if err != nil {
					t.Fatal(err)
				}
				defer streams[r].Close()
			}
			for number := uint64(0); ; number++ {
				at, err := p.Position(mix.Steps{GlobalBatch: batch}, number)
				if err != nil {
					t.Fatal(err)
				}
				step, err := explain.Mix(t.Context(), m, at, explain.Options{GlobalBatch: batch, World: world, Keys: true})
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
					one, err := explain.Mix(t.Context(), m, at, explain.Options{GlobalBatch: batch, World: world, OneRank: true, Rank: rank})
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
				if i != len(step.Samples) || step.Step != number || step.Position != at {
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
			s, err := ds.Stream(t.Context(), reader.StreamOptions{Order: reader.Order{Shuffle: true, Seed: 3, GlobalBatch: 20, Epochs: 3, Tail: tail, Lanes: 4, Delay: 2}})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			steps := explain.DatasetSteps(s.Info().Plan)
			for number := uint64(0); ; number++ {
				b, err := s.Next(t.Context())
				if errors.Is(err, io.EOF) && number > 15 {
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				at, err := steps.Position(mix.Steps{GlobalBatch: 20}, number)
				if err != nil {
					t.Fatal(err)
				}
				step, err := explain.Dataset(t.Context(), ds, s.Info().Plan, at/131, at%131, explain.Options{GlobalBatch: 20, Keys: true})
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
	m := mixture(t, order.TailShort)
	x := m.Plan.Mix()
	for i := range x.Sources {
		x.Sources[i].MaxEpochs = 1
	}
	var err error
	if m.Plan, err = mix.New(x); err != nil {
		t.Fatal(err)
	}
	if step, err := explain.Mix(t.Context(), m, 279, explain.Options{GlobalBatch: 20}); err != nil || len(step.Samples) != 1 {
		t.Errorf("the last sample: %+v, %v", step, err)
	}
	if _, err := explain.Mix(t.Context(), m, 280, explain.Options{GlobalBatch: 20}); !errors.Is(err, explain.ErrEnd) {
		t.Errorf("after the end: %v", err)
	}
	m.Sets[1] = m.Sets[0]
	var of *mix.SourceError
	if _, err := explain.Mix(t.Context(), m, 0, explain.Options{GlobalBatch: 20}); !errors.Is(err, order.ErrMismatch) || !errors.As(err, &of) || of.Source != "b" {
		t.Errorf("another data set: %v", err)
	}
}

// TestStanding: a checkpoint stands where its stream stopped, and a place that no position counts
// is refused.
func TestStanding(t *testing.T) {
	m := mixture(t, order.TailWrap)
	s, err := reader.OpenMix(t.Context(), m, reader.StreamOptions{Order: reader.Order{GlobalBatch: 20}})
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
