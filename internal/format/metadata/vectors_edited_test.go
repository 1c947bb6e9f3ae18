package metadata

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/codec"
	"github.com/shardtool/shardtool/internal/format/samplekey"
	"github.com/shardtool/shardtool/internal/format/section"
	"github.com/shardtool/shardtool/internal/format/tarblock"
)

// editedVectors are objects whose checksums are right and whose content is not, or is unusual.
func editedVectors(t *testing.T) (out []vector) {
	add := func(kind, name, expect, note string, extra int, data []byte) {
		out = append(out, vector{kind + "-" + name, kind, expect, note, bytes.Clone(data), extra})
	}
	long := []testSample{
		one(strings.Repeat("d/", 60)+"k", "txt", "divided between prefix and name"),
		one(strings.Repeat("k", 101), "txt", "long name record"),
		one(strings.Repeat("\xe9", 60)+"/"+strings.Repeat("\xe8", 200), "a", "not UTF-8", "b", ""),
		one(strings.Repeat("n/", 1000)+"z", "x", "a long name record of four times 512 bytes"),
	}
	add("shard", "long-names", "ok", "names of 101 to 2,003 bytes", 0, pack(t, long, packOptions{}).object())

	samples := []testSample{
		one("a", "txt", "one").with(label("class", "x")), one("b", "txt", "two"), one("c", "bin", "3", "txt", "").with(label("class", "y")),
	}
	shard := pack(t, samples, packOptions{Block: 2048})
	base := partsOf(shard)
	add("shard", "stored-sections", "ok", "no section is compressed", 0, base.build())
	// replace edits a section; one whose bytes are nil is left out.
	replace := func(kind string, f func(s *section.Raw)) []byte {
		p := *base
		p.cold, p.hot = slices.Clone(base.cold), slices.Clone(base.hot)
		for _, list := range []*[]section.Raw{&p.cold, &p.hot} {
			for i := range *list {
				if s := &(*list)[i]; s.Kind == kind {
					f(s)
				}
			}
			*list = slices.DeleteFunc(*list, func(s section.Raw) bool { return s.Raw == nil })
		}
		return p.build()
	}
	raw := func(b ...byte) func(s *section.Raw) {
		return func(s *section.Raw) { s.Raw, s.Encoding = b, section.EncodingPlanes }
	}
	column := func(v ...uint64) func(s *section.Raw) { return raw(section.AppendPlanes(nil, v, nil)...) }
	dict := func(b []byte) func(s *section.Raw) {
		return func(s *section.Raw) { s.Raw, s.Encoding = b, section.EncodingDictionary }
	}
	names := func(s ...string) func(s *section.Raw) { return raw(section.AppendStrings(nil, s, nil)...) }
	for _, c := range []struct {
		name, expect, note, kind string
		edit                     func(s *section.Raw)
	}{
		{"dictionary", "ok", "shapes as a dictionary column", typeShape, dict(section.AppendDictionary(nil, []uint64{0, 0, 1}, []uint64{0, 1}))},
		{"dictionary-index", "corrupt", "a dictionary index beyond the values", typeShape, dict(append(section.AppendDictionary(nil, []uint64{0, 0}, []uint64{0, 1}), 2))},
		{"dictionary-order", "corrupt", "dictionary values that do not ascend", typeShape, dict(section.AppendDictionary(nil, []uint64{1, 1, 0}, []uint64{1, 0}))},
		{"column-short", "corrupt", "a column that lacks a byte", typeShape, raw(1, 0, 0)},
		{"column-long", "corrupt", "a column with a byte too many", typeShape, raw(1, 0, 0, 1, 0)},
		{"shape-unknown", "corrupt", "a sample of a shape that is not in the schema", typeShape, column(0, 0, 2)},
		{"shape-missing", "corrupt", "two shapes and no SHAP", typeShape, raw()},
		{"key-dotted", "corrupt", "a key with a dot in its last element", typeKeys, names("a", "b", "c.")},
		{"key-outside", "corrupt", "a key that leads outside", typeKeys, names("a", "b", "../c")},
		{"key-empty", "corrupt", "an empty key", typeKeys, names("a", "", "c")},
		{"key-other", "corrupt", "a key that is not in the tar header", typeKeys, names("a", "x", "c")},
		{"keys-missing", "corrupt", "no keys", typeKeys, raw()},
		{"keys-short", "corrupt", "two keys for three samples", typeKeys, names("a", "b")},
		{"string-shares", "corrupt", "a string shares more than there is", typeKeys, raw(1, 0, 5, 0, 1, 1, 0, 1, 'a', 'c')},
		{"size-other", "corrupt", "a size that is not in the tar header", typeSize, func(s *section.Raw) {
			if s.Part == 0 {
				s.Raw = section.AppendPlanes(nil, []uint64{2}, nil)
			}
		}},
		{"size-huge", "corrupt", "a size of 2^63", typeSize, func(s *section.Raw) {
			if s.Part == 0 {
				s.Raw = section.AppendPlanes(nil, []uint64{1 << 63}, nil)
			}
		}},
		{"label-unknown", "corrupt", "a value beyond the labels", typeAttr, column(0, 0, 2)},
		{"absent-short", "corrupt", "no bits for the samples without a value", typeAbsent, func(s *section.Raw) { s.Raw = []byte{} }},
		{"row-codec-3", "version", "a row of an unknown codec", typeCodec, column(3, 1)},
		{"row-codec-0", "corrupt", "bytes as they are in a compressed shard", typeCodec, column(0, 1)},
		{"row-empty", "corrupt", "a row that decodes to nothing", typeDecoded, column(0, 2048)},
		{"row-huge", "corrupt", "a row that decodes to 16 MiB and a byte", typeDecoded, column(16<<20+1, 2048)},
		{"row-decoded", "corrupt", "a row that decodes to 512 bytes more than its frame", typeDecoded, column(2560, 2048)},
		{"row-continues", "corrupt", "the first row continues a block", typeSamples, column(0, 3)},
		{"row-samples", "corrupt", "samples in the wrong block", typeSamples, column(1, 2)},
		{"row-samples-huge", "corrupt", "more samples than headers fit", typeSamples, column(1<<32-1, 1)},
		{"attribute-kind-3", "version", "an attribute of an unknown kind", typeSchema, func(s *section.Raw) { s.Raw = append(bytes.Clone(s.Raw[:len(s.Raw)-1]), 3) }},
		{"schema-unsorted", "corrupt", "fields that do not ascend", typeSchema, func(s *section.Raw) {
			s.Raw = bytes.Replace(s.Raw, []byte("bin"), []byte("zin"), 1)
		}},
		{"schema-shape-field", "corrupt", "a shape names a field that is not there", typeSchema, func(s *section.Raw) {
			s.Raw = (&Schema{Fields: []string{"bin", "txt"}, Shapes: [][]uint32{{1}, {0, 2}}, Attributes: shard.Index.Attributes}).append(nil)
		}},
	} {
		add("shard", c.name, c.expect, c.note, 0, replace(c.kind, c.edit))
	}
	for _, c := range []struct {
		name, expect, note string
		edit               func(s *section.Section)
	}{
		{"section-codec-2", "version", "a section of an unknown codec", func(s *section.Section) { s.Codec = 2 }},
		{"section-encoding-2", "version", "a section of an unknown encoding", func(s *section.Section) { s.Encoding = 2 }},
		{"section-raw-other", "corrupt", "a section that is stored as it is in another length", func(s *section.Section) { s.Raw++ }},
	} {
		p := *base
		p.editDir = func(dir []section.Section) []section.Section { c.edit(&dir[0]); return dir }
		add("shard", c.name, c.expect, c.note, 0, p.build())
	}
	for _, c := range []struct {
		name, expect, note string
		edit               func(block []byte) (frame []byte)
	}{
		{"raw-pieces", "ok", "a raw frame in blocks of one byte", rawPieces},
		{"header-mode", "corrupt", "a tar header with another mode", func(b []byte) []byte { b[105] = '6'; return codec.AppendRawFrame(nil, b, nil, nil) }},
		{"padding", "corrupt", "padding that is not zero", func(b []byte) []byte { b[1000] = 1; return codec.AppendRawFrame(nil, b, nil, nil) }},
		{"header-outside", "corrupt", "a tar header whose name leads outside", func(b []byte) []byte {
			h := tarblock.AppendHeader(nil, "../a.txt", 3)
			return codec.AppendRawFrame(nil, append(h, b[len(h):]...), nil, nil)
		}},
		{"frame-longer", "corrupt", "a frame that decodes to more than its row", func(b []byte) []byte { return codec.AppendRawFrame(nil, append(b, make([]byte, 512)...), nil, nil) }},
	} {
		add("shard", c.name, c.expect, c.note, 0, withFirstFrame(t, shard, samples, c.edit))
	}
	out = append(out, stackedVectors(t)...)
	return append(out, editedManifests(t)...)
}

