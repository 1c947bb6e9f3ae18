package writer_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/shardtool/shardtool/internal/format/codec"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/writer"
)

// same are n samples of this many decoded bytes.
func same(n int, decoded int64) *synth {
	sizes := make([]int64, n)
	for i := range sizes {
		sizes[i] = decoded
	}
	return cutItems(sizes...)
}

// TestDefaultBlocks: without a block size given, blocks of small samples are smaller; a given size
// is used for all.
func TestDefaultBlocks(t *testing.T) {
	const kib = 1 << 10
	for name, c := range map[string]struct {
		src  *synth
		size int64
		want []int // samples of the first blocks
	}{
		"labels":              {same(600, 1*kib), 0, []int{256, 256, 88}},
		"text":                {same(200, 3584), 0, []int{74, 74, 52}}, // 74 · 3.5 KiB = 259 KiB
		"text, given":         {same(400, 3584), 1 << 20, []int{293, 107}},
		"64 at 256 KiB":       {same(130, 4*kib), 0, []int{64, 64, 2}},
		"256 KiB, too few":    {same(130, 4*kib+512), 0, []int{64, 64, 2}},
		"pages":               {same(130, 8*kib), 0, []int{64, 64, 2}}, // 512 KiB
		"pictures":            {same(80, 20*kib), 0, []int{52, 28}},
		"pictures, given":     {same(80, 20*kib), 256 << 10, []int{13, 13, 13, 13, 13, 13, 2}},
		"64 at 1 MiB":         {same(65, 16*kib), 0, []int{64, 1}},
		"one of 2 MiB":        {same(2, 2<<20), 0, []int{1, 1}},
		"many after a larger": {cutItems(append([]int64{300 * kib}, slices.Repeat([]int64{1 * kib}, 70)...)...), 0, []int{64, 7}},
	} {
		st := mem.New()
		mustPack(t, st, c.src, writer.Options{Name: "d", BlockSize: c.size, Level: codec.LevelFastest})
		if got := mustLoad(t, st).BlockSamples(0); !slices.Equal(got, c.want) {
			t.Errorf("%s: blocks of %v samples, want %v", name, got, c.want)
		}
	}
}

// TestDefaultBlocksApart: shards that earlier versions began with their default, 1 MiB whatever the
// samples, are not continued with today's, and parts of both are not put together.
func TestDefaultBlocksApart(t *testing.T) {
	src := func() *synth { return same(900, 3584) }
	now := writer.Options{Name: "d", ShardSize: 1 << 20, Level: codec.LevelFastest}
	before := now
	before.BlockSize = 1 << 20

	st := mem.New()
	broken := src()
	broken.items[800].open = errRead
	if _, err := writer.Pack(t.Context(), st, broken, before); !errors.Is(err, errRead) {
		t.Fatal(err)
	}
	now.Resume = true
	if _, err := writer.Pack(t.Context(), st, src(), now); !errors.Is(err, writer.ErrSource) {
		t.Errorf("resumed with other blocks: %v", err)
	}
	before.Resume = true
	if res := mustPack(t, st, src(), before); res.Adopted == 0 {
		t.Error("nothing was adopted: the test misses what it is for")
	}

	st = mem.New()
	mustPart(t, st, src(), 0, 2, before)
	mustPart(t, st, src(), 1, 2, now)
	if _, err := writer.Commit(t.Context(), st, writer.CommitOptions{Parts: 2}); !errors.Is(err, writer.ErrSource) {
		t.Errorf("parts with other blocks: %v", err)
	}
}
