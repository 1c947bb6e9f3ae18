package reader

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/codec"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/internal/format/names"
	"github.com/shardtool/shardtool/internal/format/samplekey"
	"github.com/shardtool/shardtool/internal/format/tarblock"
	"github.com/shardtool/shardtool/internal/testset"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/reader/check"
)

func verify(t testing.TB, store objstore.Store, deep bool) *check.Report {
	t.Helper()
	r, err := check.Verify(t.Context(), store, check.Options{Deep: deep})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestVerifyClean(t *testing.T) {
	samples := mixed(300)
	eachKind(t, samples, func(t *testing.T, store objstore.Store) {
		for _, deep := range []bool{false, true} {
			r := verify(t, store, deep)
			if !r.OK() || len(r.Notes) > 0 {
				t.Fatalf("deep %v: %+v", deep, r)
			}
			d := open(t, store, Options{})
			if r.Shards != uint64(d.NumShards()) || r.Blocks != d.Info().Blocks || r.Samples != d.NumSamples() {
				t.Fatalf("deep %v: %+v", deep, r)
			}
			if deep && r.Bytes < d.Info().Bytes {
				t.Fatalf("%d bytes of %d were read", r.Bytes, d.Info().Bytes)
			}
		}
	})
}

func TestVerifyProgress(t *testing.T) {
	store := build(t, mixed(200), testset.Options{BlockSize: 2000, ShardSize: 20000})
	d := open(t, store, Options{Workers: 3})
	for _, deep := range []bool{false, true} {
		var last check.Progress
		r, err := check.Verify(t.Context(), d.Store(), check.Options{Deep: deep, Progress: func(p check.Progress) {
			if p.Shards < last.Shards || p.Bytes < last.Bytes || p.Bytes > p.TotalBytes {
				t.Errorf("%+v after %+v", p, last)
			}
			last = p
		}})
		if err != nil || !r.OK() || last.Shards != last.TotalShards || last.Shards != uint64(d.NumShards()) {
			t.Fatalf("%v %+v", err, last)
		}
	}
}

// TestVerifyManifest makes data sets whose tables are whole and lie.
func TestVerifyManifest(t *testing.T) {
	samples := mixed(200)
	for _, c := range []struct {
		name, kind, says string
		shallow          bool // seen without Deep
		edit             func(m *metadata.Manifest)
	}{
		{"hash", check.KindIndex, "content", true, func(m *metadata.Manifest) { m.Shards[1].Hash[3] ^= 1 }},
		{"row checksum", check.KindIndex, "rows", true, func(m *metadata.Manifest) { m.Shards[1].Rows[2].CRC ^= 1 }},
		{"row samples", check.KindIndex, "rows", true, func(m *metadata.Manifest) { r := m.Shards[1].Rows; r[0].Samples++; r[1].Samples-- }},
		{"first key", check.KindIndex, "keys from", false, func(m *metadata.Manifest) { m.Shards[1].FirstKey = "a" }},
		{"last key", check.KindIndex, "keys from", false, func(m *metadata.Manifest) { m.Shards[1].LastKey = "zz" }},
		{"field bytes", check.KindManifest, `"jpg" adds up`, false, func(m *metadata.Manifest) { m.Fields[2].Bytes++ }},
		{"field samples", check.KindManifest, `"jpg" adds up`, false, func(m *metadata.Manifest) { m.Fields[2].Samples-- }},
		{"field max", check.KindManifest, `"txt" adds up`, false, func(m *metadata.Manifest) { m.Fields[3].Max++ }},
		{"field gone", check.KindManifest, "do not name", false, func(m *metadata.Manifest) { m.Fields = m.Fields[:3] }},
		{"field more", check.KindManifest, "adds up to 0", false, func(m *metadata.Manifest) {
			m.Fields = append(m.Fields, format.FieldTotal{Name: "zip", Samples: 1})
		}},
		{"keys gone", check.KindMissing, "missing", true, func(m *metadata.Manifest) { m.Keys[0] ^= 1 }},
		{"shards in another order", "", "", true, func(m *metadata.Manifest) { m.Shards[1], m.Shards[2] = m.Shards[2], m.Shards[1] }},
	} {
		t.Run(c.name, func(t *testing.T) {
			store := build(t, samples, testset.Options{BlockSize: 2000, ShardSize: 20000, Edit: func(m *metadata.Manifest) {
				for i := range m.Shards {
					m.Shards[i].Rows = slices.Clone(m.Shards[i].Rows)
				}
				c.edit(m)
			}})
			if r := verify(t, store, false); r.OK() == c.shallow && c.kind != "" {
				t.Fatalf("shallow: %+v", r.Faults)
			}
			r := verify(t, store, true)
			if c.kind == "" { // the numbers of samples are others now, which the keys table alone knows
				if len(r.Faults) != 1 || r.Faults[0].Kind != check.KindKeys {
					t.Fatalf("%+v", r.Faults)
				}
				return
			}
			if !slices.ContainsFunc(r.Faults, func(f check.Fault) bool { return f.Kind == c.kind && strings.Contains(f.Detail, c.says) }) {
				t.Fatalf("%+v", r.Faults)
			}
		})
	}
}

// TestLookupWrongTable looks for keys in tables that are whole and lie: each is found or the table
// is called corrupt, and "not found" is only what is not there.
func TestLookupWrongTable(t *testing.T) {
	samples := mixed(300)
	other := func(k string) uint64 { return samplekey.Hash("another data set's " + k) }
	for name, hash := range map[string]func(string) uint64{
		"one key": func(k string) uint64 { return samplekey.Hash(k) + map[bool]uint64{true: 1}[k == samples[5].Key] },
		"swapped": func(k string) uint64 {
			return samplekey.Hash(strings.NewReplacer(samples[1].Key, samples[2].Key, samples[2].Key, samples[1].Key).Replace(k))
		},
		"others": other, "all zero": func(string) uint64 { return 0 },
	} {
		d := open(t, build(t, samples, testset.Options{BlockSize: 20_000, ShardSize: 60_000, KeyHash: hash}), Options{})
		wrong := 0
		for i, s := range samples {
			found, err := d.Lookup(t.Context(), s.Key)
			if err == nil && slices.Equal(found, []uint64{uint64(i)}) {
				continue
			}
			if wrong++; !errors.Is(err, format.ErrCorrupt) || errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), d.keysTable()) {
				t.Fatalf("%s: %q: %v, %v", name, s.Key, found, err)
			}
		}
		if wrong == 0 {
			t.Errorf("%s: all keys were found", name)
		}
	}
}

