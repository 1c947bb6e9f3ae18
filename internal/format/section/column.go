package section

import (
	"encoding/binary"
	"maps"
	"math/bits"
	"slices"
	"strings"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/damage"
)

// Encoding is how the integers of a column are stored in the raw bytes of a section (SPEC 4.3).
type Encoding uint8

const (
	// EncodingPlanes: a mask of the byte planes that are not all zero, then those planes, lowest
	// first.
	EncodingPlanes Encoding = 0
	// EncodingDictionary: up to 256 values, then one index byte per integer.
	EncodingDictionary Encoding = 1
)

// AppendPlanes appends v as byte planes. ends gets the offset in dst after each plane: planes
// differ in their statistics and are compressed apart.
func AppendPlanes(dst []byte, v []uint64, ends *[]int) []byte {
	var or uint64
	for _, x := range v {
		or |= x
	}
	mask := byte(0)
	for p := range 8 {
		if or>>(8*p)&0xff != 0 {
			mask |= 1 << p
		}
	}
	dst = append(dst, mask)
	for p := range 8 {
		if mask>>p&1 == 0 {
			continue
		}
		dst = slices.Grow(dst, len(v))
		for _, x := range v {
			dst = append(dst, byte(x>>(8*p)))
		}
		if ends != nil {
			*ends = append(*ends, len(dst))
		}
	}
	return dst
}

// DecodePlanes reads n integers from the front of src and returns the rest of src.
func DecodePlanes(src []byte, n int) ([]uint64, []byte, error) {
	if len(src) == 0 {
		return nil, nil, damage.Errorf("column without its mask")
	}
	mask := src[0]
	src = src[1:]
	if need := bits.OnesCount8(mask); len(src)/max(need, 1) < n && need > 0 {
		return nil, nil, damage.Errorf("column of %d integers has %d bytes, needs %d planes", n, len(src), need)
	}
	v := make([]uint64, n)
	for p := range 8 {
		if mask>>p&1 == 0 {
			continue
		}
		plane := src[:n]
		for i, c := range plane {
			v[i] |= uint64(c) << (8 * p)
		}
		src = src[n:]
	}
	return v, src, nil
}

// Dictionary returns the distinct values of v in ascending order, or nil if there are more than
// 256.
func Dictionary(v []uint64) []uint64 {
	seen := make(map[uint64]struct{}, 257)
	for _, x := range v {
		if seen[x] = struct{}{}; len(seen) > 256 {
			return nil
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// AppendDictionary appends v with the values of Dictionary(v): their number less one, the values as
// u64, then one index a value.
func AppendDictionary(dst []byte, v, dict []uint64) []byte {
	dst = append(dst, byte(len(dict)-1))
	index := make(map[uint64]byte, len(dict))
	for i, x := range dict {
		dst = binary.LittleEndian.AppendUint64(dst, x)
		index[x] = byte(i)
	}
	for _, x := range v {
		dst = append(dst, index[x])
	}
	return dst
}

// DecodeDictionary reads n integers that fill src.
func DecodeDictionary(src []byte, n int) ([]uint64, error) {
	if len(src) == 0 {
		return nil, damage.Errorf("dictionary column without its length")
	}
	size := int(src[0]) + 1
	if len(src) != 1+8*size+n {
		return nil, damage.Errorf("dictionary column of %d integers and %d values has %d bytes", n, size, len(src))
	}
	dict := make([]uint64, size)
	for i := range dict {
		dict[i] = binary.LittleEndian.Uint64(src[1+8*i:])
		if i > 0 && dict[i] <= dict[i-1] {
			return nil, damage.Errorf("dictionary values are not ascending")
		}
	}
	v := make([]uint64, n)
	for i, c := range src[1+8*size:] {
		if int(c) >= size {
			return nil, damage.Errorf("dictionary index %d of %d", c, size)
		}
		v[i] = dict[c]
	}
	return v, nil
}

// AppendStrings appends front-coded strings: the lengths shared with the string before, the lengths
// of the rests, the rests (SPEC 4.4).
func AppendStrings(dst []byte, s []string, ends *[]int) []byte {
	shared, rest := make([]uint64, len(s)), make([]uint64, len(s))
	prev := ""
	for i, x := range s {
		n := 0
		for n < len(prev) && n < len(x) && prev[n] == x[n] {
			n++
		}
		shared[i], rest[i] = uint64(n), uint64(len(x)-n)
		prev = x
	}
	dst = AppendPlanes(dst, shared, ends)
	dst = AppendPlanes(dst, rest, ends)
	for i, x := range s {
		dst = append(dst, x[shared[i]:]...)
	}
	return dst
}

// DecodeStrings reads n front-coded strings that fill src. max bounds their total length: shared
// prefixes let a small input name much.
func DecodeStrings(src []byte, n int, max int64) ([]string, error) {
	shared, src, err := DecodePlanes(src, n)
	if err != nil {
		return nil, err
	}
	rest, src, err := DecodePlanes(src, n)
	if err != nil {
		return nil, err
	}
	total, prev := int64(0), uint64(0)
	for i := range shared {
		if shared[i] > prev || rest[i] > uint64(len(src)) {
			return nil, damage.Errorf("string %d shares %d of %d bytes and has %d more", i, shared[i], prev, rest[i])
		}
		prev = shared[i] + rest[i]
		if total += int64(prev); total > max {
			return nil, damage.Errorf("strings of more than %d bytes", max)
		}
	}
	// One buffer for all: strings are slices of it.
	var buf strings.Builder
	buf.Grow(int(total))
	out := make([]string, n)
	last := ""
	for i := range out {
		at := buf.Len()
		if rest[i] > uint64(len(src)) {
			return nil, damage.Errorf("string %d has %d more bytes, %d are left", i, rest[i], len(src))
		}
		buf.WriteString(last[:shared[i]])
		buf.Write(src[:rest[i]])
		src = src[rest[i]:]
		last = buf.String()[at:]
		out[i] = last
	}
	if len(src) != 0 {
		return nil, damage.Errorf("%d bytes after the last string", len(src))
	}
	return out, nil
}

// AppendMetadata appends key/values in ascending order of keys.
func AppendMetadata(dst []byte, m format.Metadata) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(m)))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		dst = AppendString(dst, k)
		dst = AppendString(dst, m[k])
	}
	return dst
}

