package export

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"os"

	"github.com/shardtool/shardtool/internal/format/npy"
	"github.com/shardtool/shardtool/internal/sys/plain"
	"github.com/shardtool/shardtool/internal/sys/spill"
	"github.com/shardtool/shardtool/reader"
)

// tokens writes the documents of a data set as a .bin file, and then the .idx file of it, in the
// layout of megatron/core/datasets/indexed_dataset.py, version 1: the magic, the version as u64,
// the code of the type as u8, the numbers of sequences and of bounds of documents as u64, then for
// each sequence its length as i32, for each its offset in bytes as i64, and the bounds: sequences
// i64. A sample is a document of one sequence.
type tokens struct {
	field     string
	code      byte
	size      int // bytes of a token in the .bin file
	lengths   *os.File
	documents int64
}

const tokensMagic = "MMIDIDX\x00\x00"

// codes are the types of tokens by the letter and the size of NumPy. Unsigned types that Megatron
// lacks become the next larger one.
var codes = map[string]struct {
	code byte
	size int
}{"u1": {1, 1}, "i1": {2, 1}, "i2": {3, 2}, "i4": {4, 4}, "i8": {5, 8}, "u2": {8, 2}, "u4": {5, 8}}

func newTokens(ctx context.Context, d *reader.Dataset) (*tokens, error) {
	types, _, err := typesOf(d)
	if err != nil {
		return nil, err
	}
	var arrays []string
	for _, f := range d.Fields() {
		word := types[f.Name]
		if word == "npy" || word == "" && f.Name == "npy" || word == "" && len(f.Name) > 4 &&
			f.Name[len(f.Name)-4:] == ".npy" {
			arrays = append(arrays, f.Name)
		}
	}
	if len(arrays) != 1 {
		return nil, fmt.Errorf("the data set has %d fields of arrays, and a Megatron data set is made of one: name the field of the tokens%w", len(arrays), plain.Silent(ErrForm))
	}
	t := &tokens{field: arrays[0]}
	for s, err := range d.Samples(ctx, reader.Range{}) {
		if err != nil {
			return nil, err
		}
		data, ok := s.Field(t.field)
		if !ok {
			continue
		}
		h, _, err := parseArray(data)
		if err != nil {
			return nil, fieldError(s.Key, t.field, err)
		}
		c, ok := codes[fmt.Sprintf("%c%d", h.Kind, h.Size)]
		if !ok {
			return nil, fieldError(s.Key, t.field, fmt.Errorf("its items are of type %s, and tokens are integers%w",
				h.Descr, plain.Silent(ErrForm)))
		}
		t.code, t.size = c.code, c.size
		return t, nil
	}
	return nil, fmt.Errorf("no sample has the field %q%w", t.field, plain.Silent(ErrForm))
}

// bin gives put the tokens of all samples, and notes their numbers in a temporary file.
func (t *tokens) bin(ctx context.Context, d *reader.Dataset, put func([]byte) error) (err error) {
	t.close() // of an attempt before
	t.documents = 0
	if t.lengths, err = spill.Create(""); err != nil {
		return err
	}
	lengths := bufio.NewWriterSize(t.lengths, 1<<20)
	var buf []byte
	for s, err := range d.Samples(ctx, reader.Range{}) {
		if err != nil {
			return err
		}
		data, ok := s.Field(t.field)
		if !ok {
			return fmt.Errorf("%w: sample %q has no field %q", ErrName, s.Key, t.field)
		}
		before := len(buf)
		if buf, err = t.append(buf, data); err != nil {
			return fieldError(s.Key, t.field, err)
		}
		n := (len(buf) - before) / t.size
		if n > math.MaxInt32 {
			return fieldError(s.Key, t.field, fmt.Errorf("%w: %d tokens, and a document has at most 2^31 - 1", ErrName,
				n))
		}
		if err := binary.Write(lengths, binary.LittleEndian, int32(n)); err != nil {
			return err
		}
		t.documents++
		if len(buf) >= 1<<20 {
			if err := put(buf); err != nil {
				return err
			}
			buf = buf[:0]
		}
	}
	if err := put(buf); err != nil {
		return err
	}
	return lengths.Flush()
}

// append appends the tokens of a document.
func (t *tokens) append(buf, data []byte) ([]byte, error) {
	h, items, err := parseArray(data)
	if err != nil {
		return nil, err
	}
	c := codes[fmt.Sprintf("%c%d", h.Kind, h.Size)]
	switch {
	case c.code != t.code:
		return nil, fmt.Errorf("%w: its items are of type %s, and the first ones of the data set of another", ErrName,
			h.Descr)
	case len(h.Shape) != 1:
		return nil, fmt.Errorf("%w: an array of shape %v, and a document has one dimension", ErrName, h.Shape)
	case c.size == h.Size && !h.Big:
		return append(buf, items...), nil
	}
	return t.convert(buf, items, &h), nil
}

// convert appends tokens of another size or byte order.
func (t *tokens) convert(buf, items []byte, h *npy.Header) []byte {
	for i := 0; i < len(items); i += h.Size {
		var u uint64
		for k := range h.Size {
			if h.Big {
				u = u<<8 | uint64(items[i+k])
			} else {
				u |= uint64(items[i+k]) << (8 * k)
			}
		}
		for k := range t.size {
			buf = append(buf, byte(u>>(8*k)))
		}
	}
	return buf
}

// idx gives put the index of what bin wrote.
func (t *tokens) idx(put func([]byte) error) error {
	head := append([]byte(tokensMagic), binary.LittleEndian.AppendUint64(nil, 1)...)
	head = append(head, t.code)
	head = binary.LittleEndian.AppendUint64(head, uint64(t.documents))
	if err := put(binary.LittleEndian.AppendUint64(head, uint64(t.documents)+1)); err != nil {
		return err
	}
	at := int64(0)
	for _, each := range []func(buf []byte, n int32) []byte{
		func(buf []byte, n int32) []byte { return binary.LittleEndian.AppendUint32(buf, uint32(n)) },
		func(buf []byte, n int32) []byte {
			buf = binary.LittleEndian.AppendUint64(buf, uint64(at))
			at += int64(n) * int64(t.size)
			return buf
		},
	} {
		in := bufio.NewReaderSize(io.NewSectionReader(t.lengths, 0, 4*t.documents), 1<<20)
		if err := t.numbers(put, func(buf []byte, _ int64) ([]byte, error) {
			var n int32
			err := binary.Read(in, binary.LittleEndian, &n)
			return each(buf, n), err
		}, t.documents); err != nil {
			return err
		}
	}
	return t.numbers(put, func(buf []byte, i int64) ([]byte, error) {
		return binary.LittleEndian.AppendUint64(buf, uint64(i)), nil
	}, t.documents+1)
}

// numbers gives put n numbers.
func (t *tokens) numbers(put func([]byte) error, number func([]byte, int64) ([]byte, error), n int64) (err error) {
	var buf []byte
	for i := range n {
		if buf, err = number(buf, i); err != nil {
			return err
		}
		if len(buf) >= 1<<20 || i == n-1 {
			if err := put(buf); err != nil {
				return err
			}
			buf = buf[:0]
		}
	}
	return nil
}

func (t *tokens) close() {
	if t != nil {
		_ = spill.Close(t.lengths) // it only frees
	}
}
