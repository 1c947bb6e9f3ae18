package metadata

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/damage"
	"github.com/shardtool/shardtool/internal/format/names"
	"github.com/shardtool/shardtool/internal/format/samplekey"
	"github.com/shardtool/shardtool/internal/format/section"
	"github.com/shardtool/shardtool/internal/format/stacked"
)

// ManifestFormat is the value of member "format" of manifest.json in this version.
const ManifestFormat = "shardtool/1"

// maxShardName bounds a shard's name in bytes.
const maxShardName = 1024

// CheckShardName refuses names of shards that could lead outside the data set or have another
// suffix.
func CheckShardName(s string) error {
	bad := s == "" || len(s) > maxShardName || s[0] == '/' || strings.ContainsAny(s, "\\\x00") ||
		strings.Contains(s, "://")
	for elem := range strings.SplitSeq(s, "/") {
		bad = bad || elem == "" || elem == "." || elem == ".."
	}
	if bad {
		return damage.Errorf("shard name %q", s)
	}
	if _, err := ShardFormat(s); err != nil {
		return fmt.Errorf("%w: %w", format.ErrCorrupt, err)
	}
	return nil
}

// Summary is manifest.json. Readers rely on Format and Tables, and compare Digest, Generation and
// Removed with the tables; the other members are for people and must equal the tables.
type Summary struct {
	Format       string              `json:"format"`
	Tables       string              `json:"tables"`
	Digest       string              `json:"digest"`
	Generation   uint64              `json:"generation"`
	Samples      uint64              `json:"samples"`
	Shards       uint64              `json:"shards"`
	Blocks       uint64              `json:"blocks"`
	Bytes        uint64              `json:"bytes"`
	PayloadBytes uint64              `json:"payload_bytes"`
	Removed      uint64              `json:"removed,omitempty"`
	Fields       []format.FieldTotal `json:"fields"`
}

// Encode returns the only encoding of a summary: JSON indented by two spaces, and a newline.
func (s *Summary) Encode() []byte {
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		panic("format: summary: " + err.Error()) // no value in it can fail
	}
	return append(b, '\n')
}

// DecodeSummary decodes manifest.json. It ignores unknown members; another major format is
// ErrVersion.
func DecodeSummary(src []byte) (*Summary, error) {
	var s Summary
	if err := json.Unmarshal(src, &s); err != nil {
		return nil, damage.Errorf("%s: %v", format.ManifestName, err)
	}
	if s.Format != ManifestFormat {
		if strings.HasPrefix(s.Format, "shardtool/") {
			return nil, fmt.Errorf("%w: %s says %q, this program reads %q: use a newer shardtool", format.ErrVersion,
				format.ManifestName, s.Format, ManifestFormat)
		}
		return nil, damage.Errorf("%s is not a manifest of shardtool: format %q", format.ManifestName, s.Format)
	}
	if !names.IsTables(s.Tables) {
		return nil, damage.Errorf("%s names tables %q", format.ManifestName, s.Tables)
	}
	if _, err := parseDigest(s.Digest); err != nil {
		return nil, err
	}
	return &s, nil
}

// CheckTables compares the hash of tables with the one in their name: see Summary.Check.
func CheckTables(name string, hash format.Hash) error {
	if is := names.Tables(hash); is != name {
		return damage.Errorf("%s has the bytes of %s: it was replaced or edited: restore it from a copy of that object",
			name, is)
	}
	return nil
}

// parseDigest parses the result of DigestString.
func parseDigest(s string) (format.Hash, error) {
	rest, ok := strings.CutPrefix(s, "sha256:")
	if !ok {
		return format.Hash{}, damage.Errorf("digest %q has an unknown algorithm", s)
	}
	return format.ParseHash(rest)
}

