package block

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/reader/internal/mapped"
)

// RowRef is a row of one of Arrays' blocks. Block is -1 for padding: its row is zero.
type RowRef struct{ Block, Index int32 }

// Padding is the reference to a row that is zero.
var Padding = RowRef{Block: -1}

// Arrays are the blocks of rows that batches take rows from, by a number, in one place: through
// pieces and tables a row is found by some ten reads at places all over memory. The zero value is
// empty. It is for one goroutine; others read its parts up to the length that they had when they
// were given to them.
type Arrays struct {
	// Rows are by field the rows of each block. Of is each block, nil where it is damaged.
	Rows [][][]byte
	Of   []*Rows
	// InPlace are by block those that are mapped, nil for others. Files are their files, each once.
	InPlace []*mapped.Blocks
	Files   []*mapped.File

	heads []head
	first []int // of each table added: the number of its first block, less that in the data set
}

// head is which samples a block has.
type head struct{ number, count uint64 }

// Add adds the blocks of a table, the first of which has that number in the data set. in is where
// they are mapped; nil where they are in memory of the stream.
func (a *Arrays) Add(t *Table, first, fields int, in *mapped.Blocks) {
	if in != nil && !slices.Contains(a.Files, in.File) {
		a.Files = append(a.Files, in.File)
	}
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
		a.Of, a.heads, a.InPlace = append(a.Of, r), append(a.heads, h), append(a.InPlace, in)
	}
}

// Find returns the place of a sample of a block, which has that number in the data set and is of
// the table that was added as the given one. ok is false where the block is damaged, or the sample
// is not of it: Table.RowErr has the error.
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
	clear(a.InPlace)
	clear(a.Files)
	a.Of, a.heads, a.first, a.InPlace, a.Files = a.Of[:0], a.heads[:0], a.first[:0], a.InPlace[:0], a.Files[:0]
}

const (
	// touchedBytes is how much is touched before it is copied: few enough that the first cache still
	// has it then, and enough lines for a processor to wait for many at a time.
	touchedBytes = 16 << 10
	touchedRows  = 64
	// largeRow is a row that the processor reads ahead of a copy by itself: touching rows of 4 KB first
	// made copies to memory that no cache holds a tenth slower.
	largeRow = 2 << 10
	// line is the bytes of a line of the cache.
	line = 64
	// gatherPart is what is worth a goroutine: some 50 µs of copying.
	gatherPart = 512 << 10
)

// Gather copies rows of a field to dst, which has room for them, one after another. rows are those of
// Arrays. Large batches are copied by several goroutines; a panic in one of them becomes the
// caller's.
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
	var panicked atomic.Value
	for i := range parts {
		from, to := len(refs)*i/parts, len(refs)*(i+1)/parts
		wg.Go(func() {
			defer func() {
				if r := recover(); r != nil {
					panicked.CompareAndSwap(nil, &r)
				}
			}()
			debug.SetPanicOnFault(true) // rows may be mapped
			gather(dst[from*stride:to*stride], rows, stride, refs[from:to])
		})
	}
	wg.Wait()
	if r, ok := panicked.Load().(*any); ok {
		panic(*r)
	}
}

// gather copies the rows in groups. Each group is found and touched, every line of it, and then
// copied: at random places of a large window that takes half the time, because the processor waits
// for a line of one row at a time when it copies. It returns a sum of the bytes touched, so that the
// compiler keeps the reads.
//
//go:noinline
func gather(dst []byte, rows [][]byte, stride int, refs []RowRef) (sum byte) {
	var group [touchedRows][]byte
	most := max(min(touchedBytes/max(stride, 1), touchedRows), 1)
	for len(refs) > 0 {
		n, found := min(most, len(refs)), 0
		for i := 0; i < n; found++ {
			r, k := refs[i], 1
			if i++; r.Block < 0 {
				group[found] = nil
				continue
			}
			for ; i < n && refs[i] == (RowRef{r.Block, r.Index + int32(k)}); i++ { // neighbours are one copy
				k++
			}
			from := int(r.Index) * stride
			src := rows[r.Block][from : from+k*stride]
			if stride < largeRow {
				for p := 0; p < len(src); p += line {
					sum += src[p]
				}
			}
			group[found] = src
		}
		for _, src := range group[:found] {
			if src == nil { // padding
				clear(dst[:stride])
				dst = dst[stride:]
			} else {
				dst = dst[copy(dst, src):]
			}
		}
		refs = refs[n:]
	}
	return sum
}

// RowErr returns why a sample of a block of rows cannot be delivered, nil where it can.
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
