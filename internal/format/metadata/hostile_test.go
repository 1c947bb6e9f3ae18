package metadata

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/codec"
	"github.com/shardtool/shardtool/internal/format/damage"
	"github.com/shardtool/shardtool/internal/format/section"
	"github.com/shardtool/shardtool/internal/testset/allocated"
)

// hostileValues are what a hostile writer puts where a number is expected.
var hostileValues = []uint64{0, 1, 2, 255, 1 << 15, 1<<16 - 1, 1<<31 - 1, 1 << 31, 1<<32 - 1, 1 << 32, 1 << 40, 1 << 56, 1<<62 - 1, 1 << 62, 1<<63 - 1, 1 << 63, 1<<64 - 513, 1<<64 - 1}

// indexParts are a shard's index taken apart, to be put together with faults and fitting checksums.
type indexParts struct {
	data      []byte // blocks and end-of-archive
	rows      []format.Row
	cold, hot []section.Raw
	samples   uint64
	plain     bool

	editDir  func(dir []section.Section) []section.Section
	editLoc  func(l *locator)
	editHot  func(hot []byte) []byte
	editSeek func(seek []byte)
}

func partsOf(s *testShard) *indexParts {
	return &indexParts{data: s.Data, rows: s.Index.Rows, cold: s.Index.coldSections(), hot: s.Index.hotSections(),
		samples: uint64(s.Index.Keys.Len()), plain: s.Plain}
}

// appendHostile stores sections as they are, so that an edit of raw bytes is one of stored bytes.
func appendHostile(base uint64, secs []section.Raw) (out []byte, dir []section.Section) {
	for _, s := range secs {
		dir = append(dir, section.Section{Kind: s.Kind, Part: s.Part, Critical: s.Critical, Encoding: s.Encoding,
			Off: base + uint64(len(out)), Stored: uint32(len(s.Raw)), Raw: uint32(len(s.Raw)), Crc: codec.Checksum(s.Raw)})
		out = append(out, s.Raw...)
	}
	return out, dir
}

// build is the object, or the sidecar of a plain one.
func (p *indexParts) build() []byte {
	size := uint64(len(p.data))
	cold, dir := appendHostile(size+skipHeader, p.cold)
	hotOff := size + skipHeader + uint64(len(cold)) + skipHeader
	n := len(dir) + len(p.hot)
	if p.editDir != nil {
		n = len(p.editDir(make([]section.Section, n)))
	}
	body, hotDir := appendHostile(hotOff+uint64(section.DirectoryLen(n)), p.hot)
	dir = append(dir, hotDir...)
	if p.editDir != nil {
		dir = p.editDir(dir)
	}
	hot := append(section.AppendDirectory(nil, magicHot, dir), body...)
	if p.editHot != nil {
		hot = p.editHot(hot)
	}
	loc := locator{DataSize: size, DataLen: size - uint64(len(EndOfArchive(p.plain))), HotOff: hotOff, HotLen: uint64(len(hot)),
		Samples: p.samples, hotCRC: codec.Checksum(hot)}
	if p.plain {
		loc.IndexBase = size
	}
	if p.editLoc != nil {
		p.editLoc(&loc)
	}
	var obj []byte
	if !p.plain {
		obj = bytes.Clone(p.data)
	}
	obj = section.AppendSkippable(obj, skippable, cold)
	obj = section.AppendSkippable(obj, skippable, hot)
	obj = section.AppendSkippable(obj, skippable, loc.append(nil))
	seek := seekTable(p.rows, len(EndOfArchive(p.plain)), len(cold), len(hot))
	if p.editSeek != nil {
		p.editSeek(seek)
	}
	return append(obj, seek...)
}

// indexMemory is the documented bound of the memory that decoding an index allocates, for an object
// of input bytes whose sections are raw bytes long and whose blocks decode to decoded bytes. Rows
// and columns take up to eight bytes for one of a section, sample columns eight for each 512 bytes
// of blocks, keys as much as the blocks. The zstd decoder has buffers too.
func indexMemory(input, decoded int) uint64 { return 512<<10 + 40*uint64(input) + 4*uint64(decoded) }

