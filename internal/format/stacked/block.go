package stacked

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/damage"
	"github.com/shardtool/shardtool/internal/format/npy"
	"github.com/shardtool/shardtool/internal/format/tarblock"
)

// Block is a decoded block of a stacked shard. The address of a row is arithmetic: row i of a
// field is at its base + i × its stride.
type Block struct {
	// Buf is the decoded block.
	Buf []byte
	// N is the number of samples.
	N int

	layout *Layout
	bases  []int // where the rows of each field begin, and then the keys
	width  int   // of keys; 0 where they are numbered
	heads  [][]byte
	// strides are the lengths of rows, by field: a layout computes them each time.
	strides []int
}

// Rows returns where the rows of the i-th field are: row k is Buf[base+k*stride:][:stride].
func (b *Block) Rows(field int) (base, stride int) {
	return b.bases[field], b.strides[field]
}

// Row returns row k of the i-th field.
func (b *Block) Row(field, k int) []byte {
	base, stride := b.Rows(field)
	at := base + k*stride
	return b.Buf[at : at+stride : at+stride]
}

// AppendField appends a field of sample k as an NPY file.
func (b *Block) AppendField(dst []byte, field, k int) []byte {
	return append(append(dst, b.heads[field]...), b.Row(field, k)...)
}

// Key returns the key of sample k of a block whose keys are not numbered.
func (b *Block) Key(k int) []byte {
	at := b.bases[len(b.layout.Fields)] + k*b.width
	key := b.Buf[at : at+b.width : at+b.width]
	return bytes.TrimRight(key, "\x00")
}

// AppendTar appends sample k as an ordinary block holds it: a member for each field.
func (b *Block) AppendTar(dst []byte, k int, key []byte) []byte {
	for i := range b.layout.Fields {
		f := &b.layout.Fields[i]
		size := int64(len(b.heads[i])) + f.Row()
		dst = tarblock.AppendHeader(dst, format.JoinName(string(key), f.Name), size)
		dst = b.AppendField(dst, i, k)
		dst = append(dst, zeros[:tarblock.Padding(size)]...)
	}
	return dst
}

var zeros [tarblock.RecordLen]byte

// memberName returns the name of a member of a block: the number of its first sample in the shard,
// and the field.
func memberName(first uint64, field string) string {
	return fmt.Sprintf("%09d.%s", first, field)
}

// keyType is the element type of keys that are not numbered: texts of that many bytes.
func keyType(width int) string { return "|S" + strconv.Itoa(width) }

// appendMember appends the headers of a member of a block of n rows: a tar header and an NPY
// header. It returns the length of the rows and of the padding after them.
func appendMember(dst []byte, first uint64, field, dtype string, shape []int64, n int,
	row int64) (_ []byte, rows, pad int64) {
	head := npy.AppendHeader(nil, dtype, append([]int64{int64(n)}, shape...)...)
	rows = int64(n) * row
	size := int64(len(head)) + rows
	return append(tarblock.AppendHeader(dst, memberName(first, field), size), head...), rows, tarblock.Padding(size)
}

// blockLen returns the length of a block of n samples, with keys of that width, or numbered ones: a
// bound for any number of the first sample up to 10^9.
func (l *Layout) blockLen(n, width int) (size int64) {
	for i := range l.Fields {
		f := &l.Fields[i]
		head, rows, pad := appendMember(nil, 0, f.member(), f.DType, f.Shape, n, f.Row())
		size += int64(len(head)) + rows + pad
	}
	if width > 0 {
		head, rows, pad := appendMember(nil, 0, keyField, keyType(width), nil, n, int64(width))
		size += int64(len(head)) + rows + pad
	}
	return size
}

// NewBlock lays out a block of n samples, the first of which has that number in the shard, in
// dst's memory. width is the length of the longest key, 0 where keys are numbered. The caller fills
// the rows by Rows and SetKey. cuts and payloads are for AppendFrame.
func NewBlock(dst []byte, l *Layout, first uint64, n, width int) (b *Block, cuts, payloads []int) {
	b = &Block{N: n, layout: l, width: width}
	dst = dst[:0]
	member := func(field, dtype string, shape []int64, row int64) {
		cuts = append(cuts, len(dst))
		var rows, pad int64
		dst, rows, pad = appendMember(dst, first, field, dtype, shape, n, row)
		b.bases = append(b.bases, len(dst))
		payloads = append(payloads, len(dst))
		dst = slices.Grow(dst, int(rows+pad))[:len(dst)+int(rows+pad)]
		clear(dst[len(dst)-int(pad):])
	}
	for i := range l.Fields {
		f := &l.Fields[i]
		member(f.member(), f.DType, f.Shape, f.Row())
		b.heads, b.strides = append(b.heads, f.Header()), append(b.strides, int(f.Row()))
	}
	if width > 0 {
		member(keyField, keyType(width), nil, int64(width))
	}
	b.Buf = dst
	return b, cuts, payloads
}

