package reader

import (
	"errors"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/format"
)

// TestPieceErrorsHavePlaces: what is wrong inside a block whose checksum is right is an error at the block's place in the object.
func TestPieceErrorsHavePlaces(t *testing.T) {
	var layout format.BlockBuilder
	layout.Member("a.x", 1)
	layout.Member("b.x", 1)
	of := &shard{ShardInfo: &format.ShardInfo{Name: "s.tar.zst"}}
	head := result{Frame: Frame{Block: 3, Offset: 8192, Samples: 2, shard: of}}
	index := func() error {
		p := piece{sampleTable: &sampleTable{}}
		return p.index([]result{head}, layout.Buf).err
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
