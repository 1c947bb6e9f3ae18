// Package section encodes and decodes a directory of sections, each with its own checksum, and the
// columns, texts and fields in them (SPEC 4.1 and 4.3). The index of a shard, the tables of a
// generation and the file of a view are such directories.
package section

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/codec"
	"github.com/shardtool/shardtool/internal/format/damage"
)

// Kinds of sections that need minor version 1: what the rows of a stacked shard are, and the keys
// where they are numbered (SPEC 11).
const (
	KindLayout     = "LAYT"
	KindKeyNumbers = "KNUM"
)

// Minor returns the minor version of a directory.
func Minor(dir []Section) uint16 {
	for i := range dir {
		if k := dir[i].Kind; k == KindLayout || k == KindKeyNumbers {
			return format.Minor
		}
	}
	return 0
}

// Section is a row of a directory. The payload that it describes is stored or, when writing, raw.
type Section struct {
	Kind     string
	Part     uint32
	Critical bool
	Codec    format.Codec
	Encoding Encoding
	Off      uint64
	Stored   uint32
	Raw      uint32
	Crc      uint32
}

// Lengths of a row of a directory and of what precedes the rows, in bytes, and the flag of a
// section that a reader must understand.
const (
	DirEntryLen  = 32
	DirHeaderLen = 8 + 2 + 2 + 4 // magic, major, minor, sections
	FlagCritical = 1
)

// Raw is a section to be written: its bytes, and the offsets at which their statistics
// change. The pieces between are compressed apart.
type Raw struct {
	Kind     string
	Part     uint32
	Critical bool
	Encoding Encoding
	Raw      []byte
	Cuts     []int
}

// Column encodes integers in the way that is smaller once compressed.
func Column(kind string, part uint32, critical bool, v []uint64) Raw {
	s := Raw{Kind: kind, Part: part, Critical: critical}
	s.Raw = AppendPlanes(nil, v, &s.Cuts)
	// With one plane the dictionary can save nothing that compression does not.
	if len(s.Cuts) < 2 {
		return s
	}
	if d := Dictionary(v); d != nil {
		alt := Raw{Kind: kind, Part: part, Critical: critical, Encoding: EncodingDictionary}
		alt.Raw = AppendDictionary(nil, v, d)
		alt.Cuts = []int{1 + 8*len(d)}
		if alt.StoredLen() < s.StoredLen() {
			return alt
		}
	}
	return s
}

// Zstd compresses sections. The level does not depend on the level of the blocks, so that an
// index is a function of its content.
var Zstd = sync.OnceValue(func() *zstd.Encoder {
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
func (s *Raw) compress() []byte {
	if len(s.Raw) < 64 {
		return nil
	}
	var out []byte
	begin := 0
	for _, end := range append(slices.Clone(s.Cuts), len(s.Raw)) {
		for begin < end {
			n := min(end-begin, codec.MaxSingle)
			out = Zstd().EncodeAll(s.Raw[begin:begin+n], out)
			begin += n
		}
	}
	if len(out) >= len(s.Raw) {
		return nil
	}
	return out
}

// StoredLen is how many bytes the section takes in the file.
func (s *Raw) StoredLen() int {
	if z := s.compress(); z != nil {
		return len(z)
	}
	return len(s.Raw)
}

// Append appends the payloads of secs to dst and returns their directory rows; base is the
// offset of dst[0].
func Append(dst []byte, base uint64, secs []Raw) ([]byte, []Section, error) {
	var dir []Section
	for i := range secs {
		s := &secs[i]
		stored, storedAs := s.Raw, format.CodecBytes
		if z := s.compress(); z != nil {
			stored, storedAs = z, format.CodecZstd
		}
		if uint64(len(s.Raw)) > math.MaxUint32 {
			return nil, nil, fmt.Errorf("%w: section %s of %d bytes: use smaller shards", format.ErrTooLarge, s.Kind,
				len(s.Raw))
		}
		dir = append(dir, Section{
			Kind: s.Kind, Part: s.Part, Critical: s.Critical, Codec: storedAs, Encoding: s.Encoding,
			Off: base + uint64(len(dst)), Stored: uint32(len(stored)), Raw: uint32(len(s.Raw)),
			Crc: codec.Checksum(stored),
		})
		dst = append(dst, stored...)
	}
	return dst, dir, nil
}

// AppendDirectory appends magic, version, rows and their checksum.
func AppendDirectory(dst []byte, magic string, dir []Section) []byte {
	at := len(dst)
	dst = append(dst, magic...)
	dst = binary.LittleEndian.AppendUint16(dst, format.Major)
	dst = binary.LittleEndian.AppendUint16(dst, Minor(dir))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(dir)))
	for _, s := range dir {
		flags := byte(0)
		if s.Critical {
			flags = FlagCritical
		}
		dst = append(dst, s.Kind...)
		dst = append(dst, flags, byte(s.Codec), byte(s.Encoding), 0)
		dst = binary.LittleEndian.AppendUint32(dst, s.Part)
		dst = binary.LittleEndian.AppendUint64(dst, s.Off)
		dst = binary.LittleEndian.AppendUint32(dst, s.Stored)
		dst = binary.LittleEndian.AppendUint32(dst, s.Raw)
		dst = binary.LittleEndian.AppendUint32(dst, s.Crc)
	}
	return binary.LittleEndian.AppendUint32(dst, codec.Checksum(dst[at:]))
}