// TestVerifyKeys makes keys tables that are whole and lie.
func TestVerifyKeys(t *testing.T) {
	samples := mixed(1000)
	base := testset.Options{BlockSize: 20000, ShardSize: 200000}
	for name, hash := range map[string]func(string) uint64{
		"one key": func(k string) uint64 { return samplekey.Hash(k) + map[bool]uint64{true: 1}[k == samples[5].Key] },
		"swapped": func(k string) uint64 {
			return samplekey.Hash(strings.NewReplacer(samples[1].Key, samples[2].Key, samples[2].Key, samples[1].Key).Replace(k))
		},
		"all zero": func(string) uint64 { return 0 },
	} {
		o := base
		o.KeyHash = hash
		r := verify(t, build(t, samples, o), true)
		if len(r.Faults) != 1 || r.Faults[0].Kind != check.KindKeys || !strings.Contains(r.Faults[0].Detail, "exactly the keys") {
			t.Fatalf("%s: %+v", name, r.Faults)
		}
	}
	store := build(t, samples, base)
	d := open(t, store, Options{})
	table := object(t, store, d.keysTable())
	for at := 0; at < len(table); at += 1 + at/8 {
		data := slices.Clone(table)
		data[at] ^= 4
		r := verify(t, damaged(t, store, d.keysTable(), data), true)
		if len(r.Faults) != 1 || r.Faults[0].Kind != check.KindKeys || r.Faults[0].Shard != d.keysTable() {
			t.Fatalf("byte %d: %+v", at, r.Faults)
		}
	}
}

