package mds

import (
	"encoding/binary"
	"math"
	"strconv"
	"strings"

	"github.com/shardtool/shardtool/internal/format/npy"
)

// Kind is a group of encodings.
type Kind uint8

// The kinds of encodings.
const (
	Unknown  Kind = iota
	Bytes         // as they are
	Str           // UTF-8
	JSON          // text
	Integer       // little-endian
	Float         // little-endian
	Digits        // an integer of any length, as text
	Fraction      // a floating-point number, as text
	Decimal       // text
	NDArray
	PIL // pixels
	JPEG
	PNG
	Pickle
)

// Encoding is how values of a column are stored.
type Encoding struct {
	Text string
	Kind Kind
	// Size is the length of all values in bytes, 0 where they differ.
	Size int64
	// List reports that a value is a list of these, and Lead the bytes before their number.
	List bool
	Lead int
	// descr and width are the type of numbers, as NumPy writes it, and their size in bytes. They are
	// empty for arrays that state theirs.
	descr string
	width int
	shape []int64 // of arrays; nil for those that state theirs
}

// plain are the encodings that have no parameters and are not numbers.
var plain = map[string]Encoding{
	"bytes": {Kind: Bytes}, "str": {Kind: Str}, "json": {Kind: JSON}, "pkl": {Kind: Pickle}, "pil": {Kind: PIL}, "jpeg": {Kind: JPEG}, "png": {Kind: PNG},
	"str_int": {Kind: Digits}, "str_float": {Kind: Fraction}, "str_decimal": {Kind: Decimal}, "ndarray": {Kind: NDArray},
	"jpegarray": {Kind: JPEG, List: true}, "jpeg_array": {Kind: JPEG, List: true},
	"list[pil]": {Kind: PIL, List: true, Lead: 4}, "list[jpeg]": {Kind: JPEG, List: true, Lead: 4}, "list[png]": {Kind: PNG, List: true, Lead: 4},
}

// number is a type of numbers. code is its number in arrays that state their type.
type number struct {
	name, descr string
	width       int
	code        byte
}

var numbers = []number{
	{"uint8", "|u1", 1, 8}, {"int8", "|i1", 1, 9}, {"uint16", "<u2", 2, 16}, {"int16", "<i2", 2, 17}, {"float16", "<f2", 2, 18}, {"uint32", "<u4", 4, 32},
	{"int32", "<i4", 4, 33}, {"float32", "<f4", 4, 34}, {"uint64", "<u8", 8, 64}, {"int64", "<i8", 8, 65}, {"float64", "<f8", 8, 66},
}

// parseEncoding parses the name of an encoding. Names that are not known are of the kind Unknown,
// because the column may not be wanted.
func parseEncoding(text string) (Encoding, error) {
	if e, ok := plain[text]; ok {
		e.Text = text
		return e, nil
	}
	name := text
	if name == "int" {
		name = "int64"
	}
	for _, n := range numbers {
		if n.name == name {
			kind := Integer
			if n.descr[1] == 'f' {
				kind = Float
			}
			return Encoding{Text: text, Kind: kind, Size: int64(n.width), descr: n.descr, width: n.width}, nil
		}
	}
	params, ok := strings.CutPrefix(text, "ndarray:")
	if !ok {
		return Encoding{Text: text}, nil
	}
	e := Encoding{Text: text, Kind: NDArray}
	dtype, dims, fixed := strings.Cut(params, ":")
	for _, n := range numbers {
		if n.name == dtype {
			e.descr, e.width = n.descr, n.width
		}
	}
	if e.width == 0 {
		return e, corruptf("%q states no type of arrays", text)
	}
	if !fixed {
		return e, nil
	}
	e.Size = int64(e.width)
	for dim := range strings.SplitSeq(dims, ",") {
		n, err := strconv.ParseInt(strings.TrimSpace(dim), 10, 64)
		if err != nil || n < 1 || e.Size > math.MaxUint32/n || len(e.shape) == maxDims {
			return e, corruptf("%q states no shape of arrays that fit in a shard", text)
		}
		e.shape, e.Size = append(e.shape, n), e.Size*n
	}
	return e, nil
}