// DirectoryLen is the length of a directory of n sections.
func DirectoryLen(n int) int { return DirHeaderLen + n*DirEntryLen + 4 }

// DecodeDirectoryHeader reads magic, version and the number of rows from the first 16 bytes.
func DecodeDirectoryHeader(src []byte, magic string) (sections int, err error) {
	if len(src) < DirHeaderLen || string(src[:8]) != magic {
		return 0, damage.Errorf("no %q", magic)
	}
	major, n := binary.LittleEndian.Uint16(src[8:]), binary.LittleEndian.Uint32(src[12:])
	if major != format.Major {
		return 0, fmt.Errorf("%w: index of version %d, this program reads %d: use a newer shardtool", format.ErrVersion,
			major, format.Major)
	}
	if n > 1<<26 {
		return 0, damage.Errorf("directory of %d sections", n)
	}
	return int(n), nil
}

// Directory is the sections of a directory, each of its own kind and part.
type Directory struct {
	Sections []Section
	at       map[id]int
}

// Find returns the section of a kind and part, nil if there is none.
func (d *Directory) Find(kind string, part uint32) *Section {
	if i, ok := d.at[id{kind, part}]; ok {
		return &d.Sections[i]
	}
	return nil
}

// DecodeDirectory decodes a directory at the front of src. known reports which types this reader
// understands.
func DecodeDirectory(src []byte, magic string, known func(kind string) bool) (d Directory, err error) {
	n, err := DecodeDirectoryHeader(src, magic)
	if err != nil {
		return d, err
	}
	if len(src) < DirectoryLen(n) {
		return d, damage.Errorf("directory of %d sections is truncated", n)
	}
	body := src[:DirectoryLen(n)-4]
	if codec.Checksum(body) != binary.LittleEndian.Uint32(src[len(body):]) {
		return d, damage.Errorf("checksum mismatch in the directory")
	}
	d = Directory{make([]Section, 0, n), make(map[id]int, n)}
	for p := body[DirHeaderLen:]; len(p) > 0; p = p[DirEntryLen:] {
		s := Section{
			Kind: string(p[:4]), Critical: p[4]&FlagCritical != 0, Codec: format.Codec(p[5]), Encoding: Encoding(p[6]),
			Part: binary.LittleEndian.Uint32(p[8:]), Off: binary.LittleEndian.Uint64(p[12:]),
			Stored: binary.LittleEndian.Uint32(p[20:]), Raw: binary.LittleEndian.Uint32(p[24:]),
			Crc: binary.LittleEndian.Uint32(p[28:]),
		}
		if !known(s.Kind) {
			if s.Critical {
				return d, fmt.Errorf("%w: this index needs section %q, which is unknown: use a newer shardtool",
					format.ErrVersion, s.Kind)
			}
			d.Sections = append(d.Sections, s)
			continue
		}
		if s.Codec > format.CodecZstd || s.Encoding > EncodingDictionary {
			return d, fmt.Errorf("%w: section %s has codec %d, encoding %d", format.ErrVersion, s.Kind, s.Codec,
				s.Encoding)
		}
		if p[7] != 0 || p[4]&^FlagCritical != 0 || (s.Codec == format.CodecBytes && s.Raw != s.Stored) ||
			uint64(s.Raw) > codec.MaxExpand*uint64(s.Stored) {
			return d, damage.Errorf("section %s of %d stored and %d raw bytes", s.Kind, s.Stored, s.Raw)
		}
		d.Sections = append(d.Sections, s)
	}
	for i, s := range d.Sections {
		if d.Find(s.Kind, s.Part) != nil {
			return d, damage.Errorf("section %s, part %d occurs twice", s.Kind, s.Part)
		}
		d.at[id{s.Kind, s.Part}] = i
	}
	return d, nil
}

