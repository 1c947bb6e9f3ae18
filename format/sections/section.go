// Package sections encodes and decodes what describes samples. Each such file is a directory of
// sections (SPEC 4.2), each with its own checksum:
//
//   - the index of a shard, at its end or in a sidecar: an [IndexBuilder] collects it, [AppendTail]
//     writes it, [ParseTail] and [Tail.DecodeCold] read it (SPEC 4 and 5),
//   - the tables of a generation: [EncodeTables] writes a [Manifest], [OpenTables] reads it in parts,
//     and a [Summary] is the manifest.json that names them (SPEC 6),
//   - a [View]: which samples an epoch has (SPEC 10).
//
// A [BlockChecker] compares a decoded block with the index of its shard, and a [ShardHasher] computes
// the identity of a shard (SPEC 7).
package sections

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/format/codec"
	"github.com/shardtool/shardtool/format/internal/damage"
)

// minorOf returns the minor version of a directory.
func minorOf(dir []section) uint16 {
	for i := range dir {
		if k := dir[i].kind; k == typeLayout || k == typeKeyNumbers {
			return format.Minor
		}
	}
	return 0
}

// Section types (SPEC 4.2, 6.2).
const (
	typeSchema  = "SCHM" // field names, shapes, attributes
	typeStored  = "BSTO" // a row a frame: stored length
	typeDecoded = "BDEC" // decoded length
	typeSamples = "BSMP" // samples; 0 continues the row before
	typeCRC     = "BCRC" // CRC-32C of the stored bytes
	typeCodec   = "BCDC" // codec
	typeMeta    = "META" // key/values
	typeSize    = "SIZE" // part = field: payload sizes
	typeShape   = "SHAP" // shape a sample
	typeGap     = "GAPS" // bytes before a payload
	typeKeys    = "KEYS" // keys, front-coded
	typeAttr    = "ATTR" // part = attribute: a value a sample
	typeLabels  = "ATTL" // part = attribute: the labels that ATTR numbers
	typeAbsent  = "ATTN" // part = attribute: a bit a sample, set where there is no value
	typeSkipped = "SKIP" // list of the samples left out
)

// section is a row of a directory. The payload that it describes is stored or, when writing, raw.
type section struct {
	kind     string
	part     uint32
	critical bool
	codec    format.Codec
	encoding encoding
	off      uint64
	stored   uint32
	raw      uint32
	crc      uint32
}

const (
	dirEntryLen  = 32
	dirHeaderLen = 8 + 2 + 2 + 4 // magic, major, minor, sections
	flagCritical = 1
)

// rawSection is a section to be written: its bytes, and the offsets at which their statistics
// change. The pieces between are compressed apart.
type rawSection struct {
	kind     string
	part     uint32
	critical bool
	encoding encoding
	raw      []byte
	cuts     []int
}

// columnSection encodes integers in the way that is smaller once compressed.
func columnSection(kind string, part uint32, critical bool, v []uint64) rawSection {
	s := rawSection{kind: kind, part: part, critical: critical}
	s.raw = appendPlanes(nil, v, &s.cuts)
	// With one plane the dictionary can save nothing that compression does not.
	if len(s.cuts) < 2 {
		return s
	}
	if d := dictionary(v); d != nil {
		alt := rawSection{kind: kind, part: part, critical: critical, encoding: encodingDictionary}
		alt.raw = appendDictionary(nil, v, d)
		alt.cuts = []int{1 + 8*len(d)}
		if alt.storedLen() < s.storedLen() {
			return alt
		}
	}
	return s
}

// sectionZstd compresses sections. The level does not depend on that of the blocks, so that an
// index is a function of its content.
var sectionZstd = sync.OnceValue(func() *zstd.Encoder {
	z, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedDefault), zstd.WithEncoderConcurrency(1),
		zstd.WithSingleSegment(true), zstd.WithWindowSize(codec.MaxSingle), zstd.WithEncoderCRC(false),
		zstd.WithAllLitEntropyCompression(true)) // planes have no repeats, only skewed bytes
	if err != nil {
		panic("format: section encoder options: " + err.Error()) // constant options
	}
	return z
})