// rawPieces stores each of the first 100 bytes in a separate raw block.
func rawPieces(b []byte) []byte {
	whole := codec.AppendRawFrame(nil, b, nil, nil)
	f := slices.Clone(whole[:len(whole)-4-len(b)-3]) // without the one raw block and the hash
	for i := range 100 {
		f = append(f, 1<<3, 0, 0, b[i])
	}
	rest, h := b[100:], uint32(len(b)-100)<<3|1
	f = append(append(f, byte(h), byte(h>>8), byte(h>>16)), rest...)
	return append(f, whole[len(whole)-4:]...)
}

// withFirstFrame rebuilds a shard around another first frame of the same decoded length.
func withFirstFrame(t *testing.T, s *testShard, samples []testSample, edit func(block []byte) []byte) []byte {
	plain := pack(t, samples, packOptions{Block: 2048, Plain: true})
	rows := slices.Clone(s.Index.Rows)
	frame := edit(bytes.Clone(plain.Data[:rows[0].Decoded]))
	data := append(bytes.Clone(frame), s.Data[rows[0].Stored:]...)
	rows[0].Stored, rows[0].CRC, rows[0].Codec = uint32(len(frame)), codec.Checksum(frame), format.CodecRaw
	ix := *s.Index
	ix.Rows = rows
	tail, err := AppendTail(nil, &ix, false)
	if err != nil {
		t.Fatal(err)
	}
	return append(data, tail...)
}