// Contiguous checks that sections follow one another from begin to end without a gap, so that every
// byte belongs to a section and is checked.
func Contiguous(dir []Section, begin, end uint64) error {
	for _, s := range dir {
		if s.Off != begin || uint64(s.Stored) > end-begin {
			return damage.Errorf("section %s at %d, expected at %d", s.Kind, s.Off, begin)
		}
		begin += uint64(s.Stored)
	}
	if begin != end {
		return damage.Errorf("sections end at %d, not %d", begin, end)
	}
	return nil
}

// unzstd decodes sections. DecodeAll may be called concurrently.
var unzstd = sync.OnceValue(func() *zstd.Decoder {
	z, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecodeAllCapLimit(true),
		zstd.WithDecoderMaxMemory(math.MaxUint32), zstd.WithDecoderMaxWindow(2*codec.MaxSingle))
	if err != nil {
		panic("format: section decoder options: " + err.Error()) // constant options
	}
	return z
})

// Payload checks a section's stored bytes and returns the raw ones.
func (s *Section) Payload(stored []byte) ([]byte, error) {
	if len(stored) != int(s.Stored) {
		return nil, damage.Errorf("section %s has %d bytes, not %d", s.Kind, len(stored), s.Stored)
	}
	if codec.Checksum(stored) != s.Crc {
		return nil, damage.Errorf("checksum mismatch in section %s, part %d", s.Kind, s.Part)
	}
	if s.Codec == format.CodecBytes {
		return stored, nil
	}
	if most := codec.ContentBound(stored); uint64(s.Raw) > most {
		return nil, damage.Errorf("section %s, part %d holds at most %d bytes, not %d", s.Kind, s.Part, most, s.Raw)
	}
	raw, err := unzstd().DecodeAll(stored, make([]byte, 0, int(s.Raw)+16))
	if err != nil || len(raw) != int(s.Raw) {
		return nil, damage.Errorf("section %s, part %d decodes to %d bytes, not %d", s.Kind, s.Part, len(raw), s.Raw)
	}
	return raw, nil
}

// Column reads n integers that fill a section.
func (s *Section) Column(raw []byte, n int) ([]uint64, error) {
	if s.Encoding == EncodingDictionary {
		v, err := DecodeDictionary(raw, n)
		if err != nil {
			return nil, fmt.Errorf("section %s: %w", s.Kind, err)
		}
		return v, nil
	}
	v, rest, err := DecodePlanes(raw, n)
	if err != nil {
		return nil, fmt.Errorf("section %s: %w", s.Kind, err)
	}
	if len(rest) != 0 {
		return nil, damage.Errorf("section %s has %d bytes too many", s.Kind, len(rest))
	}
	return v, nil
}

// AppendSkippable wraps a payload in a zstd skippable frame.
func AppendSkippable(dst []byte, magic uint32, payload []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, magic)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(payload)))
	return append(dst, payload...)
}

// id names a section. A directory has each once.
type id struct {
	Kind string
	Part uint32
}
