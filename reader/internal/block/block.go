// Package block finds the samples of decoded blocks.
//
//	decoded bytes ──Table.Add────────────────▶ Samples ──At(i)──▶ key and fields, which point into the block
//	              ──Packer.Pack──▶ AddPacked ──▶ Samples ──At(i)──▶ the same, without headers between them
//
// A Table covers the blocks of a piece, which are in memory together. Samples answers the one
// question that a batch asks of a block: where is sample i? Tar blocks are walked once, header by
// header, when they are added. The places found take 12 bytes for each sample of a block that is
// packed, and 28 for each field of one that stays as it is. They hold no pointers, because as many
// of them are in memory as the order keeps live. Blocks of rows (Rows) need none: the place of a
// row is computed.
package block

import (
	"fmt"

	"github.com/shardtool/shardtool/format"
)

// Samples locates the samples of one decoded block.
type Samples interface {
	// Len returns the number of samples.
	Len() int
	// At appends the fields of sample i, in ascending order of their names, and returns its key. In a
	// tar block all of them are slices of the block. Bytes made from a row are appended to buf, or to
	// larger memory that is returned.
	At(i int, fields []format.FieldView, buf []byte) (key []byte, _ []format.FieldView, _ []byte)
}

// Table holds the samples of consecutive blocks. The zero value is empty. It is for one goroutine
// until it is filled, and may then be read by several.
type Table struct {
	blocks []entry
	headers
	rows, idleRows     []*Rows // in use, and not
	packed, idlePacked []*Packed
}

// entry is one block, or what is wrong with it.
type entry struct {
	number  uint64 // of its first sample in the data set
	samples Samples
	err     error
}

// Add adds a block, whose first sample has the given number. It has count samples, as the tables of
// the data set say; another number is an error that wraps format.ErrCorrupt, as is any other
// damage. After an error nothing was added.
func (t *Table) Add(decoded []byte, number uint64, count int, kind Kind) error {
	var found Samples
	var err error
	if kind.Layout != nil {
		found, err = t.stacked(decoded, count, kind)
	} else {
		found, err = t.walk(decoded, count, kind.Foreign)
	}
	if err != nil {
		return err
	}
	t.blocks = append(t.blocks, entry{number: number, samples: found})
	return nil
}

// stacked opens a block of rows in memory of an earlier one.
func (t *Table) stacked(decoded []byte, count int, kind Kind) (*Rows, error) {
	r := Take(&t.idleRows)
	if err := r.Open(decoded, count, kind); err != nil {
		t.idleRows = append(t.idleRows, r)
		return nil, err
	}
	t.rows = append(t.rows, r)
	return r, nil
}

// Take takes the last value that is kept for reuse, or makes a new one.
func Take[T any](idle *[]*T) *T {
	n := len(*idle)
	if n == 0 {
		return new(T)
	}
	t := (*idle)[n-1]
	*idle = (*idle)[:n-1]
	return t
}

// AddError adds a block that cannot be used. Sample returns err for every sample of it.
func (t *Table) AddError(err error) { t.blocks = append(t.blocks, entry{err: err}) }

// Len returns the number of blocks.
func (t *Table) Len() int { return len(t.blocks) }

// Reset removes all blocks. It keeps the memory of the table, but not the memory of the blocks.
func (t *Table) Reset() {
	clear(t.blocks)
	t.blocks = t.blocks[:0]
	t.reset()
	for _, r := range t.rows {
		r.Block.Buf = nil // the block's memory may be freed
	}
	t.idleRows, t.rows = append(t.idleRows, t.rows...), t.rows[:0]
	for _, b := range t.packed {
		b.reset()
	}
	t.idlePacked, t.packed = append(t.idlePacked, t.packed...), t.packed[:0]
}

// Err returns the error of a block.
func (t *Table) Err(block int) error { return t.blocks[block].err }

// Sample is Samples.At for a sample of a block. index counts samples of the block, and number
// samples of the data set. If they do not belong together, the error wraps format.ErrMismatch. Call
// it only if Err returns nil.
func (t *Table) Sample(block, index int, number uint64, fields []format.FieldView,
	buf []byte) (key []byte, _ []format.FieldView, _ []byte, err error) {
	b := &t.blocks[block]
	if index >= b.samples.Len() || b.number+uint64(index) != number {
		return nil, fields, buf, fmt.Errorf("%w: sample %d of the block is not number %d", format.ErrMismatch, index,
			number)
	}
	key, fields, buf = b.samples.At(index, fields, buf)
	return key, fields, buf, nil
}
