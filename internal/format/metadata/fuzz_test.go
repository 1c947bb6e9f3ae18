package metadata

import (
	"bytes"
	"encoding/binary"
	"reflect"
	"slices"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/codec"
	"github.com/shardtool/shardtool/internal/format/section"
)

// fuzzShards are small objects of all kinds to start from.
func fuzzShards(f *testing.F) (objects [][]byte) {
	for _, samples := range [][]testSample{nil, {one("k", "", "")}, small(), small()[:3]} {
		for _, plain := range []bool{false, true} {
			s := pack(f, samples, packOptions{Block: 1500, Frame: 1024, Plain: plain})
			if plain {
				objects = append(objects, s.Tail)
			} else {
				objects = append(objects, s.object())
				objects = append(objects, partsOf(s).build()) // sections stored as they are
			}
		}
	}
	return objects
}

// FuzzShard opens any bytes as a shard or sidecar: no panic, memory in bounds, and what opens can
// be used.
func FuzzShard(f *testing.F) {
	for _, obj := range fuzzShards(f) {
		f.Add(obj)
	}
	f.Fuzz(fuzzIndex)
}

// FuzzShardChecksums is FuzzShard beyond the checksums: it repairs them and the seek table first.
func FuzzShardChecksums(f *testing.F) {
	for _, obj := range fuzzShards(f) {
		f.Add(obj)
	}
	f.Fuzz(func(t *testing.T, obj []byte) { fuzzIndex(t, mend(bytes.Clone(obj))) })
}

func fuzzIndex(t *testing.T, obj []byte) {
	tail, ix, err := openIndex(t, obj)
	if err != nil {
		if !sound(err) {
			t.Fatalf("error %v", err)
		}
		return
	}
	if tail.Foreign {
		return
	}
	for i := range ix.Attrs {
		for j := range ix.Keys.Len() {
			ix.Attrs[i].At(j)
		}
	}
	if !tail.Plain() && tail.Total.Decoded < 1<<20 {
		if _, err := checkData(tail, obj[:tail.DataSize], obj); err != nil && !sound(err) {
			t.Fatalf("content: %v", err)
		}
	}
	// The index can be written again, with the same content.
	again, err := AppendTail(nil, ix, tail.Plain())
	if err != nil {
		t.Fatalf("what was read cannot be written: %v", err)
	}
	size := int64(len(again))
	if !tail.Plain() {
		size += int64(tail.DataSize)
	}
	back, need, err := ParseTail(again, size)
	if err != nil || need != 0 || !slices.Equal(back.Rows, tail.Rows) || !reflect.DeepEqual(back.Schema, tail.Schema) {
		t.Fatalf("written again it differs: %v", err)
	}
}

// mend puts the checksums of an index right where its structure can be followed, and the seek table
// with them.
func mend(obj []byte) []byte {
	size := uint64(len(obj))
	if size < seekFooter {
		return obj
	}
	binary.LittleEndian.PutUint32(obj[size-4:], seekMagic)
	seek := skipHeader + 8*uint64(binary.LittleEndian.Uint32(obj[size-seekFooter:])) + seekFooter
	if seek+locatorFrame > size {
		return obj
	}
	loc := obj[size-seek-locatorLen : size-seek]
	r := section.Reader{Src: loc[16:]}
	base, _, hotOff, hotLen := r.U64(), r.U64(), r.U64(), r.U64()
	locAt := size - seek - locatorFrame
	if from := hotOff - base; from <= locAt && hotLen <= locAt-from {
		hot := obj[from : from+hotLen]
		mendDirectory(hot, func(off, n uint64) []byte { return slice(obj, off-base, n) })
		binary.LittleEndian.PutUint32(loc[64:], codec.Checksum(hot))
	}
	binary.LittleEndian.PutUint32(loc[68:], codec.Checksum(loc[:68]))
	if l, err := decodeLocator(loc); err == nil && l.HotOff >= l.DataSize+2*skipHeader && l.DataLen <= l.DataSize {
		t := Tail{locator: l}
		if from := hotOff - base; from <= locAt && hotLen <= locAt-from && t.decodeHot(obj[from:from+hotLen]) == nil {
			if want := seekTable(t.Rows, int(l.DataSize-l.DataLen), int(l.HotOff-l.DataSize)-2*skipHeader, int(l.HotLen)); len(want) == int(seek) {
				copy(obj[size-seek:], want)
			}
		}
	}
	return obj
}

