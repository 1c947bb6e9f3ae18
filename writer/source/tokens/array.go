package tokens

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/damage"
	"github.com/shardtool/shardtool/internal/format/npy"
	"github.com/shardtool/shardtool/internal/input/stream"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source/internal/inputs"
)

// array describes a file.
type array struct {
	inputs.File
	layout
	data    int64   // offset of the first id
	row     []int64 // dimensions of a row; nil if the array is one-dimensional
	rows    int64   // number of samples of full length
	length  int64   // tokens per sample
	rest    int64   // tokens after them
	samples int64
	// index is set where the file is the .bin of an index. ragged are documents that differ in length,
	// each a sample.
	index  *index
	ragged bool
	form   rows // of rows of any type, whose layout is then bytes
	npz    *archive
}

// tokens returns the total number of tokens in samples.
func (a *array) tokens() int64 {
	if a.ragged {
		return a.index.tokens
	}
	return a.rows*a.length + a.rest
}

// survey reads the header.
func (a *array) survey(ctx context.Context, opt *Options) error {
	if isIndex(&a.File) {
		if err := a.openIndex(ctx); err != nil {
			return err
		}
		return a.cutIndex(opt)
	}
	obj, err := a.Open(ctx)
	if err != nil {
		return err
	}
	defer obj.Close()
	var shape []int64
	if opt.Rows {
		return a.surveyRows(ctx, obj)
	}
	if strings.HasSuffix(strings.ToLower(a.Name), ".npy") {
		if shape, err = a.header(ctx, obj); err != nil {
			return err
		}
	} else if shape, err = a.raw(ctx, obj, opt.Raw); err != nil {
		return err
	}
	return a.cut(shape, opt)
}

// guess is the size of the first read. NumPy's own headers are shorter.
const guess = 256

// header reads the header of a .npy file and compares the array's size with the file's.
func (a *array) header(ctx context.Context, obj objstore.Object) (shape []int64, err error) {
	h, n, err := a.readHead(ctx, obj)
	if err != nil {
		return nil, err
	}
	if a.data = n; len(h.Shape) == 0 {
		return nil, fmt.Errorf("it is a single number: give an array of token ids")
	}
	if a.layout, err = layoutOf(&h); err != nil {
		return nil, err
	}
	return h.Shape, checkSize(&h, a.size(), a.Info.Size-n)
}

// readHead reads the header of a .npy file, and returns its length too.
func (a *array) readHead(ctx context.Context, obj objstore.Object) (npy.Header, int64, error) {
	in, err := stream.Open(ctx, obj, a.Info.Size, false, stream.Plain, 0)
	if err != nil {
		return npy.Header{}, 0, err
	}
	defer in.Close()
	return readHeader(bufio.NewReaderSize(in, guess), a.Info.Size)
}

// checkSize compares the size of an array, whose elements take each bytes, with those that follow
// its header.
func checkSize(h *npy.Header, each, have int64) error {
	want, ok := sizeOf(h.Shape, each)
	switch {
	case h.Fortran && len(h.Shape) > 1:
		return fmt.Errorf("its rows are not contiguous (Fortran order): save np.ascontiguousarray(array)")
	case !ok || want > have:
		return fmt.Errorf("%w: an array of shape %s needs more than the %d bytes in the file: it is cut off",
			format.ErrCorrupt, shapeText(h.Shape), have)
	case want < have:
		return fmt.Errorf("%w: %d bytes follow an array of shape %s: save one array to a file", format.ErrCorrupt,
			have-want, shapeText(h.Shape))
	}
	return nil
}

// raw describes a file of nothing but ids, or one with the header of llm.c.
func (a *array) raw(ctx context.Context, obj objstore.Object, t DType) ([]int64, error) {
	first := make([]byte, min(npy.Lead, a.Info.Size))
	if err := obj.ReadAt(ctx, first, 0); err != nil {
		return nil, err
	}
	count := int64(-1)
	if has, n := llmHeader(first); has != 0 {
		if t != 0 && t != has {
			return nil, writer.Optionf("raw", "%s has a header that says %v, not %v", a.Path, has, t)
		}
		t, count, a.data = has, n, llmHeaderLen
	}
	switch {
	case t == 0:
		if stem, is := strings.CutSuffix(a.Name, ".bin"); is {
			if _, err := a.Store.Stat(ctx, stem+".idx"); err == nil {
				return nil, writer.Optionf("raw", "%s has an index beside it: pack %s.idx, which reads both", a.Path,
					strings.TrimSuffix(a.Path, ".bin"))
			}
		}
		return nil, writer.Optionf("raw", "%s does not end in .npy: say what type its ids are", a.Path)
	case strings.HasPrefix(string(first), npy.Magic):
		return nil, fmt.Errorf("it is a .npy file: let its name end in .npy")
	}
	a.layout = layout{DType: t}
	have := a.Info.Size - a.data
	if have < 0 {
		return nil, fmt.Errorf("%w: the header is truncated: the file has %d bytes", format.ErrCorrupt, a.Info.Size)
	}
	if have%t.size() != 0 {
		return nil, fmt.Errorf("%w: %d bytes are not a whole number of %v: the file is truncated, or of another type",
			format.ErrCorrupt, have, t)
	}
	if n := have / t.size(); count >= 0 && n != count {
		return nil, fmt.Errorf("%w: it has %d ids, its header says %d: the file is truncated, or another was appended to it", format.ErrCorrupt, n, count)
	}
	return []int64{have / t.size()}, nil
}

