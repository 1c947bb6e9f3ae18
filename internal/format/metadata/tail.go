package metadata

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/codec"
	"github.com/shardtool/shardtool/internal/format/damage"
	"github.com/shardtool/shardtool/internal/format/samplekey"
	"github.com/shardtool/shardtool/internal/format/section"
	"github.com/shardtool/shardtool/internal/format/stacked"
	"github.com/shardtool/shardtool/internal/format/tarblock"
)

// Names and sizes of what follows the blocks (SPEC 4 and 5). They are part of the wire format.
const (
	magicLocator  = "SHRDLOC1"
	magicHot      = "SHRDTOC1"
	skippable     = 0x184D2A5B // one of the 16 magic numbers of zstd's skippable frames
	seekSkippable = 0x184D2A5E // the one of the seekable format
	seekMagic     = 0x8F92EAB1
	skipHeader    = 8 // magic, length
	seekFooter    = 9 // frames u32, descriptor u8, magic u32

	locatorLen   = 8 + 2 + 2 + 4 + 6*8 + 4 + 4
	locatorFrame = skipHeader + locatorLen

	// flagForeign: another tool wrote the archive. Its members may be of any kind and at any place.
	flagForeign = 1 << 0
	// flagsCritical are refused if set and unknown; unknown flags of the upper half are ignored.
	flagsCritical = 1<<16 - 1

	// maxForeignEnd bounds what follows the last block of a foreign archive.
	maxForeignEnd = 1 << 30

	// TailGuess is how much of an object's end to read first: the hot index of a shard of some
	// 4,000 blocks fits in it.
	TailGuess = 64 << 10
)

// EndOfArchive returns what a writer puts after the last block: the two zero records of a plain
// tar, or the zstd frame of them.
func EndOfArchive(plain bool) []byte {
	if plain {
		return make([]byte, tarblock.EndLen)
	}
	return slices.Clone(codec.EndFrame)
}

// AppendTail appends the index of a shard, COLD to SEEK TABLE, which follows EndOfArchive in a
// compressed shard and is the whole sidecar of a plain one. The result has been decoded again and
// compared.
func AppendTail(dst []byte, ix *ShardIndex, plain bool) ([]byte, error) {
	total, err := checkRows(ix.Rows, ix.Layout)
	if err != nil {
		return dst, err
	}
	dataLen := total.Stored
	end := uint64(len(EndOfArchive(plain)))
	if ix.Foreign {
		if end = ix.End; !plain || end > maxForeignEnd {
			// a bug of the caller
			return dst, fmt.Errorf("foreign archive with an end of %d bytes, plain %v", end, plain)
		}
	}
	dataSize := dataLen + end
	coldSecs := ix.coldSections()
	cold, coldDir, err := section.Append(nil, dataSize+skipHeader, coldSecs)
	if err != nil {
		return dst, err
	}
	hotSecs := ix.hotSections()
	hotOff := dataSize + skipHeader + uint64(len(cold)) + skipHeader
	hotBase := hotOff + uint64(section.DirectoryLen(len(coldDir)+len(hotSecs)))
	body, hotDir, err := section.Append(nil, hotBase, hotSecs)
	if err != nil {
		return dst, err
	}
	hot := append(section.AppendDirectory(nil, magicHot, append(coldDir, hotDir...)), body...)
	if uint64(len(cold)) > math.MaxUint32 || uint64(len(hot)) > math.MaxUint32 {
		return dst, fmt.Errorf("%w: index of %d bytes: use smaller shards", format.ErrTooLarge, len(cold)+len(hot))
	}
	loc := locator{DataSize: dataSize, HotOff: hotOff, HotLen: uint64(len(hot)), DataLen: dataLen,
		Samples: uint64(ix.Keys.Len()), Foreign: ix.Foreign}
	if plain {
		loc.IndexBase = dataSize
	}
	loc.hotCRC, loc.minor = codec.Checksum(hot), section.Minor(hotDir)

	at := len(dst)
	dst = section.AppendSkippable(dst, skippable, cold)
	dst = section.AppendSkippable(dst, skippable, hot)
	dst = section.AppendSkippable(dst, skippable, loc.append(nil))
	dst = append(dst, seekTable(ix.Rows, int(end), len(cold), len(hot))...)

	if err := checkTail(dst[at:], ix, append(coldSecs, hotSecs...), plain); err != nil {
		return dst[:at], fmt.Errorf("the new index cannot be read back: %w", err)
	}
	return dst, nil
}

