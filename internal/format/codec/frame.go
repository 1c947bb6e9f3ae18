// Package codec answers how the bytes of a block are stored (SPEC 3): an [Encoder] makes zstd
// frames, or raw ones where compression gains too little, and a [Decoder] turns stored frames into
// checked blocks.
package codec

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/cespare/xxhash/v2"

	"github.com/shardtool/shardtool/internal/format/damage"
	"github.com/shardtool/shardtool/internal/format/tarblock"
)

// Sizes of frames (SPEC 3). They are part of the wire format.
const (
	// MaxSingle is the most bytes that a frame with the Single_Segment flag decodes to: a decoder
	// holds such a frame whole, and the zstd tool refuses more than 128 MiB, others more than 8
	// MiB.
	MaxSingle = 8 << 20
	// rawBlock is the largest block in a zstd frame: 128 KiB (RFC 8878, 3.1.1.2.4).
	rawBlock = 128 << 10
	// MaxExpand bounds the ratio of decoded to stored bytes: a zstd block of 4 bytes can decode to
	// 128 KiB.
	MaxExpand = rawBlock / 4
	// zstdMagic begins every zstd frame; checksumFlag is a bit of the descriptor after it (RFC
	// 8878, 3.1.1.1).
	zstdMagic, checksumFlag = 0xFD2FB528, 0x04
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Checksum is the CRC-32C that guards every frame, section, locator and table.
func Checksum(p []byte) uint32 { return crc32.Checksum(p, castagnoli) }

// UpdateChecksum returns the Checksum of some bytes followed by p, from the sum of those bytes.
func UpdateChecksum(sum uint32, p []byte) uint32 { return crc32.Update(sum, castagnoli, p) }

// EndFrame decodes to 1,024 zero bytes, the end of a tar archive (SPEC 3.4).
var EndFrame = func() []byte {
	// Frame_Header_Descriptor 0x64: content size in 2 bytes (less 256), single segment, checksum.
	f := []byte{0x28, 0xb5, 0x2f, 0xfd, 0x64, 0, 0}
	binary.LittleEndian.PutUint16(f[5:], tarblock.EndLen-256)
	const lastRLE = 1 | 1<<1
	f = append(f, 0, 0, 0)
	putUint24(f[7:], tarblock.EndLen<<3|lastRLE)
	f = append(f, 0)
	return binary.LittleEndian.AppendUint32(f, uint32(xxhash.Sum64(make([]byte, tarblock.EndLen))))
}()

func putUint24(p []byte, v uint32) { p[0], p[1], p[2] = byte(v), byte(v>>8), byte(v>>16) }

// appendFrameHeader begins a zstd frame of n bytes with a content size and a checksum.
func appendFrameHeader(dst []byte, n int) []byte {
	const checksum, single = checksumFlag, 0x20
	dst = binary.LittleEndian.AppendUint32(dst, zstdMagic)
	switch {
	case n > MaxSingle:
		const window8MiB = (23 - 10) << 3
		dst = append(dst, 2<<6|checksum, window8MiB)
		return binary.LittleEndian.AppendUint32(dst, uint32(n))
	case n < 256:
		return append(dst, single|checksum, byte(n))
	case n < 256+1<<16:
		dst = append(dst, 1<<6|single|checksum)
		return binary.LittleEndian.AppendUint16(dst, uint16(n-256))
	}
	dst = append(dst, 2<<6|single|checksum)
	return binary.LittleEndian.AppendUint32(dst, uint32(n))
}

// AppendRawFrame appends a zstd frame that stores src unchanged. cuts are the ascending offsets in
// src at which members begin; payloads[i] is the offset of the content of the member that begins at
// cuts[i]. Where possible a raw block ends at a cut, and a payload of up to 128 KiB lies in one raw
// block, so that a reader can use it in place (SPEC 3.3).
func AppendRawFrame(dst, src []byte, cuts, payloads []int) []byte {
	for _, p := range RawFrame(src, cuts, payloads) {
		dst = append(dst, p...)
	}
	return dst
}

// RawFrame returns the frame of AppendRawFrame in pieces, which in this order are its bytes. Those
// that hold content are parts of src: nothing of it is copied.
func RawFrame(src []byte, cuts, payloads []int) (pieces [][]byte) {
	most := len(src)/rawBlock + 2*len(cuts) + 1 // raw blocks
	pieces = make([][]byte, 0, 2*most+1)
	own := appendFrameHeader(make([]byte, 0, 16+3*most), len(src)) // what is not content
	from, begin := 0, 0
	emit := func(end int, last bool) {
		for {
			n := min(end-begin, rawBlock)
			h := uint32(n) << 3
			if last && begin+n == end {
				h |= 1
			}
			own = append(own, byte(h), byte(h>>8), byte(h>>16))
			pieces = append(pieces, own[from:len(own):len(own)], src[begin:begin+n:begin+n])
			from = len(own)
			begin += n
			if begin == end {
				return
			}
		}
	}
	for i, cut := range cuts {
		next := len(src)
		if i+1 < len(cuts) {
			next = cuts[i+1]
		}
		if next-begin <= rawBlock {
			continue
		}
		if cut > begin {
			emit(cut, false)
		}
		if next-cut <= rawBlock {
			continue
		}
		if p := payloads[i]; p > begin && p < next {
			emit(p, false) // the header alone, so that the payload begins a raw block
		}
		// Whole raw blocks of the payload; its rest shares a block with the members that follow.
		for next-begin > rawBlock {
			emit(begin+rawBlock, false)
		}
	}
	emit(len(src), true)
	own = binary.LittleEndian.AppendUint32(own, uint32(xxhash.Sum64(src)))
	return append(pieces, own[from:])
}

// rawPiece is one raw block of a frame: content bytes [at, at+n) of the frame lie at stored[pos:].
type rawPiece struct{ at, pos, n int }

// parseRawFrame finds the raw blocks of a CodecRaw frame of the given decoded length, and the xxh64
// at its end.
func parseRawFrame(pieces []rawPiece, frame []byte, decoded int) ([]rawPiece, uint32, error) {
	pos, err := frameHeaderLen(frame, decoded)
	if err != nil {
		return pieces, 0, err
	}
	at, end := 0, len(frame)-4
	for {
		if end-pos < 3 {
			return pieces, 0, damage.Errorf("frame of raw blocks is truncated")
		}
		h := uint32(frame[pos]) | uint32(frame[pos+1])<<8 | uint32(frame[pos+2])<<16
		n := int(h >> 3)
		pos += 3
		if h>>1&3 != 0 || n > end-pos || n > rawBlock {
			return pieces, 0, damage.Errorf("raw block of %d bytes, type %d", n, h>>1&3)
		}
		pieces = append(pieces, rawPiece{at: at, pos: pos, n: n})
		pos += n
		at += n
		if h&1 != 0 {
			break
		}
	}
	if pos != end || at != decoded {
		return pieces, 0, damage.Errorf("frame of raw blocks holds %d bytes, not %d", at, decoded)
	}
	return pieces, binary.LittleEndian.Uint32(frame[end:]), nil
}

// frameHeaderLen is the length of a zstd frame's header, which must have a checksum, the expected
// content size and no dictionary.
func frameHeaderLen(frame []byte, decoded int) (int, error) {
	n, sizeLen, ok := zstdHeader(frame)
	if !ok || frame[4]&0x1f != checksumFlag || sizeLen == 0 {
		return 0, damage.Errorf("frame of raw blocks has no zstd header with size and checksum")
	}
	size := uint64(0)
	for i, c := range frame[n-sizeLen : n] {
		size |= uint64(c) << (8 * i)
	}
	if sizeLen == 2 {
		size += 256
	}
	if size != uint64(decoded) {
		return 0, damage.Errorf("frame of raw blocks has a content size of %d bytes, its row %d", size, decoded)
	}
	return n, nil
}

// zstdHeader is the length of a frame's header and of the content size at its end (RFC 8878,
// 3.1.1.1).
func zstdHeader(frame []byte) (n, sizeLen int, ok bool) {
	if len(frame) < 5 || binary.LittleEndian.Uint32(frame) != zstdMagic {
		return 0, 0, false
	}
	d := frame[4]
	single := int(d >> 5 & 1)
	sizeLen = [...]int{single, 2, 4, 8}[d>>6]
	n = 4 + 1 + (1 - single) + [...]int{0, 1, 2, 4}[d&3] + sizeLen
	return n, sizeLen, n <= len(frame)
}

// ContentBound is the most that zstd frames can hold according to the headers of their blocks; 0 if
// those are invalid. A length found in input is compared with it before memory is allocated.
func ContentBound(frames []byte) (total uint64) {
	for len(frames) > 0 {
		n, _, ok := zstdHeader(frames)
		if !ok {
			return 0
		}
		checksum := int(frames[4] & checksumFlag) // 4 bytes
		for last := false; !last; {
			if len(frames)-n < 3 {
				return 0
			}
			h := uint32(frames[n]) | uint32(frames[n+1])<<8 | uint32(frames[n+2])<<16
			size := int(h >> 3)
			n, last = n+3, h&1 != 0
			switch h >> 1 & 3 {
			case 0: // raw
				n, total = n+size, total+uint64(size)
			case 1: // one byte, repeated
				n, total = n+1, total+uint64(size)
			case 2: // compressed
				n, total = n+size, total+rawBlock
			default:
				return 0
			}
		}
		if n += checksum; n > len(frames) {
			return 0
		}
		frames = frames[n:]
	}
	return total
}
