package metadata

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/codec"
	"github.com/shardtool/shardtool/internal/format/names"
	"github.com/shardtool/shardtool/internal/format/section"
	"github.com/shardtool/shardtool/internal/testset/allocated"
)

// testManifest describes shards of the given numbers of rows; the first is plain, the second has no
// samples.
func testManifest(rows ...int) *Manifest {
	m := &Manifest{Totals: Totals{Generation: 2, Parent: names.Tables(format.BlockHash([]byte("parent"))), Keys: format.BlockHash([]byte("keys")),
		Meta:       format.Metadata{"tool": "test", "options": "{}"},
		Attributes: []format.Attribute{{Name: "class", Kind: format.AttrLabel}, {Name: "weight", Kind: format.AttrNumber}},
		Fields:     []format.FieldTotal{{Name: "", Samples: 1, Bytes: 2, Min: 2, Max: 2}, {Name: "jpg", Samples: 10, Bytes: 1 << 40, Min: 0, Max: 1 << 34}, {Name: "txt", Samples: 11, Bytes: 0, Min: 0, Max: 0}}}}
	for i, n := range rows {
		s := ShardEntry{ShardInfo: ShardInfo{Name: fmt.Sprintf("train-%06d.tar.zst", i), Tail: uint64(300 + i), Hash: format.BlockHash([]byte{byte(i)})}, Rows: []format.Row{}}
		if n > 0 {
			s.FirstKey, s.LastKey = fmt.Sprintf("key/%06d", i), fmt.Sprintf("key/%06d~\xff", i)
		}
		codec := format.CodecZstd
		if i == 0 {
			s.Name, codec = "sub/plain.tar", format.CodecBytes
		}
		for j := range n {
			r := format.Row{Stored: uint32(1000 + j*7919%5000), Decoded: uint32(10_240 + j%9*512), Samples: uint32(1 + j%5), CRC: uint32(j * 2654435761), Codec: codec}
			if codec == format.CodecBytes {
				r.Stored = r.Decoded
			} else if j%11 == 7 {
				r.Stored, r.Codec = r.Decoded+9, format.CodecRaw
			}
			if j%7 == 3 {
				r.Samples = 0
			}
			s.Rows = append(s.Rows, r)
		}
		total, err := checkRows(s.Rows, nil)
		if err != nil {
			panic(err)
		}
		s.Samples, s.Blocks, s.ShardInfo.Rows = total.Samples, total.Blocks, uint64(n)
		s.Size = total.Stored + uint64(len(EndOfArchive(s.Plain())))
		if !s.Plain() {
			s.Size += s.Tail
		}
		m.Shards = append(m.Shards, s)
	}
	return m
}

// withTotals adds an integer attribute that all samples have.
func withTotals(m *Manifest) *Manifest {
	m.Attributes = slices.Insert(m.Attributes, 1, format.Attribute{Name: "length", Kind: format.AttrInteger})
	var values []int64
	for i, s := range m.Shards {
		values = append(values, slices.Repeat([]int64{int64(i) * 1000}, int(s.Samples))...)
	}
	m.AttrTotals = []AttrTotal{lengthTotal(values...)}
	return m
}

func lengthTotal(values ...int64) AttrTotal {
	t := AttrTotal{Name: "length"}
	for _, v := range values {
		t.Add(v)
	}
	return t
}

