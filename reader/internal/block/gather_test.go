package block

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/shardtool/shardtool/format/samplekey"
	"github.com/shardtool/shardtool/format/stacked"
)

// rowsOf returns blocks of n rows each, whose rows hold their number in the data set.
func rowsOf(t *testing.T, blocks, n, numbers int) (all []*Rows) {
	t.Helper()
	l := &stacked.Layout{Fields: []stacked.Field{{Name: "a.npy", DType: "|u1"}, {Name: "b.npy", DType: "<u4", Shape: []int64{int64(numbers)}}}}
	ranges := samplekey.Ranges{{Prefix: "k", Digits: 9, Count: uint64(blocks * n)}}
	for b := range blocks {
		built, _, _ := stacked.NewBlock(nil, l, uint64(b*n), n, 0)
		for k := range n {
			copy(built.Row(0, k), []byte{byte(b*n + k)})
			row := built.Row(1, k)
			for i := 0; i < len(row); i += 4 {
				binary.LittleEndian.PutUint32(row[i:], uint32(b*n+k))
			}
		}
		r := &Rows{}
		if err := r.Open(built.Buf, n, Kind{Layout: l, Numbered: ranges, Before: uint64(b * n)}); err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	return all
}

// TestGather gathers rows of several sizes, at random, in runs of neighbours and with padding, with
// one goroutine and with several.
func TestGather(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	random := rand.New(rand.NewPCG(1, 2))
	for _, numbers := range []int{1, 50, 1025, 8000} {
		const blocks, n = 5, 40
		all := rowsOf(t, blocks, n, numbers)
		for _, count := range []int{0, 1, 63, 64, 65, 700} {
			var refs []RowRef
			for len(refs) < count {
				b, k := random.IntN(blocks), random.IntN(n)
				for run := 1 + random.IntN(5)*random.IntN(5); run > 0 && k < n; run, k = run-1, k+1 {
					refs = append(refs, RowRef{all[b], int32(k)})
				}
				if random.IntN(10) == 0 {
					refs = append(refs, RowRef{})
				}
			}
			refs = refs[:count]
			for field, stride := range []int{1, 4 * numbers} {
				dst := bytes.Repeat([]byte{0xEE}, count*stride)
				Gather(dst, field, refs)
				for i, r := range refs {
					want := make([]byte, stride)
					if r.Of != nil {
						want = r.Of.Block.Row(field, int(r.Index))
					}
					if !bytes.Equal(dst[i*stride:(i+1)*stride], want) {
						t.Fatalf("row %d of %d, field %d of %d bytes: not that of row %d", i, count, field, stride, r.Index)
					}
				}
			}
		}
	}
}

// TestRow finds rows of a block, and refuses those that do not belong to the sample asked for.
func TestRow(t *testing.T) {
	var table Table
	if err := table.Add(tarBlock("x", 2), 10, 2, Kind{}); err != nil {
		t.Fatal(err)
	}
	r := rowsOf(t, 2, 3, 1)[1]
	if err := table.Add(r.Block.Buf, 103, 3, r.kind); err != nil {
		t.Fatal(err)
	}
	if at, err := table.Row(1, 2, 105); err != nil || at.Index != 2 || at.Of.Block.Row(0, 2)[0] != 5 {
		t.Errorf("%+v, %v", at, err)
	}
	for _, c := range []struct{ block, index, number int }{{0, 0, 10}, {1, 3, 106}, {1, 1, 105}} {
		if _, err := table.Row(c.block, c.index, uint64(c.number)); err == nil {
			t.Errorf("%+v was found", c)
		}
	}
}