// TestVerifyKeysHash: a keys table of another minor version may hold the right entries; it is not
// the one that was made.
func TestVerifyKeysHash(t *testing.T) {
	store := build(t, mixed(50), testset.Options{})
	d := open(t, store, Options{})
	data := slices.Clone(object(t, store, d.keysTable()))
	data[10]++
	binary.LittleEndian.PutUint32(data[28:], codec.Checksum(data[:28]))
	r := verify(t, damaged(t, store, d.keysTable(), data), true)
	if len(r.Faults) != 1 || r.Faults[0].Kind != check.KindKeys || !strings.Contains(r.Faults[0].Detail, "hash") {
		t.Fatalf("%+v", r)
	}
}

// TestVerifyDuplicates has a key twice in a shard, which no writer of ours makes.
func TestVerifyDuplicates(t *testing.T) {
	var samples []testset.Sample
	for i := range 30 {
		samples = append(samples, testset.Sample{Key: fmt.Sprintf("k%02d", (i*7)%29), Fields: []testset.Field{{Name: "x"}}})
	}
	r := verify(t, build(t, samples, testset.Options{BlockSize: 2048}), true)
	if len(r.Faults) != 1 || r.Faults[0].Kind != check.KindIndex || r.Faults[0].Key != "k00" || r.Faults[0].Block != 7 ||
		!strings.Contains(r.Faults[0].Detail, "duplicate") || len(r.Notes) != 1 {
		t.Fatalf("%+v", r)
	}
}

// TestVerifyContent has intact blocks with other samples than those of the index.
func TestVerifyContent(t *testing.T) {
	for kind, o := range ways {
		t.Run(kind, func(t *testing.T) {
			samples := mixed(100)
			good := build(t, samples, o)
			samples[40].Fields[0].Data = append(slices.Clone(samples[40].Fields[0].Data), 'x') // another size, in the same block
			other := samples[41].Key
			samples[41].Key += "x"
			bad := build(t, samples, o)
			samples[41].Key = other
			d := open(t, bad, Options{})
			p, err := d.Locate(t.Context(), 40)
			if err != nil {
				t.Fatal(err)
			}
			info, _ := d.Shard(t.Context(), p.Shard)
			// The index of the good shard over the blocks of the bad one would not parse: rows differ. What
			// can be had is the good shard in a manifest of the bad one, and the other way round.
			r := verify(t, damaged(t, bad, info.Name, object(t, good, info.Name)), true)
			if r.OK() {
				t.Fatal("nothing is found")
			}
		})
	}
}

// TestLies has a shard in which all checksums are right and one thing differs from tables or index.
func TestLies(t *testing.T) {
	// The index names another key than the tar header.
	store := lie(t, "b", func(*metadata.ShardEntry) {})
	r := verify(t, store, true)
	if len(r.Faults) != 1 || r.Faults[0].Kind != check.KindContent || r.Faults[0].Block != 0 || r.Faults[0].Key != "b" ||
		!strings.Contains(r.Faults[0].Detail, "header") {
		t.Fatalf("%+v", r)
	}
	if r := verify(t, store, false); !r.OK() {
		t.Fatalf("%+v", r)
	}
	// The tables have another identity, and the index none.
	r = verify(t, lie(t, "c", func(s *metadata.ShardEntry) { s.Hash[5] ^= 1 }), true)
	if len(r.Faults) != 1 || r.Faults[0].Kind != check.KindContent || !strings.Contains(r.Faults[0].Detail, "identity") {
		t.Fatalf("%+v", r)
	}
	// The rows of the tables count fewer or more samples than the block has.
	for _, n := range []uint32{1, 3} {
		store := lie(t, "c", func(s *metadata.ShardEntry) { s.Rows[0].Samples, s.Samples = n, uint64(n) })
		d := open(t, store, Options{})
		seen := uint32(0)
		var last error
		for _, err := range d.Samples(t.Context(), Range{}) {
			if last = err; err == nil {
				seen++
			}
		}
		if !errors.Is(last, format.ErrCorrupt) || seen != min(n, 2) {
			t.Fatalf("%d samples said, %d seen: %v", n, seen, last)
		}
		if r := verify(t, store, true); r.OK() {
			t.Fatalf("%d samples said: nothing is found", n)
		}
	}
	if r := verify(t, lie(t, "c", func(*metadata.ShardEntry) {}), true); !r.OK() {
		t.Fatalf("the truth: %+v", r)
	}
}