// llmHeaderLen is the length of the header of llm.c: 256 integers of 4 bytes.
const llmHeaderLen = 1024

// llmHeader parses the first three of them: magic, version and number of ids. t is 0 if there is no
// such header. The magic numbers are from dev/data/data_common.py in karpathy/llm.c.
func llmHeader(first []byte) (t DType, ids int64) {
	if len(first) < 12 {
		return 0, 0
	}
	mark, version := binary.LittleEndian.Uint32(first), binary.LittleEndian.Uint32(first[4:])
	switch {
	case mark == 20240520 && version == 1:
		t = Uint16
	case mark == 20240801 && version == 7:
		t = Uint32
	}
	return t, int64(binary.LittleEndian.Uint32(first[8:]))
}

// cut divides the array into samples.
func (a *array) cut(shape []int64, opt *Options) error {
	first := shape[0]
	if len(shape) > 1 {
		a.row = shape[1:]
		size, _ := sizeOf(a.row, 1)
		if first > 0 && size == 0 {
			return fmt.Errorf("its %d rows are empty: there is nothing to store of an array of shape %s", first,
				shapeText(shape))
		}
		if first > 0 && opt.Length > 0 && size != opt.Length {
			return writer.Optionf("length",
				"%s has rows of %d tokens, not %d: rows are packed as they are without a length, and joined as documents are with a separator",
				a.Path, size, opt.Length)
		}
		a.rows, a.samples, a.length = first, first, size
		return nil
	}
	a.length = opt.Length
	if a.length == 0 {
		a.length = max(1, first)
	}
	a.rows, a.rest = first/a.length, first%a.length
	if opt.Remainder == Drop {
		a.rest = 0
	}
	if a.samples = a.rows; a.rest > 0 {
		a.samples++
	}
	return nil
}

// dropped returns the number of tokens that Drop drops.
func (a *array) dropped() int64 {
	if a.index != nil {
		return a.index.tokens - a.tokens()
	}
	return (a.Info.Size-a.data)/a.size() - a.tokens()
}

// openIndex reads the header of the index that a names, and makes a the .bin file.
func (a *array) openIndex(ctx context.Context) (err error) {
	x := &index{File: a.File}
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
		return damage.Errorf("it is not an index of Megatron, version 1")
	case int64(len(head)) < indexHeader:
		return damage.Errorf("its header is truncated")
	}
	le := binary.LittleEndian
	if version := le.Uint64(head[9:]); version != 1 {
		return fmt.Errorf("%w: an index of Megatron of version %d: version 1 is known", format.ErrVersion, version)
	}
	if code := head[17]; code == 6 || code == 7 {
		return fmt.Errorf("its elements are floating-point numbers, not token ids")
	} else if int(code) >= len(indexTypes) || indexTypes[code] == 0 {
		return damage.Errorf("its type has the code %d, which is none", code)
	} else {
		a.layout = layout{DType: indexTypes[code]}
	}
	sequences, bounds := le.Uint64(head[18:]), le.Uint64(head[26:])
	rest := uint64(x.Info.Size - indexHeader)
	if sequences > rest/12 || bounds == 0 || bounds > (rest-12*sequences)/8 {
		return damage.Errorf("its header says %d sequences and %d bounds of documents, and %d bytes follow it: it is cut off, or no index", sequences, bounds, rest)
	}
	if more := rest - 12*sequences - 8*bounds; more == sequences && more > 0 {
		return fmt.Errorf("it has a mode for each sequence, as of multimodal data, which pack does not read")
	} else if more > 0 {
		return damage.Errorf("%d bytes follow it", more)
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

// cutIndex divides the tokens of an index into samples.
func (a *array) cutIndex(opt *Options) error {
	x := a.index
	switch {
	case opt.Length > 0 && !x.follows:
		return writer.Optionf("length",
			"the documents of %s do not follow each other in its .bin file: join them, as with a separator", x.Path)
	case opt.Length > 0:
		return a.cut([]int64{x.tokens}, opt)
	case x.follows && x.equal > 0:
		return a.cut([]int64{x.documents, x.equal}, opt)
	}
	a.ragged, a.rows, a.samples = true, x.documents, x.documents
	return nil
}