// addRemoved adds tables with removed samples.
func addRemoved(t *testing.T, add func(kind, name, expect, note string, extra int, data []byte)) {
	m := testManifest(3, 0, 4)
	m.Removed, m.Purged = []uint64{0, 2, 7}, []uint64{0, 7}
	m.Shards[0].Purged = format.BlockHash([]byte("purged"))
	secs := tableParts(t, encodeTables(t, m))
	with := func(kind string, raw []byte) []byte {
		secs := slices.Clone(secs)
		for i := range secs {
			if secs[i].Kind == kind {
				secs[i].Raw, secs[i].Encoding = raw, section.EncodingPlanes
			}
		}
		return buildTables(secs, nil)
	}
	lists := func(of ...[]uint64) (raw []byte) {
		for _, gaps := range of {
			raw = section.AppendPlanes(binary.LittleEndian.AppendUint64(raw, uint64(len(gaps))), gaps, nil)
		}
		return raw
	}
	add("tables", "removed", "ok", "three removed samples, two of them purged, and one purged shard", 0, buildTables(secs, nil))
	for _, c := range []struct {
		name, note string
		raw        []byte
	}{
		{"none", "a list of no removed samples", lists(nil, nil)},
		{"twice", "a removed sample twice", lists([]uint64{1, 0}, nil)},
		{"beyond", "a removed sample that no shard has", lists([]uint64{1 << 40}, nil)},
		{"wraps", "numbers whose sum is beyond 64 bits", lists([]uint64{1, 1<<64 - 1}, nil)},
		{"not-purged", "a purged sample that is not removed", lists([]uint64{1}, []uint64{2})},
		{"short", "a list that lacks a byte", lists([]uint64{1, 1}, nil)[:9]},
		{"long", "a byte too many", append(lists([]uint64{1, 1}, nil), 0)},
		{"many", "2^60 removed samples in a byte", append(binary.LittleEndian.AppendUint64(nil, 1<<60), 0)},
	} {
		add("tables", "removed-"+c.name, "corrupt", c.note, 0, with(typeRemoved, c.raw))
	}
	add("tables", "purged-short", "corrupt", "hashes of two purged shards for three shards", 0, with(typePurged, bytes.Repeat([]byte{7}, 64)))
}