// mendDirectory puts right the checksums of the sections in a directory, and its own.
func mendDirectory(dir []byte, at func(off, n uint64) []byte) {
	if len(dir) < section.DirHeaderLen {
		return
	}
	n := uint64(binary.LittleEndian.Uint32(dir[12:]))
	if section.DirHeaderLen+n*section.DirEntryLen+4 > uint64(len(dir)) {
		return
	}
	end := section.DirHeaderLen + n*section.DirEntryLen
	for p := dir[section.DirHeaderLen:end]; len(p) > 0; p = p[section.DirEntryLen:] {
		stored := at(binary.LittleEndian.Uint64(p[12:]), uint64(binary.LittleEndian.Uint32(p[20:])))
		if stored != nil {
			binary.LittleEndian.PutUint32(p[28:], codec.Checksum(stored))
		}
	}
	binary.LittleEndian.PutUint32(dir[end:], codec.Checksum(dir[:end]))
}

// TestMend: mending leaves intact objects unchanged, and lets edited ones pass the checksums.
func TestMend(t *testing.T) {
	s := smallShard(t, false)
	obj := s.object()
	if !bytes.Equal(mend(bytes.Clone(obj)), obj) {
		t.Error("a whole shard was changed")
	}
	raw := partsOf(s).build()
	if !bytes.Equal(mend(bytes.Clone(raw)), raw) {
		t.Error("a whole shard of stored sections was changed")
	}
	tail, _, err := ParseTail(raw, int64(len(raw)))
	if err != nil {
		t.Fatal(err)
	}
	crc := tail.dir.Find(typeCRC, 0)
	raw[crc.Off] ^= 1
	if _, _, err := openIndex(t, raw); err == nil {
		t.Error("the edited index opens")
	}
	if _, _, err := openIndex(t, mend(raw)); err != nil {
		t.Errorf("the mended index: %v", err)
	}
}

// FuzzTables opens any bytes as tables and loads every part, with checksums as they are or put
// right.
func FuzzTables(f *testing.F) {
	for _, m := range []*Manifest{{Totals: Totals{Generation: 1}}, testManifest(3), testManifest(3, 0, 5)} {
		raw := encodeTables(f, m)
		f.Add(raw, true)
		f.Add(raw, false)
		f.Add(buildTables(tableParts(f, raw), nil), true)
	}
	f.Fuzz(func(t *testing.T, raw []byte, mended bool) {
		if mended {
			raw = bytes.Clone(raw)
			mendDirectory(raw, func(off, n uint64) []byte { return slice(raw, off, n) })
		}
		if err := loadHostile(t, raw); err != nil && !sound(err) {
			t.Fatalf("error %v", err)
		}
	})
}

// FuzzSummary reads any bytes as manifest.json.
func FuzzSummary(f *testing.F) {
	f.Add((&Tables{Totals: Totals{Generation: 1, Fields: []format.FieldTotal{{Name: "x"}}}}).Summary("manifest-e3b0c44298fc1c14.bin").Encode())
	f.Add([]byte(`{"format":"shardtool/1"}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		s, err := DecodeSummary(raw)
		if err != nil {
			if !sound(err) {
				t.Fatalf("error %v", err)
			}
			return
		}
		if again, err := DecodeSummary(s.Encode()); err != nil || again.Tables != s.Tables || again.Digest != s.Digest {
			t.Fatalf("written again: %v", err)
		}
	})
}
