package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"

	pq "github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/schema"
)

// The library trusts the lengths and counts of delta encodings, allocates by them, and does not
// know BYTE_STREAM_SPLIT. This file converts values in these encodings to plain ones first.

var (
	errDelta  = errors.New("its delta-coded values end early")
	errBlocks = errors.New("the header of its delta-coded values is invalid")
)

// byteStreamSplit is the encoding BYTE_STREAM_SPLIT.
const byteStreamSplit = pq.Encoding(9)

// plain appends the n encoded values in p to dst in plain encoding. done is false for encodings
// that the library decodes itself. room bounds the size of the result. last is the last value of
// the previous page, which plain updates: some writers let prefixes of the first value refer to it
// (PARQUET-246).
func plain(dst, p []byte, encoding pq.Encoding, col *schema.Column, n int, room int64,
	last *[]byte) (out []byte, done bool, err error) {
	size := fixedSize(col)
	switch encoding {
	case pq.Encodings.DeltaBinaryPacked:
		if size != 4 && size != 8 || col.PhysicalType() == pq.Types.FixedLenByteArray {
			return dst, true, fmt.Errorf("its values are of type %v, which %v cannot hold", col.PhysicalType(),
				encoding)
		}
		if int64(n)*16 > room {
			return dst, true, tooLarge(int64(n)*16, room)
		}
		values, _, err := deltas(p, n)
		for _, v := range values {
			if size == 4 {
				dst = binary.LittleEndian.AppendUint32(dst, uint32(v))
			} else {
				dst = binary.LittleEndian.AppendUint64(dst, uint64(v))
			}
		}
		return dst, true, err
	case pq.Encodings.DeltaLengthByteArray, pq.Encodings.DeltaByteArray:
		if size > 0 && (col.PhysicalType() != pq.Types.FixedLenByteArray ||
			encoding == pq.Encodings.DeltaLengthByteArray) {
			return dst, true, fmt.Errorf("its values are of type %v, which %v cannot hold", col.PhysicalType(),
				encoding)
		}
		if int64(n)*16 > room {
			return dst, true, tooLarge(int64(n)*16, room)
		}
		dst, err = deltaBytes(dst, p, encoding == pq.Encodings.DeltaByteArray, size, n, room, last)
		return dst, true, err
	case byteStreamSplit:
		if size == 0 || col.PhysicalType() == pq.Types.Int96 || int64(len(p)) != int64(n)*int64(size) {
			return dst, true, errors.New("its bytes do not divide into as many streams as values have bytes")
		}
		at := len(dst)
		dst = append(dst, p...)
		for k := range size {
			for i, b := range p[k*n : (k+1)*n] {
				dst[at+i*size+k] = b
			}
		}
		return dst, true, nil
	}
	return dst, false, nil
}

// fixedSize returns the size of a plain value in bytes, or 0 if it varies.
func fixedSize(col *schema.Column) int {
	switch col.PhysicalType() {
	case pq.Types.Int32, pq.Types.Float:
		return 4
	case pq.Types.Int64, pq.Types.Double:
		return 8
	case pq.Types.Int96:
		return 12
	case pq.Types.FixedLenByteArray:
		return col.TypeLength()
	}
	return 0
}

// deltas decodes n integers of DELTA_BINARY_PACKED and returns the bytes after them.
func deltas(p []byte, n int) (values []int64, rest []byte, err error) {
	c := compact{b: p}
	block, minis, total, last := c.uvarint(), c.uvarint(), c.uvarint(), c.integer()
	p = p[c.off:]
	const most = 1 << 16 // maximum values of a block; writers use 128 to 1,024
	switch {
	case c.err != nil:
		return nil, nil, errDelta
	case block == 0 || block > most || minis == 0 || minis > block || block%minis != 0 || block/minis%8 != 0:
		return nil, nil, errBlocks
	case total != uint64(n):
		return nil, nil, fmt.Errorf("it holds %d delta-coded values, its levels claim %d", total, n)
	case n == 0:
		return nil, p, nil
	}
	if blocks := (total - 1 + block - 1) / block; blocks > uint64(len(p))/(1+minis) { // each has a minimum and widths
		return nil, nil, errDelta
	}
	values = make([]int64, 1, n)
	values[0] = last
	perMini := int(block / minis)
	for len(values) < n {
		c := compact{b: p}
		least := c.integer()
		if p = p[c.off:]; c.err != nil || len(p) < int(minis) {
			return nil, nil, errDelta
		}
		widths := p[:minis]
		p = p[minis:]
		for _, w := range widths {
			take := min(perMini, n-len(values))
			if take == 0 {
				break // widths without values have no bytes
			}
			width := int(w)
			size := min(perMini*width/8, len(p))
			if width > 64 || (take*width+7)/8 > size {
				return nil, nil, errDelta
			}
			for i := range take {
				if width > 0 {
					last += int64(bitsAt(p[:size], i*width, width))
				}
				last += least
				values = append(values, last)
			}
			p = p[size:]
		}
	}
	return values, p, nil
}

// deltaBytes decodes byte strings with delta-coded lengths. If prefixes is set, each shares a
// prefix with the previous one.
func deltaBytes(dst, p []byte, prefixes bool, size, n int, room int64, before *[]byte) ([]byte, error) {
	var shared []int64
	var err error
	if prefixes {
		if shared, p, err = deltas(p, n); err != nil {
			return dst, err
		}
	}
	lengths, p, err := deltas(p, n)
	if err != nil {
		return dst, err
	}
	last, begin := *before, len(dst)
	for i, length := range lengths {
		prefix := int64(0)
		if prefixes {
			prefix = shared[i]
		}
		if length < 0 || length > int64(len(p)) || prefix < 0 || prefix > int64(len(last)) {
			return dst, errDelta
		}
		if size > 0 && prefix+length != int64(size) {
			return dst, fmt.Errorf("it has a value of %d bytes, the schema declares %d", prefix+length, size)
		}
		if int64(len(dst)-begin)+4+prefix+length > room {
			return dst, tooLarge(room+1, room)
		}
		if size == 0 {
			dst = binary.LittleEndian.AppendUint32(dst, uint32(prefix+length))
		}
		at := len(dst)
		dst = append(append(dst, last[:prefix]...), p[:length]...)
		last, p = dst[at:], p[length:]
	}
	if prefixes {
		*before = append((*before)[:0], last...)
	}
	return dst, nil
}
