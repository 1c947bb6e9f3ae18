package block

import (
	"fmt"
	"runtime"
	"sync"

	"github.com/shardtool/shardtool/format"
)

// RowRef is a row of one of Arrays' blocks.
type RowRef struct{ Block, Index int32 }

// Arrays are the blocks of rows from which batches take rows, numbered and in one place. Through
// pieces and tables, finding a row would take about ten scattered reads. The zero value is empty.
// Arrays are for one goroutine. Others may read parts that they were given, up to the length at
// that time.
type Arrays struct {
	// Rows are by field the rows of each block. Of is each block, nil where it is damaged.
	Rows [][][]byte
	Of   []*Rows

	heads []head
	first []int // of each table added: the number of its first block, less that in the data set
}

// head tells which samples a block has.
type head struct{ number, count uint64 }

// Add adds the blocks of a table, the first of which has that number in the data set.
func (a *Arrays) Add(t *Table, first, fields int) {
	a.first = append(a.first, len(a.heads)-first)
	if len(a.Rows) != fields {
		a.Rows = make([][][]byte, fields)
	}
	for i := range t.blocks {
		b := &t.blocks[i]
		r, _ := b.samples.(*Rows)
		h := head{number: b.number}
		if r != nil {
			h.count = uint64(r.Block.N)
		}
		for f := range a.Rows {
			var rows []byte
			if r != nil {
				base, stride := r.Block.Rows(f)
				rows = r.Block.Buf[base : base+r.Block.N*stride]
			}
			a.Rows[f] = append(a.Rows[f], rows)
		}
		a.Of, a.heads = append(a.Of, r), append(a.heads, h)
	}
}

// Find returns the place of the sample with a number in the data set, in a block of the table that
// was added as number table. If the block is damaged, or does not have the sample, ok is false and
// Table.RowErr returns the error.
func (a *Arrays) Find(table int, block, index uint32, number uint64) (at RowRef, ok bool) {
	k := a.first[table] + int(block)
	h := &a.heads[k]
	return RowRef{int32(k), int32(index)}, uint64(index) < h.count && h.number+uint64(index) == number
}

// Reset removes all blocks and keeps the memory of their lists.
func (a *Arrays) Reset() {
	for f := range a.Rows {
		clear(a.Rows[f]) // the memory of blocks may be freed
		a.Rows[f] = a.Rows[f][:0]
	}
	clear(a.Of)
	a.Of, a.heads, a.first = a.Of[:0], a.heads[:0], a.first[:0]
}

// gatherPart is the least number of bytes worth a goroutine: some 50 µs of copying.
const gatherPart = 512 << 10

// Gather copies rows of a field to dst, which has room for them, one after another. rows are from
// Arrays. Large batches are copied by several goroutines.
func Gather(dst []byte, rows [][]byte, refs []RowRef) {
	if len(refs) == 0 {
		return
	}
	stride := len(dst) / len(refs)
	parts := min(runtime.GOMAXPROCS(0), len(dst)/gatherPart)
	if parts < 2 {
		gather(dst, rows, stride, refs)
		return
	}
	var wg sync.WaitGroup
	for i := range parts {
		from, to := len(refs)*i/parts, len(refs)*(i+1)/parts
		wg.Go(func() { gather(dst[from*stride:to*stride], rows, stride, refs[from:to]) })
	}
	wg.Wait()
}

// gather is Gather in one goroutine.
func gather(dst []byte, rows [][]byte, stride int, refs []RowRef) {
	for len(refs) > 0 {
		r, n := refs[0], 1
		for n < len(refs) && refs[n] == (RowRef{r.Block, r.Index + int32(n)}) { // neighbours are one copy
			n++
		}
		copy(dst, rows[r.Block][int(r.Index)*stride:][:n*stride])
		dst, refs = dst[n*stride:], refs[n:]
	}
}

// RowErr returns why a sample of a block of rows cannot be delivered, or nil if it can.
func (t *Table) RowErr(block, index int, number uint64) error {
	b := &t.blocks[block]
	if b.err != nil {
		return b.err
	}
	r, ok := b.samples.(*Rows)
	if !ok || index >= r.Block.N || b.number+uint64(index) != number {
		return fmt.Errorf("%w: row %d of the block is not number %d", format.ErrMismatch, index, number)
	}
	return nil
}