// checkTail decodes the tail of ix, whose sections a are, and encodes the result again: equal bytes
// prove that nothing was lost.
func checkTail(tail []byte, ix *ShardIndex, a []section.Raw, plain bool) error {
	size := int64(len(tail))
	if !plain {
		size += int64(sumStored(ix.Rows)) + int64(len(codec.EndFrame))
	}
	t, need, err := ParseTail(tail, size)
	if err != nil {
		return err
	}
	if need != 0 {
		return fmt.Errorf("%d more bytes wanted", need)
	}
	off, n := t.Cold()
	from := off - (size - int64(len(tail)))
	back, err := t.DecodeCold(tail[from : from+n])
	if err != nil {
		return err
	}
	same := func(a, b SizeColumn) bool { return a.n == b.n && a.same == b.same && slices.Equal(a.stored, b.stored) }
	if back.Keys.n != ix.Keys.n || !slices.Equal(back.Keys.stored, ix.Keys.stored) ||
		!slices.Equal(back.Rows, ix.Rows) ||
		!slices.EqualFunc(back.Sizes, ix.Sizes, same) {
		return damage.Errorf("keys, rows or sizes differ")
	}
	b := append(back.coldSections(), back.hotSections()...)
	if len(a) != len(b) {
		return damage.Errorf("%d sections became %d", len(a), len(b))
	}
	for i := range a {
		if a[i].Kind != b[i].Kind || a[i].Part != b[i].Part || a[i].Encoding != b[i].Encoding ||
			!bytes.Equal(a[i].Raw, b[i].Raw) {
			return damage.Errorf("section %s, part %d differs", a[i].Kind, a[i].Part)
		}
	}
	return nil
}

func sumStored(rows []format.Row) (n uint64) {
	for _, r := range rows {
		n += uint64(r.Stored)
	}
	return n
}

// seekTable is the table of the zstd seekable format over every frame before it. Frames without
// data decode to 0 bytes. end is the length of the end-of-archive.
func seekTable(rows []format.Row, end, cold, hot int) []byte {
	n := len(rows) + 4
	p := make([]byte, 0, n*8+seekFooter)
	add := func(stored, decoded int) { p = appendUint32(appendUint32(p, uint32(stored)), uint32(decoded)) }
	for _, r := range rows {
		add(int(r.Stored), int(r.Decoded))
	}
	if end == len(codec.EndFrame) { // of a compressed shard: the end of a tar is a multiple of 512 bytes
		add(end, tarblock.EndLen)
	} else {
		add(end, end)
	}
	add(skipHeader+cold, 0)
	add(skipHeader+hot, 0)
	add(locatorFrame, 0)
	p = append(appendUint32(p, uint32(n)), 0)
	return section.AppendSkippable(nil, seekSkippable, appendUint32(p, seekMagic))
}

// locator is the fixed-size frame that locates a shard's hot index.
type locator struct {
	// IndexBase is the offset from which all others count: 0 in a shard, and in a sidecar the size
	// of the .tar, as if the sidecar's bytes followed the archive.
	IndexBase uint64
	// DataSize is the length of the blocks and the end-of-archive, DataLen the length of the
	// blocks alone.
	DataSize, DataLen uint64
	// HotOff and HotLen are the offset and length of the payload of HOT.
	HotOff, HotLen uint64
	Samples        uint64
	// Foreign: another tool wrote the archive.
	Foreign bool
	hotCRC  uint32
	minor   uint16
}

