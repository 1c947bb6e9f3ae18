package block

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/format/codec"
	"github.com/shardtool/shardtool/format/tarblock"
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

// TestSegments finds samples in parts of a buffer, the fields of one in two of them. An error has its
// offset in the decoded block, and leaves the table as it was.
func TestSegments(t *testing.T) {
	block := tarBlock("x", 3) // members of 512 and 1,024 bytes in turn
	const cut, gap = 2*512 + 1024, 100
	stored := slices.Concat(make([]byte, gap), block[:cut], make([]byte, gap), block[cut:])
	at := []codec.Segment{{Begin: gap, End: gap + cut}, {Begin: 2*gap + cut, End: len(stored), At: cut}}
	var table Table
	for i, damaged := range []bool{false, true} {
		if damaged {
			stored[2*gap+cut+1024+257] ^= 1 // the magic of the header after the first member
		}
		err := table.AddSegments(stored, at, 7, 3)
		var pos *format.PosError
		if damaged && (!errors.As(err, &pos) || pos.Offset != cut+1024 || !errors.Is(err, format.ErrCorrupt)) || !damaged && err != nil {
			t.Fatal(err)
		}
		if table.Len() != 1 {
			t.Fatalf("%d blocks after %d calls", table.Len(), i+1)
		}
	}
	for i := range 3 {
		key, fields, _, err := table.Sample(0, i, uint64(7+i), nil, nil)
		if want := fmt.Sprintf("x%d", i); err != nil || string(key) != want || len(fields) != 2 || string(fields[1].Data) != want {
			t.Errorf("sample %d: %q %v %v", i, key, fields, err)
		}
	}
	if err := table.AddSegments(stored[:gap+cut], at[:1], 10, 3); !errors.Is(err, format.ErrCorrupt) {
		t.Errorf("a part of a block: %v", err)
	}
}

// TestTouch touches each sample, and places where there is none: an empty field that ends its
// block, a sample past the end, a block that cannot be used.
func TestTouch(t *testing.T) {
	var b tarblock.Builder
	at := b.Member("k.a", 1)
	b.Buf[at] = 'K'
	b.Member("l.a", 0)
	var table Table
	for blk, data := range [][]byte{b.Buf, tarBlock("x", 1)} {
		if err := table.Add(data, uint64(10*blk), 2-blk, Kind{}); err != nil {
			t.Fatal(err)
		}
	}
	table.AddError(errors.New("mine"))
	for _, c := range []struct {
		block, index int
		want         byte
	}{{0, 0, 'K'}, {0, 1, 0}, {0, 2, 0}, {1, 0, 0}, {2, 0, 0}} {
		if got := table.Touch(c.block, c.index); got != c.want {
			t.Errorf("sample %d of block %d: %q, want %q", c.index, c.block, got, c.want)
		}
	}
}
