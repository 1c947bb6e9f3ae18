package writer_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/codec"
	"github.com/shardtool/shardtool/internal/format/tarblock"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/writer"
)

// fits is the payload with which a sample of one field and a short key takes n decoded bytes.
func fits(n int64) int64 { return n - 512 }

// cutItems are samples of one field that take the given decoded bytes, multiples of 512.
func cutItems(decoded ...int64) *synth {
	s := &synth{}
	for i, n := range decoded {
		s.items = append(s.items, item{key: fmt.Sprintf("k%05d", i), size: fits(n), seed: uint64(i)})
	}
	return s
}

// expectCuts works out where blocks and shards end, sample by sample.
func expectCuts(s *synth, opt writer.Options) (shards [][]int) {
	block, shard := int64(0), int64(0)
	samples, total := 0, int64(0)
	var blocks []int
	for i := range s.items {
		n := tarblock.MemberLen(s.items[i].key+".bin", s.items[i].size)
		block, shard, samples, total = block+n, shard+n, samples+1, total+1
		endShard := shard >= opt.ShardSize || (opt.SamplesPerShard > 0 && total == opt.SamplesPerShard)
		if block >= opt.BlockSize || endShard {
			blocks = append(blocks, samples)
			block, samples = 0, 0
		}
		if endShard {
			shards = append(shards, blocks)
			blocks, shard, total = nil, 0, 0
		}
	}
	if samples > 0 {
		blocks = append(blocks, samples)
	}
	if len(blocks) > 0 {
		shards = append(shards, blocks)
	}
	return shards
}

func TestCuts(t *testing.T) {
	const kib = 1 << 10
	repeat := func(n int, sizes ...int64) (out []int64) {
		for range n {
			out = append(out, sizes...)
		}
		return out
	}
	opt := writer.Options{BlockSize: 16 * kib, ShardSize: 64 * kib}
	few := writer.Options{BlockSize: 16 * kib, ShardSize: 64 * kib, SamplesPerShard: 3}
	one := writer.Options{BlockSize: 16 * kib, ShardSize: 64 * kib, SamplesPerShard: 1}
	even := writer.Options{BlockSize: 16 * kib, ShardSize: 16 * kib}
	for name, c := range map[string]struct {
		opt   writer.Options
		sizes []int64
		want  [][]int // by hand; the rest is worked out
	}{
		"exactly a block":            {opt, repeat(4, 8*kib), [][]int{{2, 2}}},
		"512 below a block":          {opt, []int64{8 * kib, 8*kib - 512, 512, 512}, [][]int{{3, 1}}},
		"exactly a shard":            {opt, repeat(8, 16*kib), [][]int{{1, 1, 1, 1}, {1, 1, 1, 1}}},
		"one after a shard":          {opt, repeat(5, 16*kib), [][]int{{1, 1, 1, 1}, {1}}},
		"sample above block":         {opt, []int64{1 * kib, 40 * kib, 1 * kib}, [][]int{{2, 1}}},
		"sample above shard":         {opt, []int64{1 * kib, 100 * kib, 1 * kib}, [][]int{{2}, {1}}},
		"samples per shard":          {few, repeat(7, 8*kib), [][]int{{2, 1}, {2, 1}, {1}}},
		"one sample a shard":         {one, repeat(3, 1*kib), [][]int{{1}, {1}, {1}}},
		"shard closes with a block":  {few, repeat(6, 6*kib), [][]int{{3}, {3}}},
		"block and shard are as one": {even, repeat(5, 8*kib), [][]int{{2}, {2}, {1}}},
		"one sample":                 {opt, []int64{512}, [][]int{{1}}},
		"many":                       {opt, repeat(40, 512, 7*kib, 3*kib, 17*kib), nil},
		"many, few a shard":          {few, repeat(40, 512, 7*kib, 3*kib, 17*kib), nil},
	} {
		t.Run(name, func(t *testing.T) {
			src := cutItems(c.sizes...)
			want := expectCuts(src, c.opt)
			if c.want != nil && !slices.EqualFunc(want, c.want, slices.Equal) {
				t.Fatalf("the test expects %v by hand and %v by rule", c.want, want)
			}
			st := mem.New()
			mustPack(t, st, src, c.opt)
			set := mustLoad(t, st)
			checkSet(t, set, nil, src)
			var got [][]int
			for i := range set.Manifest.Shards {
				got = append(got, set.BlockSamples(i))
			}
			if !slices.EqualFunc(got, want, slices.Equal) {
				t.Fatalf("cut at %v, want %v", got, want)
			}
		})
	}
}

// TestAroundOneFrame: a block of at most 16 MiB is one frame; one byte more makes it two.
func TestAroundOneFrame(t *testing.T) {
	if testing.Short() {
		t.Skip("where blocks are cut: make test runs it without the race detector")
	}
	const most = format.MaxFrame
	for _, plain := range []bool{false, true} {
		for _, c := range []struct {
			before []int64 // decoded bytes of samples in front
			size   int64   // of the payload
			frames int
		}{
			{nil, fits(most) - 1, 1}, {nil, fits(most), 1}, {nil, fits(most) + 1, 2}, {nil, 2*most - 511, 3},
			{[]int64{4096}, fits(most - 4096), 1}, {[]int64{4096}, fits(most-4096) + 1, 2},
		} {
			if !plain && (c.before != nil || c.size < fits(most) || c.size > most) {
				continue // the frames are cut before they are compressed
			}
			src := cutItems(c.before...)
			src.items = append(src.items, item{key: "large", size: c.size, inline: "also inline"}, item{key: "z", size: 3})
			src.items[len(c.before)].inline = ""
			st := mem.New()
			mustPack(t, st, src, writer.Options{Plain: plain, Level: codec.LevelFastest})
			set := mustLoad(t, st)
			checkSet(t, set, nil, src)
			rows := set.Manifest.Shards[0].Rows
			if int(rows[0].Samples) != len(c.before)+1 || len(rows) != c.frames+1 || rows[c.frames].Samples != 1 {
				t.Fatalf("plain %v, %d bytes behind %v: rows %+v", plain, c.size, c.before, rows)
			}
		}
	}
}