// compress returns one zstd frame for each piece between cuts, of at most 8 MiB each, or nil if
// that saves nothing.
func (s *rawSection) compress() []byte {
	if len(s.raw) < 64 {
		return nil
	}
	var out []byte
	begin := 0
	for _, end := range append(slices.Clone(s.cuts), len(s.raw)) {
		for begin < end {
			n := min(end-begin, codec.MaxSingle)
			out = sectionZstd().EncodeAll(s.raw[begin:begin+n], out)
			begin += n
		}
	}
	if len(out) >= len(s.raw) {
		return nil
	}
	return out
}

// storedLen is how many bytes the section takes in the file.
func (s *rawSection) storedLen() int {
	if z := s.compress(); z != nil {
		return len(z)
	}
	return len(s.raw)
}

// appendSections appends the payloads of secs to dst and returns their directory rows; base is the
// offset of dst[0].
func appendSections(dst []byte, base uint64, secs []rawSection) ([]byte, []section, error) {
	var dir []section
	for i := range secs {
		s := &secs[i]
		stored, storedAs := s.raw, format.CodecBytes
		if z := s.compress(); z != nil {
			stored, storedAs = z, format.CodecZstd
		}
		if uint64(len(s.raw)) > math.MaxUint32 {
			return nil, nil, fmt.Errorf("%w: section %s of %d bytes: use smaller shards", format.ErrTooLarge, s.kind, len(s.raw))
		}
		dir = append(dir, section{
			kind: s.kind, part: s.part, critical: s.critical, codec: storedAs, encoding: s.encoding,
			off: base + uint64(len(dst)), stored: uint32(len(stored)), raw: uint32(len(s.raw)), crc: codec.Checksum(stored),
		})
		dst = append(dst, stored...)
	}
	return dst, dir, nil
}

// appendDirectory appends magic, version, rows and their checksum.
func appendDirectory(dst []byte, magic string, dir []section) []byte {
	at := len(dst)
	dst = append(dst, magic...)
	dst = binary.LittleEndian.AppendUint16(dst, format.Major)
	dst = binary.LittleEndian.AppendUint16(dst, minorOf(dir))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(dir)))
	for _, s := range dir {
		flags := byte(0)
		if s.critical {
			flags = flagCritical
		}
		dst = append(dst, s.kind...)
		dst = append(dst, flags, byte(s.codec), byte(s.encoding), 0)
		dst = binary.LittleEndian.AppendUint32(dst, s.part)
		dst = binary.LittleEndian.AppendUint64(dst, s.off)
		dst = binary.LittleEndian.AppendUint32(dst, s.stored)
		dst = binary.LittleEndian.AppendUint32(dst, s.raw)
		dst = binary.LittleEndian.AppendUint32(dst, s.crc)
	}
	return binary.LittleEndian.AppendUint32(dst, codec.Checksum(dst[at:]))
}

func directoryLen(n int) int { return dirHeaderLen + n*dirEntryLen + 4 }

// decodeDirectoryHeader reads magic, version and the number of rows from the first 16 bytes.
func decodeDirectoryHeader(src []byte, magic string) (sections int, err error) {
	if len(src) < dirHeaderLen || string(src[:8]) != magic {
		return 0, damage.Errorf("no %q", magic)
	}
	major, n := binary.LittleEndian.Uint16(src[8:]), binary.LittleEndian.Uint32(src[12:])
	if major != format.Major {
		return 0, fmt.Errorf("%w: index of version %d, this program reads %d: use a newer shardtool", format.ErrVersion, major, format.Major)
	}
	if n > 1<<26 {
		return 0, damage.Errorf("directory of %d sections", n)
	}
	return int(n), nil
}

