package assemble

import (
	"context"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/format/codec"
	"github.com/shardtool/shardtool/format/stacked"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/reader/internal/block"
	"github.com/shardtool/shardtool/reader/internal/fetch"
	"github.com/shardtool/shardtool/reader/internal/mapped"
	"github.com/shardtool/shardtool/reader/internal/planner"
	"github.com/shardtool/shardtool/reader/internal/window"
)

// file is a file in memory.
type file struct {
	objstore.Object
	mem     []byte
	version objstore.Version
}

func (f *file) Cached(int64, int) bool                 { return true }
func (f *file) Version() (objstore.Version, error)     { return f.version, nil }
func (f *file) Map() ([]byte, objstore.Version, error) { return f.mem, f.version, nil }

// TestStaleBlocksAreRead: once a file has got another version, the checksums of its blocks would be
// compared with each batch. They are read, once.
func TestStaleBlocksAreRead(t *testing.T) {
	f := &file{mem: []byte("rows")}
	rows := []format.Row{{Stored: 4, Decoded: 4, Samples: 1, CRC: codec.UpdateChecksum(0, f.mem)}}
	opened, err := mapped.Open("s.tar", f, rows)
	if err != nil {
		t.Fatal(err)
	}
	p := &window.Piece{Table: new(block.Table), InPlace: &fetch.InPlace{Blocks: mapped.Blocks{File: opened, Rows: rows}}}
	d := &planner.Draft{Use: new(window.Use)}
	owned := 0
	a := Assembler{Own: func(_ context.Context, p *window.Piece) { p.Owned, owned = true, owned+1 }}
	copyBatch := func() {
		t.Helper()
		if err := mapped.Copy(d.Arrays.Files, func() []*mapped.Blocks { return []*mapped.Blocks{&p.InPlace.Blocks} }, func() {}); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		a.add(t.Context(), d, p, new(stacked.Layout))
		copyBatch()
	}
	if owned != 0 {
		t.Fatal("blocks of a file that has not changed were read")
	}
	f.version.Changed++
	for range 2 {
		copyBatch()
		a.add(t.Context(), d, p, new(stacked.Layout))
	}
	if owned != 1 {
		t.Errorf("blocks of a file that has changed were read %d times", owned)
	}
}