// lie is a shard with samples "a" and "c" whose index calls the second one otherwise, in tables
// that were edited.
func lie(t *testing.T, second string, edit func(*metadata.ShardEntry)) *mem.Store {
	var block tarblock.Builder
	var index metadata.IndexBuilder
	for i, key := range []string{"a", second} {
		block.Member([]string{"a", "c"}[i]+".x", 1)
		if err := index.AddSample(key, []format.FieldSize{{Name: "x", Size: 1}}, nil); err != nil {
			t.Fatal(err)
		}
	}
	e := codec.NewEncoder(codec.LevelDefault)
	defer e.Close()
	shard, storedAs, err := e.AppendFrame(nil, block.Buf, block.Cuts, block.Payloads)
	if err != nil {
		t.Fatal(err)
	}
	row := format.Row{Stored: uint32(len(shard)), Decoded: uint32(len(block.Buf)), Samples: 2, CRC: codec.Checksum(shard), Codec: storedAs}
	index.AddRow(row)
	var h metadata.ShardHasher
	h.Add(format.BlockHash(block.Buf))
	shard = append(shard, metadata.EndOfArchive(false)...)
	data := len(shard)
	if shard, err = metadata.AppendTail(shard, index.Finish(nil), false); err != nil {
		t.Fatal(err)
	}
	store := mem.New()
	put(t, store, "s.tar.zst", shard)
	m := &metadata.Manifest{Totals: metadata.Totals{Generation: 1, Fields: []format.FieldTotal{{Name: "x", Samples: 2, Bytes: 2, Min: 1, Max: 1}}}, Shards: []metadata.ShardEntry{{
		ShardInfo: metadata.ShardInfo{Name: "s.tar.zst", Size: uint64(len(shard)), Tail: uint64(len(shard) - data), Samples: 2, Blocks: 1, Rows: 1,
			Hash: h.Sum(), FirstKey: "a", LastKey: second},
		Rows: []format.Row{row},
	}}}
	edit(&m.Shards[0])
	if _, err := testset.Publish(t.Context(), store, m); err != nil {
		t.Fatal(err)
	}
	return store
}

// TestVerifyDigest has tables that are whole and name another digest than that of their shards.
func TestVerifyDigest(t *testing.T) {
	store := build(t, mixed(50), testset.Options{})
	d := open(t, store, Options{})
	raw := slices.Clone(object(t, store, d.Info().Tables))
	digest := d.Digest()
	at := bytes.Index(raw, digest[:])
	// SPEC 6: a directory of 16 bytes, then 32 a section; HEAD is the first one, its offset at 12,
	// stored length at 20, checksum at 28.
	sections := binary.LittleEndian.Uint32(raw[12:])
	off, stored := binary.LittleEndian.Uint64(raw[16+12:]), binary.LittleEndian.Uint32(raw[16+20:])
	if at < int(off) || at > int(off)+int(stored) {
		t.Fatalf("the digest is at %d, the head at %d", at, off)
	}
	raw[at] ^= 1
	binary.LittleEndian.PutUint32(raw[16+28:], codec.Checksum(raw[off:off+uint64(stored)]))
	end := 16 + 32*sections
	binary.LittleEndian.PutUint32(raw[end:], codec.Checksum(raw[:end]))
	name := names.Tables(format.BlockHash(raw))
	put(t, store, name, raw)
	generation := strings.TrimSuffix(strings.TrimPrefix(name, "manifest-"), ".bin")
	for _, deep := range []bool{false, true} {
		r, err := check.Verify(t.Context(), store, check.Options{Generation: generation, Deep: deep})
		if err != nil || len(r.Faults) != 1 || r.Faults[0].Kind != check.KindManifest || !strings.Contains(r.Faults[0].Detail, "digest") {
			t.Fatalf("%v %+v", err, r)
		}
	}
}

