package tokens

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source/internal/inputs"
)

// index is the .idx file of Megatron's indexed datasets, which lists the documents in the .bin file
// beside it. The layout is that of megatron/core/datasets/indexed_dataset.py, version 1: the magic,
// the version as u64, the code of the type as u8, the numbers of sequences and of bounds of documents
// as u64, then for each sequence its length as i32, for each its offset in bytes as i64, and the
// bounds: sequences i64, from 0 up to their number.
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

// openIndex reads the header of the index that a names, and makes a the .bin file.
func (a *array) openIndex(ctx context.Context) (err error) {
	x := &index{File: a.File}
	corrupt := func(msg string, args ...any) error {
		return fmt.Errorf("%w: "+msg, append([]any{format.ErrCorrupt}, args...)...)
	}
	obj, err := x.Open(ctx)
	if err != nil {
		return err
	}
	defer obj.Close()
	head := make([]byte, min(indexHeader, x.Info.Size))
	if err := obj.ReadAt(ctx, head, 0); err != nil {
		return err
	}
	switch {
	case !strings.HasPrefix(string(head), indexMagic):
		return corrupt("it is no index of Megatron, version 1")
	case int64(len(head)) < indexHeader:
		return corrupt("its header is truncated")
	}
	le := binary.LittleEndian
	if version := le.Uint64(head[9:]); version != 1 {
		return fmt.Errorf("%w: an index of Megatron of version %d: version 1 is known", format.ErrVersion, version)
	}
	if code := head[17]; code == 6 || code == 7 {
		return fmt.Errorf("its elements are floating-point numbers, not token ids")
	} else if int(code) >= len(indexTypes) || indexTypes[code] == 0 {
		return corrupt("its type has the code %d, which is none", code)
	} else {
		a.layout = layout{DType: indexTypes[code]}
	}
	sequences, bounds := le.Uint64(head[18:]), le.Uint64(head[26:])
	rest := uint64(x.Info.Size - indexHeader)
	if sequences > rest/12 || bounds == 0 || bounds > (rest-12*sequences)/8 {
		return corrupt("its header says %d sequences and %d bounds of documents, and %d bytes follow it: it is cut, or no index", sequences, bounds, rest)
	}
	if more := rest - 12*sequences - 8*bounds; more == sequences && more > 0 {
		return fmt.Errorf("it has a mode for each sequence, as of multimodal data, which pack does not read")
	} else if more > 0 {
		return corrupt("%d bytes follow it", more)
	}
	x.sequences, x.documents = int64(sequences), int64(bounds)-1
	x.lengths = table{of: x, at: indexHeader, width: 4, n: x.sequences}
	x.offsets = table{of: x, at: x.lengths.at + 4*x.sequences, width: 8, n: x.sequences}
	x.bounds = table{of: x, at: x.offsets.at + 8*x.sequences, width: 8, n: x.documents + 1}
	name := strings.TrimSuffix(a.Name, a.Name[len(a.Name)-4:]) + ".bin"
	a.Path = strings.TrimSuffix(a.Path, a.Path[max(0, len(a.Path)-4):]) + ".bin"
	a.Name, a.As, a.index = name, "", x
	bin, err := a.Open(ctx)
	if err != nil {
		return fmt.Errorf("the tokens of the index %s: %w", x.Path, err)
	}
	defer bin.Close()
	if err := x.check(ctx, a.Info.Size, a.layout.size()); err != nil {
		return fmt.Errorf("the index %s: %w", x.Path, err)
	}
	a.data = x.first
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
			return fmt.Errorf("%w: document %d has the sequences %d to %d of %d", format.ErrCorrupt, d, bound, until, x.sequences)
		}
		for s := bound; s < until; s++ {
			n, nerr := x.lengths.get(ctx, s)
			at, aerr := x.offsets.get(ctx, s)
			if nerr != nil || aerr != nil {
				return errorOf(nerr, aerr)
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

func errorOf(a, b error) error {
	if a != nil {
		return a
	}
	return b
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

// cutIndex divides the tokens of an index into samples.
func (a *array) cutIndex(opt *Options) error {
	x := a.index
	switch {
	case opt.Length > 0 && !x.follows:
		return writer.Optionf("length: the documents of %s do not follow each other in its .bin file: join them, as with a separator", x.Path)
	case opt.Length > 0:
		return a.cut([]int64{x.tokens}, opt)
	case x.follows && x.equal > 0:
		return a.cut([]int64{x.documents, x.equal}, opt)
	}
	a.ragged, a.rows, a.samples = true, x.documents, x.documents
	return nil
}