// openIndex decodes a whole index and holds the memory it takes against the bound. need is an error
// here: an object that is there whole can need no more.
func openIndex(t testing.TB, obj []byte) (tail *Tail, ix *ShardIndex, err error) {
	decoded := 0
	n := allocated.Bytes(func() {
		var need int64
		if tail, need, err = ParseTail(obj, int64(len(obj))); err != nil || need != 0 {
			if err == nil {
				err = damage.Errorf("%d bytes wanted of %d", need, len(obj))
			}
			return
		}
		decoded = int(tail.Total.Decoded)
		off, n := tail.Cold()
		if off < 0 || n < 0 || off+n > int64(len(obj)) {
			t.Fatalf("cold index at %d, %d bytes, in an object of %d", off, n, len(obj))
		}
		ix, err = tail.DecodeCold(obj[off : off+n])
	})
	if limit := indexMemory(len(obj)+held(obj), decoded); n > limit {
		t.Fatalf("an object of %d bytes, %d decoded, took %d bytes of memory, limit %d; error %v", len(obj), decoded, n, limit, err)
	}
	return tail, ix, err
}

// held is what the compressed sections of an index hold once decoded, where its directory can be
// found.
func held(obj []byte) (n int) {
	if len(obj) < seekFooter {
		return 0
	}
	seek := skipHeader + 8*int(binary.LittleEndian.Uint32(obj[len(obj)-seekFooter:])) + seekFooter
	if seek+locatorFrame > len(obj) {
		return 0
	}
	l, err := decodeLocator(obj[len(obj)-seek-locatorLen : len(obj)-seek])
	if at := l.HotOff - l.IndexBase; err == nil && at < uint64(len(obj)) {
		n = heldIn(obj[at:], magicHot, func(off, n uint64) []byte { return slice(obj, off-l.IndexBase, n) })
	}
	return n
}

// heldIn adds up what the sections of a directory hold.
func heldIn(dir []byte, magic string, at func(off, n uint64) []byte) (n int) {
	rows, err := section.DecodeDirectory(dir, magic, func(string) bool { return true })
	if err != nil {
		return 0
	}
	for _, s := range rows.Sections {
		if s.Codec == format.CodecZstd {
			n += int(min(uint64(s.Raw), codec.ContentBound(at(s.Off, uint64(s.Stored)))))
		}
	}
	return n
}

// slice is n bytes of b from off on, nil where they are not there.
func slice(b []byte, off, n uint64) []byte {
	if off > uint64(len(b)) || n > uint64(len(b))-off {
		return nil
	}
	return b[off : off+n]
}

func sound(err error) bool {
	return errors.Is(err, format.ErrCorrupt) || errors.Is(err, format.ErrVersion) || errors.Is(err, format.ErrTooLarge)
}

// edits calls f with every byte of raw changed to each of some values, every number in it set to
// hostile values, and with bytes taken away and added.
func edits(raw []byte, f func(what string, edited []byte)) {
	for i := range raw {
		for _, v := range []byte{0, 1, 0x7f, 0x80, 0xff, raw[i] ^ 1, raw[i] + 1} {
			if v != raw[i] {
				e := bytes.Clone(raw)
				e[i] = v
				f(fmt.Sprintf("byte %d is %#x", i, v), e)
			}
		}
		for _, v := range hostileValues {
			for _, width := range []int{4, 8} {
				if i+width <= len(raw) {
					b := binary.LittleEndian.AppendUint64(nil, v)[:width]
					if e := bytes.Clone(raw); copy(e[i:], b) > 0 && !bytes.Equal(e, raw) {
						f(fmt.Sprintf("%d bytes at %d are %#x", width, i, v), e)
					}
				}
			}
		}
	}
	for n := range len(raw) {
		f(fmt.Sprintf("cut to %d", n), raw[:n])
	}
	f("one byte more", append(bytes.Clone(raw), 0))
	f("many bytes more", append(bytes.Clone(raw), make([]byte, 300)...))
}