func (l *locator) append(dst []byte) []byte {
	at := len(dst)
	dst = append(dst, magicLocator...)
	dst = binary.LittleEndian.AppendUint16(dst, format.Major)
	dst = binary.LittleEndian.AppendUint16(dst, l.minor)
	flags := uint32(0)
	if l.Foreign {
		flags |= flagForeign
	}
	dst = appendUint32(dst, flags)
	for _, v := range []uint64{l.IndexBase, l.DataSize, l.HotOff, l.HotLen, l.DataLen, l.Samples} {
		dst = binary.LittleEndian.AppendUint64(dst, v)
	}
	dst = appendUint32(dst, l.hotCRC)
	return appendUint32(dst, codec.Checksum(dst[at:]))
}

func decodeLocator(src []byte) (l locator, err error) {
	if len(src) != locatorLen || string(src[:8]) != magicLocator {
		return l, damage.Errorf("no locator where the seek table's end places it: the object is truncated, joined with another, or not a shard")
	}
	if codec.Checksum(src[:locatorLen-4]) != binary.LittleEndian.Uint32(src[locatorLen-4:]) {
		return l, damage.Errorf("checksum mismatch in the locator")
	}
	r := section.Reader{Src: src[8:]}
	major, _, flags := r.U16(), r.U16(), r.U32()
	if major != format.Major || flags&flagsCritical&^flagForeign != 0 {
		return l, fmt.Errorf("%w: shard of version %d with flags %#x: use a newer shardtool", format.ErrVersion, major,
			flags)
	}
	l = locator{IndexBase: r.U64(), DataSize: r.U64(), HotOff: r.U64(), HotLen: r.U64(), DataLen: r.U64(),
		Samples: r.U64(),
		Foreign: flags&flagForeign != 0, hotCRC: r.U32()}
	return l, nil
}

// Tail is the hot part of a shard's index. The fields IndexBase, DataSize, DataLen, HotOff, HotLen,
// Samples and Foreign are in the LOCATOR (SPEC 5).
type Tail struct {
	locator
	Schema
	Rows []format.Row
	Meta format.Metadata
	// Layout is what rows are in a stacked shard, and Numbered its keys where they are numbered; nil
	// otherwise.
	Layout   *stacked.Layout
	Numbered samplekey.Ranges
	// Total is the sum over Rows.
	Total rowsTotal
	// Index is the identity of the index. ParseTail sets its Hot, DecodeCold its Cold.
	Index IndexHash
	// Len is the length of the tail, from the beginning of COLD to the end of the object.
	Len int64

	dir section.Directory
}

// IndexHash is the identity of a shard's index with its attributes; the tables store it (SPEC 7).
// The zero value means that it is not known.
type IndexHash struct {
	// Hot is the SHA-256 of HOT, LOCATOR and SEEK TABLE, Cold the SHA-256 of COLD. A reader of the
	// object's end alone compares Hot.
	Hot, Cold format.Hash
}

// Plain reports whether this is the sidecar of a plain .tar.
func (t *Tail) Plain() bool { return t.IndexBase != 0 }

// ParseTail decodes the hot index from an object's last bytes; size is the object's length. If tail
// is too short it returns in need how many of the last bytes it takes, and no error. Before it
// allocates it checks the seek table against rows and frames, and all lengths against size.
func ParseTail(tail []byte, size int64) (t *Tail, need int64, err error) {
	t, need, err = parseTail(tail, size)
	if err == nil && need > size {
		return nil, 0, format.At(size, fmt.Errorf("%w: %w: the tail begins %d bytes before the object",
			format.ErrCorrupt, io.ErrUnexpectedEOF, need-size))
	}
	return t, need, err
}

