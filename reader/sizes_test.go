package reader

import (
	"context"
	"fmt"
	"testing"

	"github.com/shardtool/shardtool/internal/testset"
)

// TestBegun bounds the memory for the blocks that a batch begins: by one for each sample where
// samples are large, and by some runs where a block has very many.
func TestBegun(t *testing.T) {
	const mib = 1 << 20
	for name, c := range map[string]struct {
		of         need
		batch      float64
		from, upTo float64
	}{
		"rows of 64 B in blocks of 256 KiB": {need{sample: 64, block: mib / 4, decoded: 2 * mib}, 4096, 4 * 2 * mib, 16 * mib},
		"samples as large as blocks":        {need{sample: mib, block: mib, decoded: 8 * mib}, 256, 256 * mib, 256 * mib},
		"samples of 100 KB":                 {need{sample: 100e3, block: mib, decoded: 8 * mib}, 256, 25.6e6, 120e6},
		"one sample":                        {need{sample: 3000, block: mib, decoded: 8 * mib}, 1, mib, mib},
	} {
		if got := c.of.begun(c.batch, 1); got < c.from || got > c.upTo {
			t.Errorf("%s: %.0f bytes, not from %.0f to %.0f", name, got, c.from, c.upTo)
		}
	}
}

// TestMemoryOfBatches: with the default memory, a batch in hand may hold every block that it can
// draw from, so that its samples need not be copied out of them.
func TestMemoryOfBatches(t *testing.T) {
	const mib, rest = 1 << 20, 10 << 20
	of := need{live: 96 * mib, held: 100 * mib, all: 1000 * mib, sample: 200, block: 1.05 * mib, decoded: 8 * mib}
	for _, samples := range []float64{1, 32, 96, 512, 100_000} {
		share := float64(of.memory(&StreamOptions{}, samples, 0, rest)-rest) / 2
		if most := min(of.held, of.block*samples); share < most {
			t.Errorf("%.0f samples: a batch may hold %.0f bytes, and draws from %.0f", samples, share, most)
		}
	}
}

// TestNoCopiesOfLargeBatches: with the default memory, the samples of a batch are views also where
// a batch has nearly as many bytes as the order mixes, so that many of its blocks begin in it.
func TestNoCopiesOfLargeBatches(t *testing.T) {
	if testing.Short() {
		t.Skip("450 MB through the goroutines that TestStreamEqualsPlan has: make test runs it without the race detector")
	}
	var samples []testset.Sample
	for i := range 1500 {
		samples = append(samples, testset.Sample{Key: fmt.Sprintf("%04d", i), Fields: []testset.Field{{Name: "x", Data: make([]byte, 100_000)}}})
	}
	d := newStreamed(t, inDir(t), samples, testset.Options{Raw: true})
	s := d.stream(t, StreamOptions{Shuffle: true, GlobalBatch: 256, Epochs: 3, Order: OrderOptions{ShuffleMemory: 32 << 20}})
	copied := 0
	for b, err := range s.Batches(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		copied += b.copied()
	}
	if st := s.Stats(); copied > 0 || st.Evicted > 0 {
		t.Errorf("with %d bytes %d batches were copied, and %d blocks were evicted", s.Info().Memory, copied, st.Evicted)
	}
}

// TestBatchesReady: small batches lie ready in larger numbers, but in a part of a given memory; and
// few with Map, since what it makes of a sample counts nowhere.
func TestBatchesReady(t *testing.T) {
	var samples []testset.Sample
	for i := range 100 {
		samples = append(samples, testset.Sample{Key: fmt.Sprintf("%04d", i), Fields: []testset.Field{{Name: "x", Data: make([]byte, 100)}}})
	}
	d := newStreamed(t, inDir(t), samples, testset.Options{})
	plain := d.stream(t, StreamOptions{GlobalBatch: 8})
	small := d.stream(t, StreamOptions{GlobalBatch: 8, Tuning: Tuning{Memory: 1 << 20}})
	made := d.stream(t, StreamOptions{GlobalBatch: 8, Map: func(context.Context, *Sample) error { return nil }})
	if plain.sizes.queue != mostQueued || made.sizes.queue != 2 || small.sizes.queue*8*(100+sampleCost) > 1<<20/queuedPart {
		t.Errorf("%d batches lie ready, in little memory %d, with Map %d", plain.sizes.queue, small.sizes.queue, made.sizes.queue)
	}
}
