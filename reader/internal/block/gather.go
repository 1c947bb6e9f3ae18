package block

import (
	"fmt"
	"runtime"
	"sync"

	"github.com/shardtool/shardtool/format"
)

// RowRef is a row of a block. Of is nil for padding: its row is zero.
type RowRef struct {
	Of    *Rows
	Index int32
}

const (
	// touchedBytes is how much is touched before it is copied: few enough that the first cache still
	// has it then, and enough lines for a processor to wait for many at a time.
	touchedBytes = 16 << 10
	touchedRows  = 64
	// largeRow is a row that the processor reads ahead of a copy by itself.
	largeRow = 16 << 10
	// line is the bytes of a line of the cache.
	line = 64
	// gatherPart is what is worth a goroutine: some 50 µs of copying.
	gatherPart = 512 << 10
)

// Gather copies the rows of a field to dst, which has room for them, one after another. All are of
// blocks of one layout. Large batches are copied by several goroutines.
func Gather(dst []byte, field int, refs []RowRef) {
	if len(refs) == 0 {
		return
	}
	stride := len(dst) / len(refs)
	parts := min(runtime.GOMAXPROCS(0), len(dst)/gatherPart)
	if parts < 2 {
		gather(dst, field, stride, refs)
		return
	}
	var wg sync.WaitGroup
	for i := range parts {
		from, to := len(refs)*i/parts, len(refs)*(i+1)/parts
		wg.Go(func() { gather(dst[from*stride:to*stride], field, stride, refs[from:to]) })
	}
	wg.Wait()
}

// gather copies the rows in groups. Each group is found and touched, every line of it, and then
// copied: at random places of a large window that takes half the time, because the processor waits
// for a line of one row at a time when it copies. It returns a sum of the bytes touched, so that the
// compiler keeps the reads.
//
//go:noinline
func gather(dst []byte, field, stride int, refs []RowRef) (sum byte) {
	var group [touchedRows][]byte
	rows := max(min(touchedBytes/max(stride, 1), touchedRows), 1)
	for len(refs) > 0 {
		n, found := min(rows, len(refs)), 0
		for i := 0; i < n; {
			k := 1 // neighbours are one copy
			for refs[i].Of != nil && i+k < n && refs[i+k].Of == refs[i].Of && refs[i+k].Index == refs[i].Index+int32(k) {
				k++
			}
			src := refs[i].Of.at(field, stride, int(refs[i].Index), k)
			if stride < largeRow {
				for p := 0; p < len(src); p += line {
					sum += src[p]
				}
			}
			group[found] = src
			found++
			i += k
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

// at returns k rows of a field; nil for padding.
func (r *Rows) at(field, stride, index, k int) []byte {
	if r == nil {
		return nil
	}
	from := r.bases[field] + index*stride
	return r.Block.Buf[from : from+k*stride]
}

// Row returns the place of a sample of a block of rows, as Sample does for a sample.
func (t *Table) Row(block, index int, number uint64) (RowRef, error) {
	b := &t.blocks[block]
	if b.err != nil {
		return RowRef{}, b.err
	}
	r, ok := b.samples.(*Rows)
	if !ok || index >= r.Block.N || b.number+uint64(index) != number {
		return RowRef{}, fmt.Errorf("%w: row %d of the block is not number %d", format.ErrMismatch, index, number)
	}
	return RowRef{r, int32(index)}, nil
}