// addLayers adds tables of layers.
func addLayers(t *testing.T, add func(kind, name, expect, note string, extra int, data []byte)) {
	m := testManifest(3, 0, 4)
	m.Base = BaseOf(m, -1, []string{"caption", "txt"})
	secs := tableParts(t, encodeTables(t, m))
	add("tables", "base", "ok", "a layer that replaces two names", 0, buildTables(secs, nil))
	good := m.Base.section().Raw
	names := func(n uint32, names ...string) []byte {
		raw := appendUint32(slices.Clone(good[:44]), n)
		return section.AppendStrings(raw, names, nil)
	}
	edited := func(at int, b byte) []byte {
		raw := slices.Clone(good)
		raw[at] = b
		return raw
	}
	for _, c := range []struct {
		name, note string
		raw        []byte
	}{
		{"short", "the base of a layer without its samples", good[:36]},
		{"long", "a byte too many", append(slices.Clone(good), 0)},
		{"shards", "a layer of three shards on a base of two", edited(32, 2)},
		{"samples", "a layer of more samples than its base", edited(36, 1)},
		{"names-many", "2^31 names in few bytes", names(1<<31, "a")},
		{"names-empty", "an empty name replaced", names(2, "", "a")},
		{"names-twice", "a name replaced twice", names(2, "a", "a")},
		{"names-order", "names that do not ascend", names(2, "b", "a")},
	} {
		edit := slices.Clone(secs)
		at := slices.IndexFunc(edit, func(s section.Raw) bool { return s.Kind == typeBase })
		edit[at].Raw = c.raw
		add("tables", "base-"+c.name, "corrupt", c.note, 0, buildTables(edit, nil))
	}
}