// ShardInfo describes a shard in the manifest, except its rows.
type ShardInfo struct {
	// Name is relative to the manifest.
	Name string
	// Size is the length of the object. Tail is the length of its index: the end of a .tar.zst, or
	// the whole sidecar of a .tar.
	Size, Tail uint64
	// Samples, Blocks and Rows are counts.
	Samples, Blocks, Rows uint64
	// Hash is the shard's identity.
	Hash  format.Hash
	Index IndexTag
	// FirstKey and LastKey are the least and the greatest key; both are empty in a shard without
	// samples.
	FirstKey, LastKey string
	// Foreign: a plain .tar that another tool wrote, indexed in place.
	Foreign bool
	// Layout describes the rows of a stacked shard; it is nil in an ordinary one. Shards may share it.
	Layout *stacked.Layout
	// Numbered is the keys of a shard where they are numbered, else nil.
	Numbered samplekey.Ranges
	// Purged is the identity of what the object holds since removed samples were purged from it.
	// Hash stays the hash of the shard as it was packed, so that the digest stays. It is zero in a
	// shard that holds what was packed.
	Purged format.Hash
}

// IndexTag tells the shard's index from others.
type IndexTag struct {
	// Hash is the identity of the index; zero in tables of an older program.
	Hash IndexHash
	// Sidecar is the part of the sidecar's hash in its name; zero if the name has none.
	Sidecar SidecarTag
}

// SidecarTag is the first bytes of the SHA-256 of a sidecar. A sidecar with the tag in its name is
// never replaced: an index with other bytes has another name.
type SidecarTag [8]byte

// IndexObject returns the name of the object that ends with the shard's index: the shard itself, or
// the sidecar of a plain one, which is x.tar.shidx or x.tar.<16 hex>.shidx for x.tar.
func (s *ShardInfo) IndexObject() string {
	switch {
	case !s.Plain():
		return s.Name
	case s.Index.Sidecar == SidecarTag{}:
		return strings.TrimSuffix(s.Name, format.TarSuffix) + format.SidecarSuffix
	}
	return names.Sidecar(s.Name, s.Index.Sidecar)
}

// Plain reports whether the shard is an uncompressed .tar with a sidecar.
func (s *ShardInfo) Plain() bool { return !strings.HasSuffix(s.Name, format.ZstdSuffix) }

// objects is the length of the shard's objects, a sidecar included.
func (s *ShardInfo) objects() uint64 {
	if s.Plain() {
		return s.Size + s.Tail
	}
	return s.Size
}

// ShardEntry is a shard with its rows.
type ShardEntry struct {
	ShardInfo
	Rows []format.Row
}

// SumSamples returns the number of samples of shards.
func SumSamples(shards []ShardEntry) (n uint64) {
	for i := range shards {
		n += shards[i].Samples
	}
	return n
}

// Totals is what the tables have of a generation beside its shards.
type Totals struct {
	// Generation counts from 1. Parent names the tables of the generation before; it is empty for
	// the first.
	Generation uint64
	Parent     string
	Fields     []format.FieldTotal
	Attributes []format.Attribute
	// AttrTotals are the totals of integer attributes, in ascending order of names. Manifests
	// of older programs have none.
	AttrTotals []AttrTotal
	Meta       format.Metadata
	// Keys is the hash of the keys table; zero if there is none.
	Keys format.Hash
	// Removed are the numbers of the samples that were removed, ascending; Purged are the ones
	// whose bytes are gone. The caller must not change the ones of Tables.
	Removed, Purged []uint64
	// Base is the data set to which a layer adds fields; nil for a data set that is no layer.
	Base *Base
}

// KeysName returns the object name of the keys table, or "" if there is none.
func (t *Totals) KeysName() string {
	if t.Keys == (format.Hash{}) {
		return ""
	}
	return names.Keys(t.Keys)
}

// Manifest is the content of the tables of one generation.
type Manifest struct {
	Totals
	Shards []ShardEntry
}

