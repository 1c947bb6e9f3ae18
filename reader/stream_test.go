package reader

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/shardtool/shardtool/internal/testset"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
)

// TestStreamEvictsWhenItMust has a window of 4 MB in a budget of 1.
func TestStreamEvictsWhenItMust(t *testing.T) {
	watch(t)
	set := newStreamed(t, mem.New(), mixed(3000), testset.Options{BlockSize: 16 << 10, ShardSize: 200 << 10})
	o := StreamOptions{Shuffle: true, GlobalBatch: 64, Epochs: 2, Order: OrderOptions{Lanes: 64, Delay: 16}, Tuning: Tuning{Memory: 1 << 20, Workers: 1}}
	f := set.follow(t, o)
	f.rest(t)
	stats := f.Stats()
	if stats.Held > o.Tuning.Memory || stats.Held < o.Tuning.Memory/4 {
		t.Errorf("%d bytes were held with a budget of %d", stats.Held, o.Tuning.Memory)
	}
	if stats.Evicted == 0 || stats.Blocks < 2*set.Info().Blocks+stats.Evicted/2 {
		t.Errorf("%+v: nothing was evicted, or not read again", stats)
	}
	o.Tuning.Memory = 0
	f = set.follow(t, o)
	f.rest(t)
	if stats := f.Stats(); stats.Evicted != 0 || stats.Blocks > 2*(set.Info().Blocks+uint64(o.Order.Lanes)) {
		t.Errorf("%+v: each of %d blocks is to be read once an epoch, those that an end of a lane cuts twice", stats, set.Info().Blocks)
	}
}

// TestStreamUnshuffledOnRanks: every rank of two reads from 48 arcs at a time; each block is read
// once, within the default budget and in a tight one.
func TestStreamUnshuffledOnRanks(t *testing.T) {
	watch(t)
	samples := make([]testset.Sample, 900)
	for i := range samples {
		samples[i] = testset.Sample{Key: fmt.Sprint(i), Fields: []testset.Field{{Name: "x", Data: bytes.Repeat([]byte{byte(i)}, 100_000)}}}
	}
	set := newStreamed(t, mem.New(), samples, testset.Options{BlockSize: 400_000, ShardSize: 8 << 20})
	for _, memory := range []int64{0, 48 << 20} {
		blocks := uint64(0)
		for rank := range 2 {
			f := set.follow(t, StreamOptions{GlobalBatch: 64, Rank: rank, World: 2, Epochs: 2, Tuning: Tuning{Memory: memory, Workers: 1}})
			f.rest(t)
			stats := f.Stats()
			if blocks += stats.Blocks; stats.Evicted != 0 {
				t.Errorf("memory %d: %+v", memory, stats)
			}
			f.Close()
		}
		if most := 2 * (set.Info().Blocks + 96 + 2); blocks > most {
			t.Errorf("memory %d: %d blocks were read, want at most %d", memory, blocks, most)
		}
	}
}

func TestStreamResumesAtEveryBatch(t *testing.T) {
	watch(t)
	set := newStreamed(t, mem.New(), mixed(300), testset.Options{BlockSize: 9000, ShardSize: 60_000})
	o := StreamOptions{Shuffle: true, GlobalBatch: 16, Epochs: 2, Seed: 5, Order: OrderOptions{Lanes: 6, Delay: 3}}
	s := set.stream(t, o)
	var marks []Checkpoint
	for b, err := range s.Batches(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		cp, err := b.Checkpoint()
		if err != nil {
			t.Fatal(err)
		}
		now, err := s.Checkpoint()
		if err != nil || now.Place() != cp.Place() {
			t.Fatalf("checkpoints of batch and stream differ: %+v, %+v, %v", cp, now, err)
		}
		marks = append(marks, cp)
	}
	if _, err := s.Next(t.Context()); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	for i, cp := range marks {
		f := set.follow(t, StreamOptions{Checkpoint: throughText(t, cp), Epochs: 2})
		if n := f.rest(t); n != len(marks)-1-i {
			t.Fatalf("%d batches behind batch %d of %d", n, i, len(marks))
		}
		f.Close()
	}
}