func parseTail(tail []byte, size int64) (*Tail, int64, error) {
	if size < seekFooter {
		return nil, 0, format.At(0, fmt.Errorf("%w: %w: %d bytes are not a shard", format.ErrCorrupt,
			io.ErrUnexpectedEOF, size))
	}
	have := int64(len(tail))
	if have > size {
		return nil, 0, damage.Errorf("tail of %d bytes of an object of %d", have, size)
	}
	if have < seekFooter {
		return nil, min(TailGuess, size), nil
	}
	foot := tail[have-seekFooter:]
	if binary.LittleEndian.Uint32(foot[5:]) != seekMagic || foot[4] != 0 {
		return nil, 0, format.At(size-seekFooter,
			damage.Errorf("no seek table at the end: the object is truncated, has bytes after its end, or is not a shard"))
	}
	seekLen := skipHeader + 8*int64(binary.LittleEndian.Uint32(foot)) + seekFooter
	if need := seekLen + locatorFrame; need > have {
		return nil, need, nil
	}
	locAt := size - seekLen - locatorFrame
	frame := tail[have-seekLen-locatorFrame : have-seekLen]
	loc, err := decodeLocator(frame[skipHeader:])
	if err != nil {
		return nil, 0, format.At(locAt, err)
	}
	t := &Tail{locator: loc}
	// From here on positions in the object: offset less IndexBase, all of it below 2^62.
	const limit = 1 << 62
	if loc.IndexBase > limit || loc.DataSize > limit || loc.DataLen > limit || loc.HotOff > limit ||
		loc.HotLen > limit ||
		(loc.IndexBase != 0 && loc.IndexBase != loc.DataSize) || loc.DataLen > loc.DataSize ||
		loc.HotOff < loc.DataSize+2*skipHeader || loc.HotOff-loc.DataSize > math.MaxUint32 ||
		loc.HotLen > math.MaxUint32 || int64(loc.HotOff-loc.IndexBase)+int64(loc.HotLen) != locAt {
		return nil, 0, format.At(locAt, damage.Errorf("the locator's offsets do not fit an object of %d bytes", size))
	}
	t.Len = size - int64(loc.DataSize-loc.IndexBase)
	hotAt := int64(loc.HotOff-loc.IndexBase) - skipHeader
	if need := size - hotAt; need > have {
		return nil, need, nil
	}
	hot := tail[hotAt-(size-have):][:skipHeader+int64(loc.HotLen)]
	if err := t.decodeHot(hot[skipHeader:]); err != nil {
		return nil, 0, format.At(hotAt, err)
	}
	t.Index.Hot = sha256.Sum256(tail[hotAt-(size-have):])
	// The frames' own headers and the seek table are a function of what is known now.
	coldLen := int(loc.HotOff-loc.DataSize) - 2*skipHeader
	want := seekTable(t.Rows, int(loc.DataSize-loc.DataLen), coldLen, int(loc.HotLen))
	if !bytes.Equal(want, tail[have-seekLen:]) {
		return nil, 0, format.At(size-seekLen, damage.Errorf("the seek table does not agree with the index"))
	}
	if !bytes.Equal(frame[:skipHeader], section.AppendSkippable(nil, skippable, frame[skipHeader:])[:skipHeader]) ||
		!bytes.Equal(hot[:skipHeader], section.AppendSkippable(nil, skippable, hot[skipHeader:])[:skipHeader]) {
		return nil, 0, format.At(hotAt, damage.Errorf("header of a skippable frame"))
	}
	return t, 0, nil
}

var shardSections = map[string]bool{
	typeSchema: true, typeStored: true, typeDecoded: true, typeSamples: true, typeCRC: true, typeCodec: true,
	typeMeta: true,
	typeSize: true, typeShape: true, typeGap: true, typeKeys: true, typeAttr: true, typeLabels: true, typeAbsent: true,
	typeSkipped:        true,
	section.KindLayout: true, section.KindKeyNumbers: true,
}