// TestHostileSections edits every section of an index, with checksums that fit.
func TestHostileSections(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine: make test runs it without the race detector")
	}
	for _, plain := range []bool{false, true} {
		s := pack(t, small()[:5], packOptions{Block: 1500, Frame: 1024, Plain: plain})
		base := partsOf(s)
		if _, _, err := openIndex(t, base.build()); err != nil {
			t.Fatal(err)
		}
		// What is not in the blocks can be edited without being found, by whoever makes the
		// checksums fit.
		free := []string{typeMeta, typeAttr, typeLabels, typeAbsent}
		for i, sec := range append(slices.Clone(base.cold), base.hot...) {
			edits(sec.Raw, func(what string, raw []byte) {
				p := *base
				p.cold, p.hot = slices.Clone(base.cold), slices.Clone(base.hot)
				if i < len(p.cold) {
					p.cold[i].Raw = raw
				} else {
					p.hot[i-len(p.cold)].Raw = raw
				}
				obj := p.build()
				_, ix, err := openIndex(t, obj)
				if err == nil {
					for a := range ix.Attrs {
						for j := range ix.Keys.Len() {
							ix.Attrs[a].At(j)
						}
					}
					if slices.Contains(free, sec.Kind) {
						return
					}
					if plain {
						_, err = checkSidecar(p.data, obj)
					} else {
						_, err = checkShard(obj)
					}
					if err == nil && sec.Kind == typeSchema { // attributes' names and kinds are free too
						return
					}
				}
				if !sound(err) {
					t.Errorf("plain %v: section %s, part %d: %s: %v", plain, sec.Kind, sec.Part, what, err)
				}
			})
		}
	}
}

// TestHostileDirectory edits rows of the directory.
func TestHostileDirectory(t *testing.T) {
	base := partsOf(smallShard(t, false))
	n := len(base.cold) + len(base.hot)
	try := func(what string, wanted error, edit func(dir []section.Section) []section.Section) {
		p := *base
		p.editDir = edit
		_, _, err := openIndex(t, p.build())
		if wanted == nil && err != nil || wanted != nil && !errors.Is(err, wanted) || (err != nil && !sound(err)) {
			t.Errorf("%s: error %v, want %v", what, err, wanted)
		}
	}
	for i := range n {
		for _, v := range hostileValues {
			for field, set := range map[string]func(s *section.Section) bool{
				"offset": func(s *section.Section) bool { old := s.Off; s.Off = v; return old != v },
				"stored": func(s *section.Section) bool { old := s.Stored; s.Stored = uint32(v); return old != uint32(v) },
				"raw":    func(s *section.Section) bool { old := s.Raw; s.Raw = uint32(v); return old != uint32(v) },
				"crc":    func(s *section.Section) bool { old := s.Crc; s.Crc = uint32(v); return old != uint32(v) },
			} {
				changed := false
				p := *base
				p.editDir = func(dir []section.Section) []section.Section { changed = set(&dir[i]); return dir }
				if _, _, err := openIndex(t, p.build()); changed && !errors.Is(err, format.ErrCorrupt) {
					t.Errorf("section %d: %s is %#x: error %v", i, field, v, err)
				}
			}
		}
		critical := append(slices.Clone(base.cold), base.hot...)[i].Critical
		for codec := range format.Codec(4) {
			want := []error{nil, format.ErrCorrupt, format.ErrVersion, format.ErrVersion}[codec]
			if want == nil || codec != format.CodecZstd { // a section that is no zstd frame fails when it is read
				try(fmt.Sprintf("section %d: codec %v", i, codec), want, func(dir []section.Section) []section.Section { dir[i].Codec = codec; return dir })
			}
		}
		try(fmt.Sprintf("section %d: encoding 2", i), format.ErrVersion, func(dir []section.Section) []section.Section { dir[i].Encoding = 2; return dir })
		try(fmt.Sprintf("section %d twice", i), format.ErrCorrupt, func(dir []section.Section) []section.Section { return append(dir, dir[i]) })
		want := map[bool]error{true: format.ErrVersion, false: nil}[critical]
		if kind := append(slices.Clone(base.cold), base.hot...)[i].Kind; kind == typeAttr || kind == typeLabels {
			want = format.ErrCorrupt // the schema names the attribute
		}
		if kind := append(slices.Clone(base.cold), base.hot...)[i].Kind; kind != typeAbsent {
			try(fmt.Sprintf("section %d unknown", i), want, func(dir []section.Section) []section.Section { dir[i].Kind = "XXXX"; return dir })
		}
		if i > 0 {
			try(fmt.Sprintf("sections %d and %d swapped", i-1, i), format.ErrCorrupt, func(dir []section.Section) []section.Section {
				dir[i-1], dir[i] = dir[i], dir[i-1]
				return dir
			})
		}
	}
	// An unknown section that is not critical does no harm, but its bytes are guarded.
	p := *base
	p.cold = append(slices.Clone(p.cold), section.Raw{Kind: "NEW1", Raw: []byte("cold")})
	p.hot = append(slices.Clone(p.hot), section.Raw{Kind: "NEW2", Part: 7, Raw: []byte("hot")})
	obj := p.build()
	if _, err := checkShard(obj); err != nil {
		t.Errorf("unknown sections: %v", err)
	}
	at := bytes.LastIndex(obj, []byte("cold"))
	obj[at] ^= 1
	if _, err := checkShard(obj); !errors.Is(err, format.ErrCorrupt) {
		t.Errorf("flipped bit in an unknown section: %v", err)
	}
}

