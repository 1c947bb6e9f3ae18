package window

import (
	"errors"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/internal/format/tarblock"
	"github.com/shardtool/shardtool/reader/internal/block"
	"github.com/shardtool/shardtool/reader/internal/fetch"
)

// TestErrorsHavePlaces checks that damage inside a block whose checksum is right is an error at the
// block's place in the object.
func TestErrorsHavePlaces(t *testing.T) {
	var layout tarblock.Builder
	layout.Member("a.x", 1)
	layout.Member("b.x", 1)
	of := &fetch.Shard{ShardInfo: &metadata.ShardInfo{Name: "s.tar.zst"}}
	head := fetch.Result{Shard: of, Block: 3, Offset: 8192, Samples: 2}
	index := func() error {
		p := Piece{Table: new(block.Table)}
		p.add([]fetch.Result{head}, layout.Buf)
		return p.Table.Err(0)
	}
	if err := index(); err != nil {
		t.Fatal(err)
	}
	layout.Buf[1024+257] = 'x' // the magic of the second header
	err := index()
	var at *format.PosError
	if !errors.Is(err, format.ErrCorrupt) || !errors.As(err, &at) {
		t.Fatal(err)
	}
	if at.Shard != of.Name || at.Block != 3 || at.Offset != 8192 || !strings.Contains(err.Error(), "offset 1024 in the decoded block") {
		t.Errorf("%v", err)
	}
}
