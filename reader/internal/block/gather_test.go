package block

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/samplekey"
	"github.com/shardtool/shardtool/internal/format/stacked"
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

// TestGather gathers rows of several sizes, at random, in runs of neighbours, with one goroutine
// and with several.
func TestGather(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	random := rand.New(rand.NewPCG(1, 2))
	for _, numbers := range []int{1, 50, 1025, 8000} {
		const blocks, n = 5, 40
		all := rowsOf(t, blocks, n, numbers)
		var a Arrays
		for i, r := range all {
			a.Add(tableOf(t, uint64(i*n), r), i, 2)
		}
		for _, count := range []int{0, 1, 63, 64, 65, 700} {
			var refs []RowRef
			for len(refs) < count {
				b, k := random.IntN(blocks), random.IntN(n)
				for run := 1 + random.IntN(5)*random.IntN(5); run > 0 && k < n; run, k = run-1, k+1 {
					refs = append(refs, RowRef{int32(b), int32(k)})
				}
			}
			refs = refs[:count]
			for field, stride := range []int{1, 4 * numbers} {
				dst := bytes.Repeat([]byte{0xEE}, count*stride)
				Gather(dst, a.Rows[field], refs)
				for i, r := range refs {
					want := all[r.Block].Block.Row(field, int(r.Index))
					if !bytes.Equal(dst[i*stride:(i+1)*stride], want) {
						t.Fatalf("row %d of %d, field %d of %d bytes: not that of row %d", i, count, field, stride, r.Index)
					}
				}
			}
		}
	}
}

// tableOf returns a table of one block, whose first sample has that number in the data set.
func tableOf(t *testing.T, number uint64, r *Rows) *Table {
	t.Helper()
	table := new(Table)
	if err := table.Add(r.Block.Buf, number, r.Block.N, r.kind); err != nil {
		t.Fatal(err)
	}
	return table
}

// TestFind finds rows of tables with several blocks, and refuses those of damaged and of ordinary
// blocks, and those that do not belong to the sample asked for.
func TestFind(t *testing.T) {
	all := rowsOf(t, 2, 3, 1)
	var a Arrays
	a.Add(tableOf(t, 100, all[0]), 7, 2)
	damaged := errors.New("damaged")
	var table Table
	if err := table.Add(tarBlock("x", 2), 10, 2, Kind{}); err != nil {
		t.Fatal(err)
	}
	table.AddError(damaged)
	if err := table.Add(all[1].Block.Buf, 103, 3, all[1].kind); err != nil {
		t.Fatal(err)
	}
	a.Add(&table, 20, 2)
	if at, ok := a.Find(1, 22, 2, 105); !ok || a.Rows[0][at.Block][at.Index] != 5 || a.Of[at.Block].Block.Row(0, 2)[0] != 5 {
		t.Errorf("%+v, %v", at, ok)
	}
	if at, ok := a.Find(0, 7, 1, 101); !ok || a.Rows[0][at.Block][at.Index] != 1 {
		t.Errorf("%+v, %v", at, ok)
	}
	for _, c := range []struct {
		block, index int
		number       uint64
		want         error
	}{{0, 0, 10, format.ErrMismatch}, {1, 0, 0, damaged}, {2, 3, 106, format.ErrMismatch}, {2, 1, 105, format.ErrMismatch}} {
		if _, ok := a.Find(1, uint32(20+c.block), uint32(c.index), c.number); ok {
			t.Errorf("%+v was found", c)
		}
		if err := table.RowErr(c.block, c.index, c.number); !errors.Is(err, c.want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if err := table.RowErr(2, 2, 105); err != nil {
		t.Error(err)
	}
	if a.Reset(); len(a.Of) != 0 || len(a.Rows[0]) != 0 || a.Rows[0][:1][0] != nil {
		t.Errorf("%+v after Reset", a)
	}
}