// TestHostileLocator edits the locator, the header of HOT and the seek table.
func TestHostileLocator(t *testing.T) {
	for _, plain := range []bool{false, true} {
		base := partsOf(smallShard(t, plain))
		for field := range 6 {
			for _, v := range append(slices.Clone(hostileValues), uint64(len(base.data)), uint64(len(base.data))-1) {
				p, changed := *base, false
				p.editLoc = func(l *locator) {
					f := []*uint64{&l.IndexBase, &l.DataSize, &l.DataLen, &l.HotOff, &l.HotLen, &l.Samples}[field]
					changed = *f != v
					*f = v
				}
				if _, _, err := openIndex(t, p.build()); changed && !errors.Is(err, format.ErrCorrupt) {
					t.Errorf("plain %v: field %d is %#x: %v", plain, field, v, err)
				}
			}
		}
		for _, v := range hostileValues {
			p := *base
			p.editHot = func(hot []byte) []byte {
				binary.LittleEndian.PutUint32(hot[12:], uint32(v)) // the number of sections
				return hot
			}
			if _, _, err := openIndex(t, p.build()); !errors.Is(err, format.ErrCorrupt) {
				t.Errorf("plain %v: %#x sections: %v", plain, v, err)
			}
			p = *base
			p.editSeek = func(seek []byte) { binary.LittleEndian.PutUint32(seek[len(seek)-seekFooter:], uint32(v)) }
			if _, _, err := openIndex(t, p.build()); !errors.Is(err, format.ErrCorrupt) {
				t.Errorf("plain %v: seek table of %#x frames: %v", plain, v, err)
			}
		}
	}
}

// TestVersions: another major is refused as such, another minor and free flags are not.
func TestVersions(t *testing.T) {
	obj := smallShard(t, false).object()
	seek := skipHeader + 8*int(binary.LittleEndian.Uint32(obj[len(obj)-seekFooter:])) + seekFooter
	locator := func(o []byte) []byte { return o[len(o)-seek-locatorLen : len(o)-seek] }
	for _, c := range []struct {
		at, with int
		want     error
	}{{8, 2, format.ErrVersion}, {8, 0, format.ErrVersion}, {10, 9, nil}, {12, 2, format.ErrVersion}, {13, 0x80, format.ErrVersion}, {14, 1, nil}, {15, 0x80, nil}, {12, flagForeign, format.ErrCorrupt}} {
		o := bytes.Clone(obj)
		l := locator(o)
		l[c.at] = byte(c.with)
		binary.LittleEndian.PutUint32(l[locatorLen-4:], codec.Checksum(l[:locatorLen-4]))
		if _, _, err := openIndex(t, o); !errors.Is(err, c.want) || (c.want == nil && err != nil) {
			t.Errorf("locator byte %d is %d: %v, want %v", c.at, c.with, err, c.want)
		}
	}
	for _, c := range []struct {
		at, with int
		want     error
	}{{8, 2, format.ErrVersion}, {10, 9, nil}} {
		p := partsOf(smallShard(t, false))
		p.editHot = func(hot []byte) []byte {
			hot[c.at] = byte(c.with)
			n := section.DirectoryLen(int(binary.LittleEndian.Uint32(hot[12:])))
			binary.LittleEndian.PutUint32(hot[n-4:], codec.Checksum(hot[:n-4]))
			return hot
		}
		if _, _, err := openIndex(t, p.build()); !errors.Is(err, c.want) || (c.want == nil && err != nil) {
			t.Errorf("HOT byte %d is %d: %v, want %v", c.at, c.with, err, c.want)
		}
	}
}