// DecodeMetadata decodes what AppendMetadata appended.
func DecodeMetadata(src []byte) (format.Metadata, error) {
	r := Reader{Src: src}
	m := format.Metadata{}
	last := ""
	for i := range r.U32() {
		k, v := r.Str(), r.Str()
		if r.Err != nil {
			break
		}
		if i > 0 && k <= last {
			return nil, damage.Errorf("metadata keys are not ascending")
		}
		m[k], last = v, k
	}
	return m, r.End()
}

// AppendString appends the length of a text and the text.
func AppendString(dst []byte, s string) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(s)))
	return append(dst, s...)
}

// Reader reads fixed fields from the front of src. The first failure sticks.
type Reader struct {
	Src []byte
	Err error
}

// Take returns the next n bytes.
func (r *Reader) Take(n int) []byte {
	if r.Err != nil || n < 0 || n > len(r.Src) {
		if r.Err == nil {
			r.Err = damage.Errorf("%d bytes needed, %d are left", n, len(r.Src))
		}
		return nil
	}
	b := r.Src[:n]
	r.Src = r.Src[n:]
	return b
}

// U8 reads a byte.
func (r *Reader) U8() byte {
	if b := r.Take(1); b != nil {
		return b[0]
	}
	return 0
}

// U16 reads a little-endian integer of 2 bytes.
func (r *Reader) U16() uint16 {
	if b := r.Take(2); b != nil {
		return binary.LittleEndian.Uint16(b)
	}
	return 0
}

// U32 reads a little-endian integer of 4 bytes, such as a count or a length. After a failure it
// returns 0, so that a loop over it ends.
func (r *Reader) U32() uint32 {
	if b := r.Take(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

// U64 reads a little-endian integer of 8 bytes.
func (r *Reader) U64() uint64 {
	if b := r.Take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// Str reads the length of a text and the text.
func (r *Reader) Str() string { return string(r.Take(int(r.U32()))) }

// End returns the first failure, or an error if bytes are left.
func (r *Reader) End() error {
	if r.Err == nil && len(r.Src) != 0 {
		return damage.Errorf("%d bytes too many", len(r.Src))
	}
	return r.Err
}
