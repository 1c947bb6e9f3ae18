package window

import (
	"fmt"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/figures/account"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/internal/format/stacked"
	"github.com/shardtool/shardtool/internal/format/tarblock"
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
		headers      int
		layout       *stacked.Layout
		scratch, not bool // packed with scratch, and without
	}{
		"compressed":        {rows: []format.Row{row(zstd, 1<<20, 800)}, scratch: true, not: true},
		"large, compressed": {rows: []format.Row{row(zstd, 1<<20, 100)}},
		"much is headers":   {rows: []format.Row{row(zstd, 1<<20, 250)}, headers: 2400, scratch: true, not: true},
		"less is headers":   {rows: []format.Row{row(zstd, 1<<20, 250)}, headers: 2000},
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
		p := Piece{Job: fetch.Job{Shard: &fetch.Shard{ShardInfo: &metadata.ShardInfo{Layout: c.layout}, Rows: c.rows, Headers: c.headers}, To: len(c.rows)}}
		if p.packs(true) != c.scratch || p.packs(false) != c.not {
			t.Errorf("%s: packed %v, without scratch %v", name, p.packs(true), p.packs(false))
		}
	}
}

// TestPackedMemory: a packed piece holds about what its samples need, whatever the tables let
// expect, and gives all of it back.
func TestPackedMemory(t *testing.T) {
	const blocks, samples, size = 4, 500, 10
	var layout tarblock.Builder
	for i := range samples {
		layout.Member(fmt.Sprintf("%04d.x", i), size)
	}
	kept := samples * (4 + size)
	for name, headers := range map[string]int{"as expected": 1024 - size, "too little": 2000, "too much": 600, "nothing known": 0} {
		w := New(64<<20, new(account.Clock))
		s := &fetch.Shard{ShardInfo: &metadata.ShardInfo{FirstKey: "0000", LastKey: "0499"}, Headers: headers}
		for range blocks {
			s.Rows = append(s.Rows, format.Row{Decoded: uint32(len(layout.Buf)), Samples: samples, Codec: format.CodecZstd})
		}
		u, slot := w.Begin(), w.OpenSlot()
		p := w.Open(slot, ID{}, func(p *Piece) {
			p.Job, p.Blocks = fetch.Job{Shard: s, To: blocks}, blocks
			p.Arrange(true)
		})
		u.Pieces = append(u.Pieces, p)
		w.Pin(u, 0, 1)
		w.Release(u)
		if !p.Packed || w.Admit(u, p, 0, true) != Admitted {
			t.Fatalf("%s: not packed, or not admitted", name)
		}
		f := Filler{Window: w, piece: p, packed: make([]packing, blocks)}
		f.room = f.cut
		for range 2 { // a second read begins anew
			for i := range blocks {
				f.pack(&fetch.Result{Shard: s, Block: i, Samples: samples, Decoded: layout.Buf}, i*len(layout.Buf))
			}
		}
		f.shrink()
		for i := range blocks {
			p.addPacked(&fetch.Result{First: uint64(i * samples)}, f.packed[i])
			key, fields, _, err := p.Table.Sample(i, samples-1, uint64(i*samples+samples-1), nil, nil)
			if err != nil || string(key) != "0499" || len(fields) != 1 || string(fields[0].Name) != "x" || len(fields[0].Data) != size {
				t.Fatalf("%s: %q %+v %v", name, key, fields, err)
			}
		}
		most := int64(blocks * kept * 3 / 2)
		if name == "too little" { // its blocks were packed twice
			most *= 2
		}
		if got := w.pool.Lent(); got < int64(blocks*kept) || got > most {
			t.Errorf("%s: %d bytes are held for %d", name, got, blocks*kept)
		}
		p.Land()
		u.Closed = append(u.Closed, slot)
		w.Release(u)
		if w.pool.Lent() != 0 {
			t.Errorf("%s: %d bytes are out after the last release", name, w.pool.Lent())
		}
	}
}