// decodeDirectory decodes a directory at the front of src. known reports which types this reader
// understands.
func decodeDirectory(src []byte, magic string, known func(kind string) bool) ([]section, error) {
	n, err := decodeDirectoryHeader(src, magic)
	if err != nil {
		return nil, err
	}
	if len(src) < directoryLen(n) {
		return nil, damage.Errorf("directory of %d sections is truncated", n)
	}
	body := src[:directoryLen(n)-4]
	if codec.Checksum(body) != binary.LittleEndian.Uint32(src[len(body):]) {
		return nil, damage.Errorf("checksum mismatch in the directory")
	}
	dir := make([]section, 0, n)
	for p := body[dirHeaderLen:]; len(p) > 0; p = p[dirEntryLen:] {
		s := section{
			kind: string(p[:4]), critical: p[4]&flagCritical != 0, codec: format.Codec(p[5]), encoding: encoding(p[6]),
			part: binary.LittleEndian.Uint32(p[8:]), off: binary.LittleEndian.Uint64(p[12:]),
			stored: binary.LittleEndian.Uint32(p[20:]), raw: binary.LittleEndian.Uint32(p[24:]), crc: binary.LittleEndian.Uint32(p[28:]),
		}
		if !known(s.kind) {
			if s.critical {
				return nil, fmt.Errorf("%w: this index needs section %q, which is unknown: use a newer shardtool", format.ErrVersion, s.kind)
			}
			dir = append(dir, s)
			continue
		}
		if s.codec > format.CodecZstd || s.encoding > encodingDictionary {
			return nil, fmt.Errorf("%w: section %s has codec %d, encoding %d", format.ErrVersion, s.kind, s.codec, s.encoding)
		}
		if p[7] != 0 || p[4]&^flagCritical != 0 || (s.codec == format.CodecBytes && s.raw != s.stored) ||
			uint64(s.raw) > codec.MaxExpand*uint64(s.stored) {
			return nil, damage.Errorf("section %s of %d stored and %d raw bytes", s.kind, s.stored, s.raw)
		}
		dir = append(dir, s)
	}
	return dir, nil
}

// contiguous checks that sections follow one another from begin to end without a gap, so that every
// byte belongs to a section and is checked.
func contiguous(dir []section, begin, end uint64) error {
	for _, s := range dir {
		if s.off != begin || uint64(s.stored) > end-begin {
			return damage.Errorf("section %s at %d, expected at %d", s.kind, s.off, begin)
		}
		begin += uint64(s.stored)
	}
	if begin != end {
		return damage.Errorf("sections end at %d, not %d", begin, end)
	}
	return nil
}

// sectionUnzstd decodes sections. DecodeAll may be called concurrently.
var sectionUnzstd = sync.OnceValue(func() *zstd.Decoder {
	z, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecodeAllCapLimit(true),
		zstd.WithDecoderMaxMemory(math.MaxUint32), zstd.WithDecoderMaxWindow(2*codec.MaxSingle))
	if err != nil {
		panic("format: section decoder options: " + err.Error()) // constant options
	}
	return z
})

// payload checks a section's stored bytes and returns the raw ones.
func (s *section) payload(stored []byte) ([]byte, error) {
	if len(stored) != int(s.stored) {
		return nil, damage.Errorf("section %s has %d bytes, not %d", s.kind, len(stored), s.stored)
	}
	if codec.Checksum(stored) != s.crc {
		return nil, damage.Errorf("checksum mismatch in section %s, part %d", s.kind, s.part)
	}
	if s.codec == format.CodecBytes {
		return stored, nil
	}
	if most := codec.ContentBound(stored); uint64(s.raw) > most {
		return nil, damage.Errorf("section %s, part %d holds at most %d bytes, not %d", s.kind, s.part, most, s.raw)
	}
	raw, err := sectionUnzstd().DecodeAll(stored, make([]byte, 0, int(s.raw)+16))
	if err != nil || len(raw) != int(s.raw) {
		return nil, damage.Errorf("section %s, part %d decodes to %d bytes, not %d", s.kind, s.part, len(raw), s.raw)
	}
	return raw, nil
}

// column reads n integers that fill a section.
func (s *section) column(raw []byte, n int) ([]uint64, error) {
	if s.encoding == encodingDictionary {
		v, err := decodeDictionary(raw, n)
		if err != nil {
			return nil, fmt.Errorf("section %s: %w", s.kind, err)
		}
		return v, nil
	}
	v, rest, err := decodePlanes(raw, n)
	if err != nil {
		return nil, fmt.Errorf("section %s: %w", s.kind, err)
	}
	if len(rest) != 0 {
		return nil, damage.Errorf("section %s has %d bytes too many", s.kind, len(rest))
	}
	return v, nil
}

// appendSkippable wraps a payload in a zstd skippable frame.
func appendSkippable(dst []byte, magic uint32, payload []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, magic)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(payload)))
	return append(dst, payload...)
}
