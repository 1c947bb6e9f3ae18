package window

import (
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/sections"
	"github.com/shardtool/shardtool/internal/stacked"
	"github.com/shardtool/shardtool/reader/internal/block"
	"github.com/shardtool/shardtool/reader/internal/fetch"
)

// TestPacks checks which pieces are packed: those of whole tar blocks that fit the cache and of
// which headers are much; stored raw, only where there is scratch to read them to.
func TestPacks(t *testing.T) {
	const zstd, raw, plain = format.CodecZstd, format.CodecRaw, format.CodecBytes
	row := func(codec format.Codec, decoded, samples uint32) format.Row {
		return format.Row{Stored: decoded, Decoded: decoded, Samples: samples, Codec: codec}
	}
	for name, c := range map[string]struct {
		rows         []format.Row
		layout       *stacked.Layout
		scratch, not bool // packed with scratch, and without
	}{
		"compressed":        {rows: []format.Row{row(zstd, 1<<20, 800)}, scratch: true, not: true},
		"large, compressed": {rows: []format.Row{row(zstd, 1<<20, 100)}},
		"several":           {rows: []format.Row{row(zstd, 1<<20, 800), row(zstd, 1<<20, 900)}, scratch: true, not: true},
		"small, raw":        {rows: []format.Row{row(raw, 1<<20, 800)}, scratch: true},
		"small, plain":      {rows: []format.Row{row(plain, 1<<20, 800)}, scratch: true},
		"one is raw":        {rows: []format.Row{row(zstd, 1<<20, 800), row(raw, 1<<20, 800)}, scratch: true},
		"large, raw":        {rows: []format.Row{row(raw, 1<<20, 100)}},
		"large, plain":      {rows: []format.Row{row(plain, 1<<20, 100)}},
		"one is large":      {rows: []format.Row{row(raw, 1<<20, 800), row(raw, 1<<20, 100)}},
		"large blocks":      {rows: []format.Row{row(zstd, block.MostPacked+1, 4000)}},
		"of several frames": {rows: []format.Row{row(zstd, 1<<20, 4), row(zstd, 1<<20, 0)}},
		"rows":              {rows: []format.Row{row(zstd, 1<<20, 800)}, layout: &stacked.Layout{}},
	} {
		p := Piece{Job: fetch.Job{Shard: &fetch.Shard{ShardInfo: &sections.ShardInfo{Layout: c.layout}, Rows: c.rows}, To: len(c.rows)}}
		if p.packs(true) != c.scratch || p.packs(false) != c.not {
			t.Errorf("%s: packed %v, without scratch %v", name, p.packs(true), p.packs(false))
		}
	}
}