// Section types of the tables (SPEC 6.2), besides the types of rows, schema and metadata.
const (
	magicTables   = "SHRDMAN1"
	typeHead      = "HEAD" // generation, parent, digest, keys table
	typeFields    = "FLDS" // totals a field
	typeParts     = "PART" // totals a part
	typeAttrTotal = "ATOT" // totals an integer attribute
	typeNames     = "NAME" // part: shard names
	typeObjSize   = "OSIZ" // object sizes
	typeTailLen   = "TLEN" // tail lengths
	typeShardSmp  = "SSMP" // samples a shard
	typeShardBlk  = "SBLK" // blocks a shard
	typeShardRows = "SROW" // rows a shard
	typeHashes    = "HASH" // identity a shard
	typeKeyRange  = "KRNG" // first and last key a shard
	typeForeign   = "FRGN" // a bit a shard
	typeSidecars  = "SIDE" // the tag in its sidecar's name, a shard
	typeIndexHash = "IHSH" // identity of the index, a shard

	// PartRows is the most rows in a part, unless one shard alone has more.
	PartRows = 65536
)

var tablesSections = map[string]bool{
	typeHead: true, typeSchema: true, typeFields: true, typeParts: true, typeAttrTotal: true, typeMeta: true,
	typeNames: true, typeObjSize: true,
	typeTailLen: true, typeShardSmp: true, typeShardBlk: true, typeShardRows: true, typeHashes: true,
	typeKeyRange: true, typeForeign: true,
	typeSidecars: true, typeIndexHash: true, typeRemoved: true, typePurged: true, typeBase: true,
	section.KindLayout: true, section.KindKeyNumbers: true, typeGroups: true,
	typeStored: true, typeDecoded: true, typeSamples: true, typeCRC: true, typeCodec: true,
}

// Part is a range of consecutive shards whose rows are read together.
type Part struct {
	// FirstShard and FirstSample are its place in the data set.
	FirstShard, FirstSample uint64
	// Shards, Rows, Blocks and Samples are counts.
	Shards, Rows, Blocks, Samples uint64
	// Bytes is the length of the part's objects, sidecars included. Decoded is the length of their
	// decoded blocks.
	Bytes, Decoded uint64
}

// EncodeTables returns the bytes of the tables, their hash and the digest of the data set.
func EncodeTables(m *Manifest) (tables []byte, name, digest format.Hash, err error) {
	digest = m.digest()
	head := binary.LittleEndian.AppendUint64(nil, m.Generation)
	head = section.AppendString(head, m.Parent)
	head = append(append(head, digest[:]...), m.Keys[:]...)

	schema := Schema{Attributes: m.Attributes}
	var smp, byt, lo, hi []uint64
	for _, f := range m.Fields {
		schema.Fields = append(schema.Fields, f.Name)
		smp, byt, lo, hi = append(smp, f.Samples), append(byt, f.Bytes), append(lo, f.Min), append(hi, f.Max)
	}
	fields := section.Raw{Kind: typeFields, Critical: true}
	for _, col := range [][]uint64{smp, byt, lo, hi} {
		fields.Raw = section.AppendPlanes(fields.Raw, col, &fields.Cuts)
	}
	var partCols [6][]uint64
	var body []section.Raw
	var ends []int
	for part, from := uint32(0), 0; from < len(m.Shards); part++ {
		to, rows := from, 0
		for to < len(m.Shards) && (to == from || rows+len(m.Shards[to].Rows) <= PartRows) {
			rows += len(m.Shards[to].Rows)
			to++
		}
		secs, p, err := partSections(part, m.Shards[from:to])
		if err != nil {
			return nil, name, digest, err
		}
		for i, v := range []uint64{p.Shards, p.Rows, p.Blocks, p.Samples, p.Bytes, p.Decoded} {
			partCols[i] = append(partCols[i], v)
		}
		body, ends = append(body, secs...), append(ends, to)
		from = to
	}
	body = append(groupSections(m.Shards, ends), body...)
	parts := section.Raw{Kind: typeParts, Critical: true, Raw: appendUint32(nil, uint32(len(partCols[0])))}
	for _, col := range partCols {
		parts.Raw = section.AppendPlanes(parts.Raw, col, &parts.Cuts)
	}
	secs := append([]section.Raw{
		{Kind: typeHead, Critical: true, Raw: head}, {Kind: typeSchema, Critical: true, Raw: schema.append(nil)},
		fields, parts, {Kind: typeMeta, Raw: section.AppendMetadata(nil, m.Meta)},
	}, body...)
	if len(m.AttrTotals) > 0 {
		raw, err := appendAttrTotals(nil, m.Attributes, m.AttrTotals)
		if err != nil {
			return nil, name, digest, err
		}
		secs = slices.Insert(secs, 5, section.Raw{Kind: typeAttrTotal, Raw: raw})
	}
	if m.Base != nil {
		if err := m.Base.check(); err != nil {
			return nil, name, digest, err // a bug of the caller
		}
		secs = slices.Insert(secs, 5, m.Base.section())
	}
	if removed, ok, err := m.removedSection(); err != nil {
		return nil, name, digest, err
	} else if ok {
		secs = slices.Insert(secs, 5, removed)
	}
	base := uint64(section.DirectoryLen(len(secs)))
	payload, dir, err := section.Append(nil, base, secs)
	if err != nil {
		return nil, name, digest, err
	}
	tables = append(section.AppendDirectory(nil, magicTables, dir), payload...)
	return tables, format.BlockHash(tables), digest, nil
}