func encodeTables(t testing.TB, m *Manifest) []byte {
	t.Helper()
	raw, _, _, err := EncodeTables(m)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// readFrom is a ReadRange over bytes.
func readFrom(b []byte) ReadRange {
	return func(p []byte, off int64) error {
		if off < 0 || off+int64(len(p)) > int64(len(b)) {
			return io.ErrUnexpectedEOF
		}
		copy(p, b[off:])
		return nil
	}
}

func openTables(b []byte) (*Tables, *Manifest, error) {
	t, err := OpenTables(readFrom(b), int64(len(b)))
	if err != nil {
		return nil, nil, err
	}
	m, err := t.Load()
	return t, m, err
}

// TestTables: tables survive a round trip, read whole and part by part.
func TestTables(t *testing.T) {
	for _, rows := range [][]int{{}, {0}, {3}, {3, 0, 40}, {100, 0, PartRows - 101, 2, 1}, {1, 0, PartRows + 5, 7, 9}, make([]int, 3000)} {
		want := withTotals(testManifest(rows...))
		raw, name, digest, err := EncodeTables(want)
		if err != nil {
			t.Fatal(err)
		}
		if name != format.BlockHash(raw) || digest != want.digest() {
			t.Fatal("name or digest")
		}
		tables, got, err := openTables(raw)
		if err != nil {
			t.Fatalf("%v: %v", rows, err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%v: got %+v, want %+v", rows, got, want)
		}
		checkTotals(t, tables, want)
		for i, p := range tables.Parts {
			if p.Rows > PartRows && p.Shards > 1 {
				t.Errorf("part %d has %d rows in %d shards", i, p.Rows, p.Shards)
			}
			counts, err := tables.LoadSamples(i)
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			for _, s := range want.Shards[p.FirstShard : p.FirstShard+p.Shards] {
				for _, r := range s.Rows {
					if counts[n] != uint64(r.Samples) {
						t.Fatalf("part %d, row %d: %d samples, want %d", i, n, counts[n], r.Samples)
					}
					n++
				}
			}
		}
		again := encodeTables(t, got)
		if !bytes.Equal(again, raw) {
			t.Error("encoding again gives other bytes")
		}
	}
}

func checkTotals(t *testing.T, tables *Tables, m *Manifest) {
	t.Helper()
	var want Tables
	for _, s := range m.Shards {
		want.Shards++
		want.Blocks += s.Blocks
		want.Samples += s.Samples
		want.Bytes += s.objects()
	}
	if tables.Shards != want.Shards || tables.Blocks != want.Blocks || tables.Samples != want.Samples || tables.Bytes != want.Bytes ||
		tables.Digest != m.digest() || tables.PayloadBytes != 1<<40+2 {
		t.Errorf("totals %+v", tables)
	}
	sum, err := DecodeSummary(tables.Summary(names.Tables(format.BlockHash(nil))).Encode())
	if err != nil {
		t.Fatal(err)
	}
	if sum.Samples != tables.Samples || sum.Digest != format.DigestString(tables.Digest) || len(sum.Fields) != 3 || sum.Fields[1].Max != 1<<34 {
		t.Errorf("summary %+v", sum)
	}
}

// TestTablesReads: opening takes one range, the groups of all parts one, a part two more, whatever
// the number of shards; a failing read is reported.
func TestTablesReads(t *testing.T) {
	raw := encodeTables(t, testManifest(PartRows, 0, PartRows, PartRows))
	reads := 0
	fail := -1
	boom := errors.New("boom")
	read := func(p []byte, off int64) error {
		if reads++; reads-1 == fail {
			return boom
		}
		return readFrom(raw)(p, off)
	}
	tables, err := OpenTables(read, int64(len(raw)))
	if err != nil || reads != 1 || len(tables.Parts) != 3 {
		t.Fatalf("%d reads, %d parts, %v", reads, len(tables.Parts), err)
	}
	if _, err := tables.Load(); err != nil || reads != 1+1+2*3 {
		t.Fatalf("%d reads, %v", reads, err)
	}
	for fail = range 8 {
		reads = 0
		tables, err := OpenTables(read, int64(len(raw)))
		if err == nil {
			_, err = tables.Load()
		}
		if !errors.Is(err, boom) {
			t.Fatalf("read %d fails: %v", fail, err)
		}
	}
}

// TestTablesDamage: no beginning of tables opens, and no flipped bit is read over.
func TestTablesDamage(t *testing.T) {
	raw := encodeTables(t, withTotals(testManifest(3, 0, 5)))
	for n := range raw {
		if _, _, err := openTables(raw[:n]); !errors.Is(err, format.ErrCorrupt) {
			t.Fatalf("the first %d bytes of %d: %v", n, len(raw), err)
		}
	}
	for bit := range 8 * len(raw) {
		raw[bit/8] ^= 1 << (bit % 8)
		_, _, err := openTables(raw)
		raw[bit/8] ^= 1 << (bit % 8)
		if err != nil && !sound(err) {
			t.Fatalf("bit %d of byte %d: %v", bit%8, bit/8, err)
		}
		if err == nil {
			t.Fatalf("bit %d of byte %d is not seen", bit%8, bit/8)
		}
	}
	if _, _, err := openTables(append(bytes.Clone(raw), 0)); !errors.Is(err, format.ErrCorrupt) {
		t.Errorf("a byte more: %v", err)
	}
}

// tableParts takes tables apart and puts them together with faults and fitting checksums.
func tableParts(t testing.TB, raw []byte) []section.Raw {
	dir, err := section.DecodeDirectory(raw, magicTables, func(string) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	var secs []section.Raw
	for i := range dir.Sections {
		s := &dir.Sections[i]
		p, err := s.Payload(raw[s.Off : s.Off+uint64(s.Stored)])
		if err != nil {
			t.Fatal(err)
		}
		secs = append(secs, section.Raw{Kind: s.Kind, Part: s.Part, Critical: s.Critical, Encoding: s.Encoding, Raw: p})
	}
	return secs
}

func buildTables(secs []section.Raw, edit func(dir []section.Section)) []byte {
	payload, dir := appendHostile(uint64(section.DirectoryLen(len(secs))), secs)
	if edit != nil {
		edit(dir)
	}
	return append(section.AppendDirectory(nil, magicTables, dir), payload...)
}

// tablesMemory is the documented bound of what loading tables may allocate: names and keys are up
// to 6 KiB for the 32 bytes of a shard's hash.
func tablesMemory(input int) uint64 { return 512<<10 + 400*uint64(input) }

func loadHostile(t testing.TB, raw []byte) (err error) {
	n := allocated.Bytes(func() {
		var tables *Tables
		if tables, _, err = openTables(raw); err == nil {
			for i := range tables.Parts {
				if _, err = tables.LoadSamples(i); err != nil {
					return
				}
			}
		}
	})
	in := len(raw) + heldIn(raw, magicTables, func(off, n uint64) []byte { return slice(raw, off, n) })
	if limit := tablesMemory(in); n > limit {
		t.Fatalf("tables of %d bytes took %d bytes of memory, limit %d; error %v", len(raw), n, limit, err)
	}
	return err
}

// TestHostileTables edits every section and every directory row, with checksums that fit.
func TestHostileTables(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine: make test runs it without the race detector")
	}
	secs := tableParts(t, encodeTables(t, withTotals(testManifest(3, 0, 5))))
	if err := loadHostile(t, buildTables(secs, nil)); err != nil {
		t.Fatal(err)
	}
	// The tables' own name guards these; nothing else depends on them.
	free := []string{typeMeta, typeHead, typeSchema, typeFields, typeAttrTotal, typeNames, typeKeyRange, typeCRC}
	for i, sec := range secs {
		edits(sec.Raw, func(what string, raw []byte) {
			e := slices.Clone(secs)
			e[i].Raw = raw
			err := loadHostile(t, buildTables(e, nil))
			if err != nil && !sound(err) || err == nil && !slices.Contains(free, sec.Kind) {
				// A row's stored length may change with another's, and a raw frame be called a
				// compressed one.
				if err == nil && (sec.Kind == typeStored || sec.Kind == typeCodec || sec.Kind == typeTailLen || sec.Kind == typeObjSize) {
					return
				}
				t.Errorf("section %s, part %d: %s: %v", sec.Kind, sec.Part, what, err)
			}
		})
		for _, v := range hostileValues {
			for field, set := range []func(s *section.Section) bool{
				func(s *section.Section) bool { old := s.Off; s.Off = v; return old != v },
				func(s *section.Section) bool { old := s.Stored; s.Stored = uint32(v); return old != uint32(v) },
				func(s *section.Section) bool { old := s.Raw; s.Raw = uint32(v); return old != uint32(v) },
				func(s *section.Section) bool { old := s.Crc; s.Crc = uint32(v); return old != uint32(v) },
			} {
				changed := false
				raw := buildTables(secs, func(dir []section.Section) { changed = set(&dir[i]) })
				if err := loadHostile(t, raw); changed && !errors.Is(err, format.ErrCorrupt) {
					t.Errorf("section %s, part %d: field %d is %#x: %v", sec.Kind, sec.Part, field, v, err)
				}
			}
		}
	}
}

// TestHostileTotals puts hostile numbers where tables count, and zero-length sections where
// sections are read together.
func TestHostileTotals(t *testing.T) {
	base := tableParts(t, encodeTables(t, testManifest(3, 0, 5)))
	replace := func(kind string, raw []byte) []byte {
		e := slices.Clone(base)
		for i := range e {
			if e[i].Kind == kind {
				e[i].Raw, e[i].Encoding = raw, section.EncodingPlanes
			}
		}
		return buildTables(e, nil)
	}
	part := []uint64{3, 8, 7, 18, 0, 0}
	for col := range part {
		for _, v := range hostileValues {
			e := slices.Clone(part)
			e[col] = v
			raw := appendUint32(nil, 1)
			for _, x := range e {
				raw = section.AppendPlanes(raw, []uint64{x}, nil)
			}
			if err := loadHostile(t, replace(typeParts, raw)); !errors.Is(err, format.ErrCorrupt) {
				t.Errorf("total %d is %#x: %v", col, v, err)
			}
		}
	}
	for _, kind := range []string{typeObjSize, typeTailLen, typeShardSmp, typeShardBlk, typeShardRows} {
		for _, v := range hostileValues {
			if err := loadHostile(t, replace(kind, section.AppendPlanes(nil, []uint64{v, v, v}, nil))); !errors.Is(err, format.ErrCorrupt) {
				t.Errorf("section %s is %#x: %v", kind, v, err)
			}
		}
	}
	if err := loadHostile(t, replace(typeHashes, nil)); !errors.Is(err, format.ErrCorrupt) {
		t.Errorf("no hashes: %v", err)
	}
	for _, n := range []uint64{0, 1, 1 << 26, 1<<26 + 1, 1<<32 - 1} {
		raw := buildTables(base, nil)
		binary.LittleEndian.PutUint32(raw[12:], uint32(n))
		if err := loadHostile(t, raw); !errors.Is(err, format.ErrCorrupt) {
			t.Errorf("%d sections: %v", n, err)
		}
	}
}

// TestTablesVersion: another major and unknown critical sections are refused as such, others not.
func TestTablesVersion(t *testing.T) {
	base := tableParts(t, encodeTables(t, testManifest(3)))
	extra := append(slices.Clone(base), section.Raw{Kind: "NEW1", Part: 3, Raw: []byte("later")})
	if err := loadHostile(t, buildTables(extra, nil)); err != nil {
		t.Errorf("unknown section: %v", err)
	}
	extra[len(base)].Critical = true
	if err := loadHostile(t, buildTables(extra, nil)); !errors.Is(err, format.ErrVersion) {
		t.Errorf("unknown critical section: %v", err)
	}
	for at, want := range map[int]error{8: format.ErrVersion, 10: nil} {
		raw := buildTables(base, nil)
		raw[at] = 7
		n := section.DirectoryLen(len(base))
		binary.LittleEndian.PutUint32(raw[n-4:], codec.Checksum(raw[:n-4]))
		if err := loadHostile(t, raw); !errors.Is(err, want) || want == nil && err != nil {
			t.Errorf("byte %d is 7: %v, want %v", at, err, want)
		}
	}
}

// TestSamplesBeyondBlocks gives a block of a few KiB 2^32-1 samples, in tables whose totals agree:
// the columns that an order reads are compared with the decoded bytes.
func TestSamplesBeyondBlocks(t *testing.T) {
	raw := manySamples(t)
	tables, err := OpenTables(readFrom(raw), int64(len(raw)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tables.LoadSamples(0); !errors.Is(err, format.ErrCorrupt) {
		t.Fatalf("2^32-1 samples in a block of 10 KiB: %v", err)
	}
}

func manySamples(t *testing.T) []byte {
	secs := tableParts(t, encodeTables(t, testManifest(2)))
	const many = 1<<32 - 1
	old, err := OpenTables(readFrom(buildTables(secs, nil)), int64(len(buildTables(secs, nil))))
	if err != nil {
		t.Fatal(err)
	}
	for i := range secs {
		p := old.Parts[0]
		column := func(v ...uint64) {
			secs[i].Raw, secs[i].Encoding = section.AppendPlanes(nil, v, nil), section.EncodingPlanes
		}
		switch secs[i].Kind {
		case typeSamples:
			column(many, 2)
		case typeShardSmp:
			column(many + 2)
		case typeParts:
			secs[i].Raw = appendUint32(nil, 1)
			for _, v := range []uint64{p.Shards, p.Rows, p.Blocks, many + 2, p.Bytes, p.Decoded} {
				secs[i].Raw = section.AppendPlanes(secs[i].Raw, []uint64{v}, nil)
			}
		}
	}
	return buildTables(secs, nil)
}

// TestTablesFirstDamage: of several damaged sections the first in the order of the file is
// reported, every time.
func TestTablesFirstDamage(t *testing.T) {
	raw := encodeTables(t, testManifest(3, 40))
	tables, err := OpenTables(readFrom(raw), int64(len(raw)))
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{typeObjSize, typeTailLen, typeShardSmp, typeShardBlk, typeShardRows} {
		raw[tables.object.dir.Find(kind, 0).Off] ^= 1
	}
	for range 50 {
		if _, err := tables.LoadShards(0); err == nil || !strings.Contains(err.Error(), "in section "+typeObjSize) {
			t.Fatalf("%v, want section %s", err, typeObjSize)
		}
	}
}