// editedManifests are tables and keys tables whose checksums are right.
func editedManifests(t *testing.T) (out []vector) {
	add := func(kind, name, expect, note string, extra int, data []byte) {
		out = append(out, vector{kind + "-" + name, kind, expect, note, bytes.Clone(data), extra})
	}
	m := testManifest(3, 0, 4)
	secs := tableParts(t, encodeTables(t, m))
	replace := func(kind string, raw []byte) []byte {
		e := slices.Clone(secs)
		for i := range e {
			if e[i].Kind == kind {
				e[i].Raw, e[i].Encoding = raw, section.EncodingPlanes
			}
		}
		return buildTables(e, nil)
	}
	extra := func(critical bool) []byte {
		return buildTables(append(slices.Clone(secs), section.Raw{Kind: "NEW!", Part: 9, Critical: critical, Raw: []byte("x")}), nil)
	}
	add("tables", "stored-sections", "ok", "no section is compressed; a plain shard, one without samples, one of two codecs", 0, buildTables(secs, nil))
	add("tables", "section-other", "ok", "an unknown section that is not critical", 0, extra(false))
	add("tables", "section-critical", "version", "an unknown section that is critical", 0, extra(true))
	names := func(s ...string) []byte { return section.AppendStrings(nil, s, nil) }
	add("tables", "name-outside", "corrupt", "a shard outside the data set", 0, replace(typeNames, names("a.tar", "b.tar.zst", "../c.tar.zst")))
	add("tables", "name-absolute", "corrupt", "a shard with an absolute name", 0, replace(typeNames, names("/a.tar", "b.tar.zst", "c.tar.zst")))
	add("tables", "name-plain", "corrupt", "a compressed shard named as a plain one", 0, replace(typeNames, names("a.tar", "b.tar.zst", "c.tar")))
	add("tables", "samples-other", "corrupt", "samples of shards that do not add up", 0, replace(typeShardSmp, section.AppendPlanes(nil, []uint64{1, 0, 1}, nil)))
	add("tables", "size-other", "corrupt", "objects that are longer than their rows", 0, replace(typeObjSize, section.AppendPlanes(nil, []uint64{99999, 500, 99999}, nil)))
	add("tables", "hash-other", "corrupt", "shard hashes that do not give the digest", 0, replace(typeHashes, bytes.Repeat([]byte{7}, 96)))
	add("tables", "hash-short", "corrupt", "a hash too few", 0, replace(typeHashes, bytes.Repeat([]byte{7}, 64)))
	sidecars := func(tags ...byte) []byte {
		e := slices.Clone(secs)
		at := slices.IndexFunc(e, func(s section.Raw) bool { return s.Kind == typeStored })
		return buildTables(slices.Insert(e, at, section.Raw{Kind: typeSidecars, Critical: true, Raw: tags}), nil)
	}
	add("tables", "sidecar-tag", "ok", "a plain shard whose sidecar has its hash in its name", 0, sidecars(append([]byte("\x01tagtag\xff"), make([]byte, 16)...)...))
	add("tables", "sidecar-short", "corrupt", "a tag too few", 0, sidecars(make([]byte, 16)...))
	add("tables", "sidecar-compressed", "corrupt", "a sidecar of a compressed shard", 0, sidecars(bytes.Repeat([]byte{7}, 24)...))
	head := binary.LittleEndian.AppendUint64(nil, 2)
	head = append(section.AppendString(head, ""), make([]byte, 64)...)
	add("tables", "no-parent", "corrupt", "generation 2 without a parent", 0, replace(typeHead, head))

	add("tables", "samples-huge", "corrupt", "2^32 - 1 samples in a block of 10 KiB; totals agree", 0, manySamples(t))
	m.Shards[0].Index.Hash, m.Shards[2].Index.Hash = HashIndex(make([]byte, 8)), IndexHash{Hot: format.BlockHash(nil), Cold: format.BlockHash([]byte{1})}
	secs = tableParts(t, encodeTables(t, m))
	add("tables", "index-hashes", "ok", "hashes of two indexes; that of the third is not known", 0, buildTables(secs, nil))
	addRemoved(t, add)
	addLayers(t, add)
	add("tables", "index-hashes-short", "corrupt", "hashes of two indexes for three shards", 0, replace(typeIndexHash, bytes.Repeat([]byte{7}, 128)))

	m = withTotals(testManifest(3, 0, 4))
	secs = tableParts(t, encodeTables(t, m))
	add("tables", "attribute-totals", "ok", "the totals of an integer attribute", 0, buildTables(secs, nil))
	m.AttrTotals[0].Samples++
	contradicts, err := appendAttrTotals(nil, m.Attributes, m.AttrTotals)
	if err != nil {
		t.Fatal(err)
	}
	add("tables", "attribute-totals-counts", "corrupt", "counts of other samples than the total's", 0, replace(typeAttrTotal, contradicts))

	raw := keyTable(t, keyEntries(5))
	keys := func(edit func(b []byte)) []byte {
		b := bytes.Clone(raw)
		edit(b)
		binary.LittleEndian.PutUint32(b[samplekey.HeaderLen-4:], codec.Checksum(b[:samplekey.HeaderLen-4]))
		binary.LittleEndian.PutUint32(b[len(b)-4:], codec.Checksum(b[samplekey.HeaderLen:len(b)-4]))
		return b
	}
	add("keys", "minor-9", "ok", "minor version 9: to be ignored", 5, keys(func(b []byte) { b[10] = 9 }))
	add("keys", "major-2", "version", "major version 2", 5, keys(func(b []byte) { b[8] = 2 }))
	add("keys", "width", "corrupt", "numbers of another width", 5, keys(func(b []byte) { b[12] = 2 }))
	add("keys", "entries", "corrupt", "a header of more entries than there are samples", 5, keys(func(b []byte) { b[16] = 6 }))
	add("keys", "number", "corrupt", "a number beyond the samples", 5, keys(func(b []byte) { b[samplekey.HeaderLen+8] = 5 }))
	add("keys", "twice", "corrupt", "an entry twice", 5, keys(func(b []byte) { copy(b[samplekey.HeaderLen+9:], b[samplekey.HeaderLen:samplekey.HeaderLen+9]) }))
	return out
}
