package tokens

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/writer/source/internal/inputs"
)

// index is the .idx file of Megatron's indexed datasets, which lists the documents in the .bin file
// beside it. The layout is defined by megatron/core/datasets/indexed_dataset.py, version 1: the
// magic, the version as u64, the code of the type as u8, the numbers of sequences and of bounds of
// documents as u64, then for each sequence its length as i32, for each its offset in bytes as i64,
// and the bounds: sequences i64, from 0 up to their number.
type index struct {
	inputs.File
	sequences, documents     int64
	lengths, offsets, bounds table
	tokens                   int64
	equal                    int64 // tokens of each document; -1 if they differ
	follows                  bool  // each sequence begins where the one before ends
	first                    int64 // offset of the first
}

const (
	indexMagic  = "MMIDIDX\x00\x00"
	indexHeader = int64(len(indexMagic)) + 8 + 1 + 8 + 8
)

// indexTypes are the types by their codes.
var indexTypes = [...]DType{1: Uint8, 2: Int8, 3: Int16, 4: Int32, 5: Int64, 8: Uint16}

// isIndex reports whether an input is an index, by what decides how it is read.
func isIndex(f *inputs.File) bool {
	return f.As == ".idx" || f.As == "" && strings.HasSuffix(strings.ToLower(f.Name), ".idx")
}

// table is a run of integers in an index, of which a window is in memory.
type table struct {
	of     *index
	at     int64 // offset of the first
	width  int64
	n      int64
	window []byte
	from   int64 // the first integer in the window
}

// tableWindow is the number of integers that are read together.
const tableWindow = 32 << 10

// get returns an integer.
func (t *table) get(ctx context.Context, i int64) (int64, error) {
	if i < t.from || i >= t.from+int64(len(t.window))/t.width {
		if err := t.read(ctx, i); err != nil {
			return 0, err
		}
	}
	b := t.window[(i-t.from)*t.width:]
	if t.width == 4 {
		return int64(int32(binary.LittleEndian.Uint32(b))), nil
	}
	return int64(binary.LittleEndian.Uint64(b)), nil
}

func (t *table) read(ctx context.Context, i int64) error {
	obj, err := t.of.Reopen(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", t.of.Path, err)
	}
	defer obj.Close()
	size := min(tableWindow, t.n-i) * t.width
	if int64(cap(t.window)) < size {
		t.window = make([]byte, size)
	}
	t.window, t.from = t.window[:size], i
	if err := obj.ReadAt(ctx, t.window, t.at+i*t.width); err != nil {
		t.window = t.window[:0]
		return fmt.Errorf("%s: %w", t.of.Path, err)
	}
	return nil
}

// check reads the whole index, and compares it with a .bin file of size bytes.
func (x *index) check(ctx context.Context, size, width int64) error {
	x.follows, x.equal = true, -1
	bound, err := x.bounds.get(ctx, 0)
	if err == nil && bound != 0 {
		err = fmt.Errorf("%w: its first document begins with sequence %d", format.ErrCorrupt, bound)
	}
	end := int64(0)
	for d := int64(0); d < x.documents && err == nil; d++ {
		var until, tokens int64
		if until, err = x.bounds.get(ctx, d+1); err != nil {
			break
		}
		if until < bound || until > x.sequences {
			return fmt.Errorf("%w: document %d has the sequences %d to %d of %d", format.ErrCorrupt, d, bound, until,
				x.sequences)
		}
		for s := bound; s < until; s++ {
			n, nerr := x.lengths.get(ctx, s)
			at, aerr := x.offsets.get(ctx, s)
			if nerr != nil || aerr != nil {
				return cmp.Or(nerr, aerr)
			}
			if n < 0 || at < 0 || at > size || n > (size-at)/width || at%width != 0 {
				return fmt.Errorf("%w: document %d, sequence %d: %d tokens at byte %d are not in its .bin file of %d bytes", format.ErrCorrupt, d, s, n, at, size)
			}
			switch {
			case s == 0:
				x.first = at
			case at != end && s > bound:
				return fmt.Errorf("document %d, sequence %d does not follow the one before in its .bin file: build the index again", d, s)
			case at != end:
				x.follows = false
			}
			end, tokens = at+n*width, tokens+n
		}
		if x.tokens += tokens; d == 0 {
			x.equal = tokens
		} else if x.equal != tokens {
			x.equal = -1
		}
		bound = until
	}
	if err == nil && bound != x.sequences {
		err = fmt.Errorf("%w: %d sequences are in no document", format.ErrCorrupt, x.sequences-bound)
	}
	return err
}

// document returns the place of a document, in tokens after the offset of the first.
func (x *index) document(ctx context.Context, d, width int64) (first, n int64, err error) {
	bound, err := x.bounds.get(ctx, d)
	if err != nil {
		return 0, 0, err
	}
	until, err := x.bounds.get(ctx, d+1)
	if err != nil || bound == until {
		return 0, 0, err
	}
	at, err := x.offsets.get(ctx, bound)
	for s := bound; s < until && err == nil; s++ {
		var more int64
		more, err = x.lengths.get(ctx, s)
		n += more
	}
	return (at - x.first) / width, n, err
}