func (t *Tail) decodeHot(hot []byte) (err error) {
	if codec.Checksum(hot) != t.hotCRC {
		return damage.Errorf("checksum mismatch in the hot index")
	}
	if t.dir, err = section.DecodeDirectory(hot, magicHot,
		func(k string) bool { return shardSections[k] }); err != nil {
		return err
	}
	body := t.HotOff + uint64(section.DirectoryLen(len(t.dir.Sections)))
	split := slices.IndexFunc(t.dir.Sections, func(s section.Section) bool { return s.Off >= body })
	if split < 0 {
		return damage.Errorf("no hot sections")
	}
	if err := section.Contiguous(t.dir.Sections[:split], t.DataSize+skipHeader, t.HotOff-skipHeader); err != nil {
		return err
	}
	if err := section.Contiguous(t.dir.Sections[split:], body, t.HotOff+t.HotLen); err != nil {
		return err
	}
	get := func(kind string) (*section.Section, []byte, error) {
		s := t.dir.Find(kind, 0)
		if s == nil || s.Off < body {
			return nil, nil, damage.Errorf("no section %s", kind)
		}
		raw, err := s.Payload(hot[s.Off-t.HotOff:][:s.Stored])
		return s, raw, err
	}
	_, raw, err := get(typeSchema)
	if err != nil {
		return err
	}
	if t.Schema, err = decodeSchema(raw); err != nil {
		return err
	}
	if err := t.decodeLayout(get); err != nil {
		return err
	}
	crc := t.dir.Find(typeCRC, 0)
	if crc == nil {
		return damage.Errorf("no section %s", typeCRC)
	}
	if t.Rows, err = decodeRows(int(crc.Raw/4), get); err != nil {
		return err
	}
	if t.Total, err = checkRows(t.Rows, t.Layout); err != nil {
		return err
	}
	eoa := uint64(len(EndOfArchive(t.Plain())))
	if t.Total.Stored != t.DataLen || t.Total.Samples != t.Samples ||
		(t.DataSize-t.DataLen != eoa && !t.Foreign) ||
		(t.Foreign && (!t.Plain() || t.DataSize-t.DataLen > maxForeignEnd)) {
		return damage.Errorf("rows add up to %d bytes and %d samples, the locator says %d and %d",
			t.Total.Stored, t.Total.Samples, t.DataLen, t.Samples)
	}
	if err := checkCodecs(t.Rows, t.Plain()); err != nil {
		return err
	}
	if len(t.Shapes) == 0 && t.Samples > 0 {
		return damage.Errorf("%d samples without a shape", t.Samples)
	}
	if t.dir.Find(typeMeta, 0) == nil {
		return nil
	}
	if _, raw, err = get(typeMeta); err != nil {
		return err
	}
	t.Meta, err = section.DecodeMetadata(raw)
	return err
}

// decodeLayout reads what rows are and how keys are numbered, as far as the shard has it.
func (t *Tail) decodeLayout(get func(kind string) (*section.Section, []byte, error)) error {
	if t.dir.Find(section.KindLayout, 0) != nil {
		_, raw, err := get(section.KindLayout)
		if err == nil {
			t.Layout, err = decodeLayout(raw, &t.Schema)
		}
		if err != nil {
			return err
		}
	}
	if t.Layout != nil && t.Foreign {
		return damage.Errorf("another tool's archive is not stacked")
	}
	if t.dir.Find(section.KindKeyNumbers, 0) == nil {
		return nil
	}
	_, raw, err := get(section.KindKeyNumbers)
	if err != nil {
		return err
	}
	r := section.Reader{Src: raw}
	if t.Numbered, err = readRanges(&r, t.Samples); err == nil {
		err = r.End()
	}
	if err == nil && t.Numbered == nil {
		err = damage.Errorf("section %s is empty", section.KindKeyNumbers)
	}
	return err
}

// ShardFormat derives a shard's kind from its name.
func ShardFormat(name string) (plain bool, err error) {
	switch {
	case strings.HasSuffix(name, format.ZstdSuffix):
		return false, nil
	case strings.HasSuffix(name, format.TarSuffix):
		return true, nil
	}
	return false, fmt.Errorf("%w: shard %q ends neither in %s nor in %s", format.ErrName, name, format.ZstdSuffix,
		format.TarSuffix)
}
