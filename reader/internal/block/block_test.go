package block

import (
	"errors"
	"fmt"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/tarblock"
)

// tarBlock returns a block of n samples with two fields each: b holds the sample's name, and a
// nothing.
func tarBlock(prefix string, n int) []byte {
	var b tarblock.Builder
	for i := range n {
		key := fmt.Sprintf("%s%d", prefix, i)
		b.Member(format.JoinName(key, "a"), 0)
		at := b.Member(format.JoinName(key, "b"), len(key))
		copy(b.Buf[at:], key)
	}
	return b.Buf
}

// TestTable finds every sample of two blocks, and refuses what does not belong together.
func TestTable(t *testing.T) {
	var table Table
	for range 2 { // the second time with used memory
		for i, prefix := range []string{"x", "y"} {
			if err := table.Add(tarBlock(prefix, 3), uint64(10*i), 3, Kind{}); err != nil {
				t.Fatal(err)
			}
		}
		if table.Len() != 2 {
			t.Fatalf("%d blocks", table.Len())
		}
		var fields []format.FieldView
		for blk, prefix := range []string{"x", "y"} {
			for i := range 3 {
				key, fs, _, err := table.Sample(blk, i, uint64(10*blk+i), fields[:0], nil)
				want := fmt.Sprintf("%s%d", prefix, i)
				if err != nil || string(key) != want || len(fs) != 2 || string(fs[0].Name) != "a" || len(fs[0].Data) != 0 ||
					string(fs[1].Name) != "b" || string(fs[1].Data) != want {
					t.Fatalf("sample %d of block %d: %q %v %v", i, blk, key, fs, err)
				}
			}
		}
		for _, wrong := range []struct{ index, number int }{{3, 3}, {0, 1}, {1, 0}} {
			if _, _, _, err := table.Sample(0, wrong.index, uint64(wrong.number), nil, nil); !errors.Is(err, format.ErrMismatch) {
				t.Errorf("%+v: %v", wrong, err)
			}
		}
		table.Reset()
	}
}

// TestDamage checks that a block with another number of samples, or a damaged header, is an error
// that leaves the table as it was.
func TestDamage(t *testing.T) {
	var table Table
	if err := table.Add(tarBlock("x", 2), 0, 2, Kind{}); err != nil {
		t.Fatal(err)
	}
	damaged := tarBlock("y", 2)
	damaged[512+257] ^= 1 // the magic of the second header
	for _, c := range []struct {
		data  []byte
		count int
	}{{tarBlock("y", 2), 1}, {tarBlock("y", 2), 3}, {damaged, 2}, {damaged[:700], 2}} {
		if err := table.Add(c.data, 2, c.count, Kind{}); !errors.Is(err, format.ErrCorrupt) {
			t.Errorf("%d bytes, %d samples: %v", len(c.data), c.count, err)
		}
	}
	mine := errors.New("mine")
	table.AddError(mine)
	if table.Len() != 2 || table.Err(0) != nil || table.Err(1) != mine {
		t.Errorf("%d blocks, %v, %v", table.Len(), table.Err(0), table.Err(1))
	}
	if key, _, _, err := table.Sample(0, 1, 1, nil, nil); err != nil || string(key) != "x1" {
		t.Errorf("%q, %v", key, err)
	}
}