// maxDims is the maximum number of dimensions, as in NumPy 1.
const maxDims = 32

// AppendNumber appends a value of the kind Integer or Float as text. It has the length Size.
func (e *Encoding) AppendNumber(dst, b []byte) []byte {
	var u uint64
	for i := range b {
		u |= uint64(b[i]) << (8 * i)
	}
	switch e.descr {
	case "<f2":
		return strconv.AppendFloat(dst, npy.Half(uint16(u)), 'g', -1, 32)
	case "<f4":
		return strconv.AppendFloat(dst, float64(math.Float32frombits(uint32(u))), 'g', -1, 32)
	case "<f8":
		return strconv.AppendFloat(dst, math.Float64frombits(u), 'g', -1, 64)
	}
	if e.descr[1] == 'u' {
		return strconv.AppendUint(dst, u, 10)
	}
	shift := 64 - 8*len(b)
	return strconv.AppendInt(dst, int64(u<<shift)>>shift, 10)
}

// AppendArray appends a value of the kind NDArray as a .npy file.
func (e *Encoding) AppendArray(dst, b []byte) ([]byte, error) {
	descr, width, shape := e.descr, e.width, e.shape
	cut := func() ([]byte, error) { return dst, corruptf("an array is cut off: it has %d bytes", len(b)) }
	if width == 0 {
		if len(b) < 1 {
			return cut()
		}
		for _, n := range numbers {
			if n.code == b[0] {
				descr, width = n.descr, n.width
			}
		}
		if width == 0 {
			return dst, corruptf("an array states the type %d, which does not exist", b[0])
		}
		b = b[1:]
	}
	size := int64(width)
	if shape == nil {
		if len(b) < 1 {
			return cut()
		}
		n, each := int(b[0]>>2), 1<<(b[0]&3)
		if b = b[1:]; len(b) < n*each {
			return cut()
		}
		if n > maxDims {
			return dst, corruptf("an array has %d dimensions, and .npy files %d at most", n, maxDims)
		}
		for range n {
			var dim [8]byte
			copy(dim[:], b[:each])
			d := binary.LittleEndian.Uint64(dim[:])
			if b = b[each:]; d > uint64(len(b)) { // every element has a byte at least
				return dst, corruptf("an array states a dimension of %d, and has %d bytes", d, len(b))
			}
			shape = append(shape, int64(d))
		}
		for _, d := range shape {
			if d == 0 || size > math.MaxUint32/d {
				return dst, corruptf("an array states a shape of %d, and has %d bytes", shape, len(b))
			}
			size *= d
		}
	} else {
		size = e.Size
	}
	if int64(len(b)) != size {
		return dst, corruptf("an array of type %s and shape %d takes %d bytes, and there are %d", descr, shape, size,
			len(b))
	}
	return append(npy.AppendHeader(dst, descr, shape...), b...), nil
}

// Elements calls each for the elements of a list.
func (e *Encoding) Elements(b []byte, each func(i int, b []byte) error) error {
	if len(b) < e.Lead+4 {
		return corruptf("a list is cut off: it has %d bytes", len(b))
	}
	n := int64(binary.LittleEndian.Uint32(b[e.Lead:]))
	sizes := b[e.Lead+4:]
	if 4*n > int64(len(sizes)) || n > maxColumns {
		return corruptf("a list states %d elements, and has %d bytes; %d elements are read at most", n, len(b),
			maxColumns)
	}
	rest := sizes[4*n:]
	for i := range int(n) {
		size := int64(binary.LittleEndian.Uint32(sizes[4*i:]))
		if size > int64(len(rest)) {
			return corruptf("element %d of a list is cut off: it states %d bytes, and %d are left", i, size, len(rest))
		}
		if err := each(i, rest[:size:size]); err != nil {
			return err
		}
		rest = rest[size:]
	}
	if len(rest) > 0 {
		return corruptf("%d bytes follow the last element of a list", len(rest))
	}
	return nil
}
