package sections

import (
	"encoding/binary"
	"maps"
	"math/bits"
	"slices"
	"strings"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/format/internal/damage"
)

// encoding is how the integers of a column are stored in the raw bytes of a section (SPEC 4.3).
type encoding uint8

const (
	// encodingPlanes: a mask of the byte planes that are not all zero, then those planes, lowest
	// first.
	encodingPlanes encoding = 0
	// encodingDictionary: up to 256 values, then one index byte per integer.
	encodingDictionary encoding = 1
)

// appendPlanes appends v as byte planes. ends gets the offset in dst after each plane: planes
// differ in their statistics and are compressed apart.
func appendPlanes(dst []byte, v []uint64, ends *[]int) []byte {
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

// decodePlanes reads n integers from the front of src and returns the rest of src.
func decodePlanes(src []byte, n int) ([]uint64, []byte, error) {
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

// dictionary returns the distinct values of v in ascending order, or nil if there are more than
// 256.
func dictionary(v []uint64) []uint64 {
	seen := make(map[uint64]struct{}, 257)
	for _, x := range v {
		if seen[x] = struct{}{}; len(seen) > 256 {
			return nil
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// appendDictionary appends v with the values of dictionary(v): their number less one, the values as
// u64, then one index a value.
func appendDictionary(dst []byte, v, dict []uint64) []byte {
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

func decodeDictionary(src []byte, n int) ([]uint64, error) {
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

// appendStrings appends front-coded strings: the lengths shared with the string before, the lengths
// of the rests, the rests (SPEC 4.4).
func appendStrings(dst []byte, s []string, ends *[]int) []byte {
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
	dst = appendPlanes(dst, shared, ends)
	dst = appendPlanes(dst, rest, ends)
	for i, x := range s {
		dst = append(dst, x[shared[i]:]...)
	}
	return dst
}

// decodeStrings reads n front-coded strings that fill src. max bounds their total length: shared
// prefixes let a small input name much.
func decodeStrings(src []byte, n int, max int64) ([]string, error) {
	shared, src, err := decodePlanes(src, n)
	if err != nil {
		return nil, err
	}
	rest, src, err := decodePlanes(src, n)
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

func appendMetadata(dst []byte, m format.Metadata) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(m)))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		dst = appendString(dst, k)
		dst = appendString(dst, m[k])
	}
	return dst
}

func decodeMetadata(src []byte) (format.Metadata, error) {
	r := fieldReader{src: src}
	m := format.Metadata{}
	last := ""
	for i := range r.u32() {
		k, v := r.str(), r.str()
		if r.err != nil {
			break
		}
		if i > 0 && k <= last {
			return nil, damage.Errorf("metadata keys are not ascending")
		}
		m[k], last = v, k
	}
	return m, r.end()
}

func appendString(dst []byte, s string) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(s)))
	return append(dst, s...)
}

// fieldReader reads fixed fields from the front of src. The first failure sticks.
type fieldReader struct {
	src []byte
	err error
}

func (r *fieldReader) take(n int) []byte {
	if r.err != nil || n < 0 || n > len(r.src) {
		if r.err == nil {
			r.err = damage.Errorf("%d bytes needed, %d are left", n, len(r.src))
		}
		return nil
	}
	b := r.src[:n]
	r.src = r.src[n:]
	return b
}

func (r *fieldReader) u8() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *fieldReader) u16() uint16 {
	if b := r.take(2); b != nil {
		return binary.LittleEndian.Uint16(b)
	}
	return 0
}

// u32 reads a count or a length. After a failure it returns 0, so that a loop over it ends.
func (r *fieldReader) u32() uint32 {
	if b := r.take(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (r *fieldReader) u64() uint64 {
	if b := r.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (r *fieldReader) str() string { return string(r.take(int(r.u32()))) }

// end returns the first failure, or an error if bytes are left.
func (r *fieldReader) end() error {
	if r.err == nil && len(r.src) != 0 {
		return damage.Errorf("%d bytes too many", len(r.src))
	}
	return r.err
}