// TestVerifyParts damages the tables' second half: the shards of whole parts are verified, the
// others are a fault.
func TestVerifyParts(t *testing.T) {
	var m *metadata.Manifest
	store := build(t, mixed(200), testset.Options{BlockSize: 2000, ShardSize: 20000, Edit: func(e *metadata.Manifest) { m = e }})
	d := open(t, store, Options{})
	raw := slices.Clone(object(t, store, d.Info().Tables))
	raw[len(raw)-1] ^= 1 // the last section: checksums of the only part
	r := verify(t, damaged(t, store, d.Info().Tables, raw), true)
	if len(r.Faults) != 2 || r.Faults[0].Kind != check.KindManifest || r.Faults[1].Kind != check.KindManifest ||
		!strings.Contains(r.Faults[1].Detail, fmt.Sprintf("%d shards from number 0", len(m.Shards))) {
		t.Fatalf("%+v", r)
	}
}

// TestAttributesAreBound puts a shard in place of one that differs in attributes alone, with all of
// its own checksums right: the tables tell. Those of an older program, which have no hashes of
// indexes, stay readable.
func TestAttributesAreBound(t *testing.T) {
	samples := mixed(60)
	label := func(first byte) func(string) string {
		return func(key string) string { return string([]byte{first + key[len(key)-1]%3}) }
	}
	for _, plain := range []bool{false, true} {
		o := testset.Options{BlockSize: 4000, ShardSize: 30_000, Plain: plain, Label: label('a')}
		store := build(t, samples, o)
		o.Label = label('p')
		other := build(t, samples, o)
		d := open(t, store, Options{})
		info, _ := d.Shard(t.Context(), 1)
		name := info.IndexObject()
		swapped := damaged(t, store, name, object(t, other, name))
		if len(object(t, store, name)) != len(object(t, other, name)) || bytes.Equal(object(t, store, name), object(t, other, name)) {
			t.Fatal("the shards differ in more than their attributes, or not at all")
		}
		for _, deep := range []bool{false, true} {
			if r := verify(t, swapped, deep); len(r.Faults) == 0 || r.Faults[0].Kind != check.KindIndex || !strings.Contains(r.Faults[0].Detail, "attributes") {
				t.Errorf("plain=%v deep=%v: %+v", plain, deep, r.Faults)
			}
		}
		if _, err := open(t, swapped, Options{}).Index(t.Context(), 1); !errors.Is(err, format.ErrMismatch) {
			t.Errorf("the index of another shard: %v", err)
		}
		// COLD alone, as a reader of the whole index sees it.
		raw := slices.Clone(object(t, store, name))
		if want := metadata.HashIndex(raw[len(raw)-int(info.Tail):]); want != info.Index.Hash {
			t.Errorf("%v, the tables have %v", want, info.Index)
		}
		o.Label = label('a')
		o.Edit = func(m *metadata.Manifest) {
			for i := range m.Shards {
				m.Shards[i].Index.Hash = metadata.IndexHash{}
			}
		}
		old := build(t, samples, o)
		if bytes.Contains(object(t, old, open(t, old, Options{}).Info().Tables), []byte("IHSH")) {
			t.Fatal("the tables have hashes of indexes")
		}
		if r := verify(t, old, true); !r.OK() {
			t.Errorf("tables of an older program: %+v", r.Faults)
		}
		if _, err := open(t, old, Options{}).Index(t.Context(), 1); err != nil {
			t.Error(err)
		}
	}
}