func partSections(part uint32, shards []ShardEntry) ([]section.Raw, Part, error) {
	var p Part
	var names, keys []string
	var size, tail, samples, blocks, nrows []uint64
	var hashes, sidecars, indexes, purged []byte
	var rows []format.Row
	foreign := make([]byte, (len(shards)+7)/8)
	for i := range shards {
		s := &shards[i]
		if s.Foreign {
			foreign[i/8] |= 1 << (i % 8)
		}
		total, err := checkRows(s.Rows, s.Layout)
		if err != nil {
			return nil, p, format.InShard(s.Name, err)
		}
		names, keys = append(names, s.Name), append(keys, s.FirstKey, s.LastKey)
		size, tail = append(size, s.Size), append(tail, s.Tail)
		samples, blocks, nrows = append(samples, s.Samples), append(blocks, s.Blocks), append(nrows,
			uint64(len(s.Rows)))
		hashes, sidecars = append(hashes, s.Hash[:]...), append(sidecars, s.Index.Sidecar[:]...)
		indexes = append(append(indexes, s.Index.Hash.Hot[:]...), s.Index.Hash.Cold[:]...)
		purged = append(purged, s.Purged[:]...)
		rows = append(rows, s.Rows...)
		p.Bytes += s.objects()
		p.Blocks, p.Samples, p.Decoded = p.Blocks+total.Blocks, p.Samples+total.Samples, p.Decoded+total.Decoded
	}
	p.Shards, p.Rows = uint64(len(shards)), uint64(len(rows))
	name, krng := section.Raw{Kind: typeNames, Part: part, Critical: true}, section.Raw{Kind: typeKeyRange, Part: part}
	name.Raw = section.AppendStrings(nil, names, &name.Cuts)
	krng.Raw = section.AppendStrings(nil, keys, &krng.Cuts)
	secs := []section.Raw{
		name, section.Column(typeObjSize, part, true, size), section.Column(typeTailLen, part, true, tail),
		section.Column(typeShardSmp, part, true, samples), section.Column(typeShardBlk, part, true, blocks),
		section.Column(typeShardRows, part, true, nrows), {Kind: typeHashes, Part: part, Critical: true, Raw: hashes},
		krng,
	}
	for _, s := range []section.Raw{
		{Kind: typeForeign, Critical: true, Raw: foreign}, {Kind: typeSidecars, Critical: true, Raw: sidecars},
		{Kind: typeIndexHash, Raw: indexes}, {Kind: typePurged, Critical: true, Raw: purged},
	} {
		if s.Part = part; !damage.AllZero(s.Raw) {
			secs = append(secs, s)
		}
	}
	if raw, ok := appendLayouts(shards); ok {
		secs = append(secs, section.Raw{Kind: section.KindLayout, Part: part, Critical: true, Raw: raw})
	}
	if raw, ok := appendNumbered(shards); ok {
		secs = append(secs, section.Raw{Kind: section.KindKeyNumbers, Part: part, Critical: true, Raw: raw})
	}
	return append(secs, rowSections(part, rows)...), p, nil
}