// SetKey stores the key of sample k.
func (b *Block) SetKey(k int, key string) {
	at := b.bases[len(b.layout.Fields)] + k*b.width
	clear(b.Buf[at+copy(b.Buf[at:at+b.width], key) : at+b.width])
}

// OpenBlock compares a decoded block with its layout, headers and padding to the last bit, and sets
// b to it; rows are not copied. first is the number of its first sample in the shard, n how many
// samples it has. The errors wrap ErrCorrupt. b's memory is used again.
func OpenBlock(b *Block, decoded []byte, l *Layout, first uint64, n int, numbered bool) error {
	if b.layout != l {
		b.heads, b.strides = b.heads[:0], b.strides[:0]
		for i := range l.Fields {
			f := &l.Fields[i]
			b.heads, b.strides = append(b.heads, f.Header()), append(b.strides, int(f.Row()))
		}
	}
	*b = Block{Buf: decoded, N: n, layout: l, bases: b.bases[:0], heads: b.heads, strides: b.strides}
	at := int64(0)
	var err error
	for i := range l.Fields {
		f := &l.Fields[i]
		if at, err = b.member(at, first, f.member(), f.DType, f.Shape, f.Row()); err != nil {
			return err
		}
	}
	if !numbered {
		if at, err = b.keys(at, first); err != nil {
			return err
		}
	}
	if at != int64(len(decoded)) {
		return format.At(at, damage.Errorf("%d bytes after the rows of %d samples", int64(len(decoded))-at, n))
	}
	return nil
}

// member compares the headers and the padding of a member, and returns where the next one begins.
func (b *Block) member(at int64, first uint64, field, dtype string, shape []int64, row int64) (next int64, err error) {
	var buf [2 * tarblock.RecordLen]byte
	want, rows, pad := appendMember(buf[:0], first, field, dtype, shape, b.N, row)
	if row > 0 && int64(b.N) > math.MaxInt64/row {
		return 0, format.At(at, damage.Errorf("%d rows of %d bytes", b.N, row))
	}
	begin := at + int64(len(want))
	next = begin + rows + pad
	if next > int64(len(b.Buf)) || next < begin {
		return 0, format.At(at, damage.Errorf("the block ends before its %d rows of field %q", b.N, field))
	}
	if !bytes.Equal(b.Buf[at:begin], want) {
		return 0, format.At(at, damage.Errorf("the headers of field %q are not those of %d rows of %s, the first with number %d", field, b.N, dtype, first))
	}
	if !damage.AllZero(b.Buf[next-pad : next]) {
		return 0, format.At(next-pad, damage.Errorf("padding is not zero"))
	}
	b.bases = append(b.bases, int(begin))
	return next, nil
}

// keys opens the member of stored keys, whose width only its header has.
func (b *Block) keys(at int64, first uint64) (next int64, err error) {
	lead := at + tarblock.MemberLen(memberName(first, keyField), 0)
	if int64(len(b.Buf)) < lead+npy.Lead {
		return 0, format.At(at, damage.Errorf("the block ends before its keys"))
	}
	n, err := npy.HeaderLen(b.Buf[lead : lead+npy.Lead])
	if err != nil || int64(len(b.Buf))-lead < n {
		return 0, format.At(lead, damage.Errorf("the header of the keys"))
	}
	h, err := npy.Parse(b.Buf[lead : lead+n])
	width, ok := parseKeyType(h.Descr)
	if err != nil || !ok {
		return 0, format.At(lead, damage.Errorf("the keys have elements of type %q", h.Descr))
	}
	b.width = width
	if next, err = b.member(at, first, keyField, keyType(width), nil, int64(width)); err != nil {
		return 0, err
	}
	for k := range b.N {
		key := b.Key(k)
		if bytes.IndexByte(key, 0) >= 0 {
			return 0, format.At(at, damage.Errorf("the key of sample %d of the block contains a NUL", k))
		}
		if err := checkKeyBytes(key); err != nil {
			return 0, format.At(at, err)
		}
	}
	return next, nil
}

// checkKeyBytes checks a key of a block as CheckMember checks a member's name.
func checkKeyBytes(key []byte) error {
	if err := format.CheckMember(key); err != nil {
		return err
	}
	if rest := key[bytes.LastIndexByte(key, '/')+1:]; bytes.IndexByte(rest, '.') >= 0 {
		return damage.Errorf("the key %.100q has a dot in its last element", key)
	}
	return nil
}

func parseKeyType(descr string) (width int, ok bool) {
	if len(descr) < 3 || descr[:2] != "|S" {
		return 0, false
	}
	width, err := strconv.Atoi(descr[2:])
	return width, err == nil && width > 0 && width <= format.MaxName && keyType(width) == descr
}
