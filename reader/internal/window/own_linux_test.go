package window

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/format/codec"
	"github.com/shardtool/shardtool/format/samplekey"
	"github.com/shardtool/shardtool/format/sections"
	"github.com/shardtool/shardtool/format/stacked"
	"github.com/shardtool/shardtool/objstore/local"
	"github.com/shardtool/shardtool/reader/internal/account"
	"github.com/shardtool/shardtool/reader/internal/block"
	"github.com/shardtool/shardtool/reader/internal/fetch"
)

// stackedShard puts a plain shard of blocks of rows into a folder.
func stackedShard(t *testing.T, dir string) *fetch.Shard {
	t.Helper()
	const blocks, n = 3, 50
	l := &stacked.Layout{Fields: []stacked.Field{{Name: "a.npy", DType: "<u2", Shape: []int64{40}}}}
	of := &fetch.Shard{ShardInfo: &sections.ShardInfo{Name: "s.tar"}}
	of.Layout, of.Numbered = l, samplekey.Ranges{{Prefix: "k", Digits: 9, Count: blocks * n}}
	var all []byte
	for b := range blocks {
		built, _, _ := stacked.NewBlock(nil, l, uint64(b*n), n, 0)
		for k := range n {
			copy(built.Row(0, k), bytes.Repeat([]byte{byte(b*n + k)}, 80))
		}
		size := uint32(len(built.Buf))
		of.Rows = append(of.Rows, format.Row{Stored: size, Decoded: size, Samples: n, CRC: codec.UpdateChecksum(0, built.Buf)})
		all = append(all, built.Buf...)
	}
	of.Size, of.Samples = uint64(len(all)), blocks*n
	if err := os.WriteFile(filepath.Join(dir, of.Name), all, 0o644); err != nil {
		t.Fatal(err)
	}
	store, err := local.New(dir, local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	of.Source = fetch.NewSource(store)
	t.Cleanup(of.Source.Close)
	time.Sleep(100 * time.Millisecond) // a file that changed just now is not mapped
	return of
}

// TestTwoShardsOfOneObject: tables may name an object twice, with other rows. What was compared of one
// shard is not taken as compared for the other.
func TestTwoShardsOfOneObject(t *testing.T) {
	of := stackedShard(t, t.TempDir())
	other := &fetch.Shard{ShardInfo: of.ShardInfo, Source: of.Source, Rows: slices.Clone(of.Rows)}
	other.Rows[1].CRC++
	many := &fetch.Shard{ShardInfo: of.ShardInfo, Source: of.Source}
	for range 100 {
		many.Rows = append(many.Rows, format.Row{Stored: 1, Decoded: 1, Samples: 1})
	}
	for i, c := range []struct {
		of           *fetch.Shard
		first, count int
		mapped       bool
	}{{of, 0, 3, true}, {other, 0, 3, false}, {of, 0, 3, true}, {many, 80, 3, false}} {
		p := &Piece{Job: c.of.BlockRange(c.first, c.count), Blocks: c.count, Table: new(block.Table)}
		p.Plan = p.Job.Plan(of.Source.Joined())
		p.Buf = make([]byte, p.Plan.Size)
		f := Filler{Worker: fetch.Worker{Scratch: new(fetch.ScratchPool).Get(), KeepGoing: true}, Mapped: true}
		f.Fill(t.Context(), p)
		defer p.InPlace.Release()
		if i == 0 && p.Mapped() == nil {
			t.Skip("files are not mapped here")
		}
		if (p.Mapped() != nil) != c.mapped {
			t.Fatalf("shard %d: used in place: %v", i, p.Mapped() != nil)
		}
	}
}

// TestOwn fills a piece that is mapped, and has it in memory after that: what a batch has of the
// mapping stays as it is until the piece is dropped.
func TestOwn(t *testing.T) {
	of := stackedShard(t, t.TempDir())
	w := New(1<<20, new(account.Clock))
	defer w.Close()
	slot := w.OpenSlot()
	piece := w.Open(slot, ID{}, func(p *Piece) {
		p.Job, p.Blocks = of.BlockRange(0, 3), 3
		p.Plan = p.Job.Plan(of.Source.Joined())
	})
	use := w.Begin()
	use.Pieces = append(use.Pieces, piece)
	w.Pin(use, 0, 1)
	if w.Admit(use, piece, 0, true) != Admitted {
		t.Fatal("not admitted")
	}
	f := Filler{Worker: fetch.Worker{Scratch: new(fetch.ScratchPool).Get(), KeepGoing: true}, Mapped: true}
	f.Fill(t.Context(), piece)
	piece.Land()
	if piece.Mapped() == nil {
		t.Skip("files are not mapped here")
	}
	use.Arrays.Add(piece.Table, 0, 1, piece.Mapped())
	f.Own(t.Context(), piece)
	use.Arrays.Add(piece.Table, 0, 1, piece.Mapped())
	if piece.Mapped() != nil {
		t.Error("the table is still that of the mapping")
	}
	for b := range 3 {
		if err := piece.Table.Err(b); err != nil {
			t.Fatal(err)
		}
		before, after := use.Arrays.Rows[0][b], use.Arrays.Rows[0][3+b]
		if !bytes.Equal(before, after) || &before[0] == &after[0] || after[80] != byte(50*b+1) {
			t.Errorf("block %d has other rows, or is not in memory", b)
		}
		if use.Arrays.InPlace[b] == nil || use.Arrays.InPlace[3+b] != nil {
			t.Errorf("block %d is not where it should be", b)
		}
	}
	if err := os.Truncate(filepath.Join(of.Source.Store.String(), of.Name), 0); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	if row := use.Arrays.Rows[0][3]; row[0] != 0 || row[80*49] != 49 {
		t.Error("what is in memory changed with the file")
	}
	use.Closed = append(use.Closed, slot)
	w.Release(use)
	if !w.Release(use) || piece.InPlace != nil || piece.Owned {
		t.Error("the mapping is kept though nothing uses the piece")
	}
}
