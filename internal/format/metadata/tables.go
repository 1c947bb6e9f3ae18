package metadata

import (
	"fmt"
	"math"
	"slices"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/codec"
	"github.com/shardtool/shardtool/internal/format/damage"
	"github.com/shardtool/shardtool/internal/format/names"
	"github.com/shardtool/shardtool/internal/format/section"
	"github.com/shardtool/shardtool/internal/format/stacked"
	"github.com/shardtool/shardtool/internal/format/tarblock"
)

// Minor returns the minor version of the format that a reader of these tables needs: 1 where a
// shard is stacked or has numbered keys, else 0.
func (t *Tables) Minor() int { return int(section.Minor(t.object.dir.Sections)) }

// Stacked reports whether a shard may be stacked.
func (t *Tables) Stacked() bool {
	return slices.ContainsFunc(t.object.dir.Sections,
		func(s section.Section) bool { return s.Kind == section.KindLayout })
}

// ReadRange fills p with an object's bytes from offset off, or fails. The caller binds it to an
// object and a context.
type ReadRange func(p []byte, off int64) error

// Tables reads the tables of a generation part by part. Opening them reads the directory and the
// totals, in one or two ranges whatever the size of the data set. Its methods are safe for
// concurrent use if the ReadRange is.
type Tables struct {
	Totals
	Digest format.Hash
	Parts  []Part
	// Shards, Blocks, Samples, Bytes and Decoded are the sums over Parts.
	Shards, Blocks, Samples, Bytes, Decoded uint64
	// PayloadBytes is the sum over Fields.
	PayloadBytes uint64

	object  tablesObject
	grouped bool
}

// tablesObject is the object that tables are read from.
type tablesObject struct {
	read ReadRange
	size int64
	dir  section.Directory
}

// firstRead is how much of the tables' front is read first: the directory and the totals of a data
// set of some 500,000 blocks.
const firstRead = 32 << 10

// OpenTables reads the directory and the totals of tables of that size.
func OpenTables(read ReadRange, size int64) (*Tables, error) {
	t := &Tables{object: tablesObject{read: read, size: size}}
	if err := t.open(); err != nil {
		return nil, format.At(0, err)
	}
	return t, nil
}

func (t *Tables) open() error {
	if t.object.size < int64(section.DirectoryLen(0)) {
		return damage.Errorf("tables of %d bytes", t.object.size)
	}
	front := make([]byte, min(firstRead, t.object.size))
	if err := t.object.read(front, 0); err != nil {
		return err
	}
	n, err := section.DecodeDirectoryHeader(front, magicTables)
	if err != nil {
		return err
	}
	if int64(section.DirectoryLen(n)) > t.object.size {
		return damage.Errorf("directory of %d sections in %d bytes", n, t.object.size)
	}
	if section.DirectoryLen(n) > len(front) {
		// The totals follow the directory: a part has some 20 bytes of them, and 18 sections or more.
		front = make([]byte, min(int64(section.DirectoryLen(n)+2*n+firstRead), t.object.size))
		if err := t.object.read(front, 0); err != nil {
			return err
		}
	}
	if t.object.dir, err = section.DecodeDirectory(front, magicTables,
		func(k string) bool { return tablesSections[k] }); err != nil {
		return err
	}
	if err := section.Contiguous(t.object.dir.Sections, uint64(section.DirectoryLen(n)),
		uint64(t.object.size)); err != nil {
		return err
	}
	get := func(kind string) ([]byte, error) {
		s := t.object.dir.Find(kind, 0)
		if s == nil {
			return nil, damage.Errorf("no section %s", kind)
		}
		if end := s.Off + uint64(s.Stored); end <= uint64(len(front)) {
			return s.Payload(front[s.Off:end])
		}
		return t.load(s)
	}
	err = t.decodeTotals(get)
	t.grouped = t.findGroups()
	return err
}

func (t *Tables) decodeTotals(get func(kind string) ([]byte, error)) error {
	var names []string // of fields
	for _, s := range []struct {
		kind     string
		required bool
		decode   func(raw []byte) error
	}{
		{typeHead, true, t.decodeHead},
		{typeMeta, false, func(raw []byte) (err error) { t.Meta, err = section.DecodeMetadata(raw); return err }},
		{typeSchema, true, func(raw []byte) error {
			schema, err := decodeSchema(raw)
			names, t.Attributes = schema.Fields, schema.Attributes
			return err
		}},
		{typeFields, true, func(raw []byte) error { return t.decodeFields(raw, names) }},
		{typeParts, true, t.decodeParts},
		{typeAttrTotal, false, func(raw []byte) (err error) {
			if t.AttrTotals, err = decodeAttrTotals(raw, t.Attributes, t.Samples); err != nil {
				return fmt.Errorf("section %s: %w", typeAttrTotal, err)
			}
			return nil
		}},
		{typeBase, false, func(raw []byte) (err error) { t.Base, err = decodeBase(raw, t.Shards, t.Samples); return err }},
		{typeRemoved, false, func(raw []byte) (err error) { t.Removed, t.Purged, err = decodeRemoved(raw, t.Samples); return err }},
	} {
		if !s.required && t.object.dir.Find(s.kind, 0) == nil {
			continue
		}
		raw, err := get(s.kind)
		if err == nil {
			err = s.decode(raw)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (t *Tables) decodeHead(raw []byte) error {
	r := section.Reader{Src: raw}
	t.Generation, t.Parent = r.U64(), r.Str()
	copy(t.Digest[:], r.Take(len(t.Digest)))
	copy(t.Keys[:], r.Take(len(t.Keys)))
	if err := r.End(); err != nil {
		return err
	}
	if t.Generation == 0 || (t.Parent != "" && !names.IsTables(t.Parent)) || (t.Parent == "") != (t.Generation == 1) {
		return damage.Errorf("generation %d with parent %q", t.Generation, t.Parent)
	}
	return nil
}

func (t *Tables) decodeFields(raw []byte, names []string) error {
	cols, err := decodeColumns(raw, 4, len(names))
	if err != nil {
		return fmt.Errorf("section %s: %w", typeFields, err)
	}
	for i, name := range names {
		t.Fields = append(t.Fields, format.FieldTotal{Name: name, Samples: cols[0][i], Bytes: cols[1][i],
			Min: cols[2][i], Max: cols[3][i]})
		t.PayloadBytes += cols[1][i]
	}
	return nil
}

func (t *Tables) decodeParts(raw []byte) error {
	r := section.Reader{Src: raw}
	n := int(r.U32())
	if r.Err != nil || n > len(t.object.dir.Sections) {
		return damage.Errorf("%d parts in %d sections", n, len(t.object.dir.Sections))
	}
	cols, err := decodeColumns(r.Src, 6, n)
	if err != nil {
		return fmt.Errorf("section %s: %w", typeParts, err)
	}
	for i := range n {
		p := Part{Shards: cols[0][i], Rows: cols[1][i], Blocks: cols[2][i], Samples: cols[3][i], Bytes: cols[4][i],
			Decoded: cols[5][i]}
		p.FirstShard, p.FirstSample = t.Shards, t.Samples
		const limit = 1 << 56 // keeps sums of 2^8 and more parts, and products with small factors, within 64 bits
		if p.Shards > limit || p.Rows > limit || p.Blocks > p.Rows || p.Samples > limit || p.Bytes > limit ||
			p.Decoded > limit ||
			t.Shards > limit || t.Blocks > limit || t.Samples > limit || t.Bytes > limit || t.Decoded > limit {
			return damage.Errorf("part %d has impossible totals", i)
		}
		if p.Rows > PartRows && p.Shards > 1 {
			return damage.Errorf("part %d has %d rows of %d shards, more than %d", i, p.Rows, p.Shards, PartRows)
		}
		t.Shards, t.Blocks, t.Samples = t.Shards+p.Shards, t.Blocks+p.Blocks, t.Samples+p.Samples
		t.Bytes, t.Decoded = t.Bytes+p.Bytes, t.Decoded+p.Decoded
		t.Parts = append(t.Parts, p)
	}
	return nil
}

// decodeColumns reads k columns of n integers that fill src.
func decodeColumns(src []byte, k, n int) (cols [][]uint64, err error) {
	for range k {
		var v []uint64
		if v, src, err = section.DecodePlanes(src, n); err != nil {
			return nil, err
		}
		cols = append(cols, v)
	}
	if len(src) != 0 {
		return nil, damage.Errorf("%d bytes too many", len(src))
	}
	return cols, nil
}

func (t *Tables) load(s *section.Section) ([]byte, error) {
	stored := make([]byte, s.Stored) // contiguous has compared it with the object's size
	if err := t.object.read(stored, int64(s.Off)); err != nil {
		return nil, err
	}
	raw, err := s.Payload(stored)
	return raw, format.At(int64(s.Off), err)
}

// group reads consecutive sections of one part, of the given kinds, in a single range.
func (t *Tables) group(part int, kinds ...string) (func(kind string) (*section.Section, []byte, error), error) {
	var secs []*section.Section
	for _, k := range kinds {
		s := t.object.dir.Find(k, uint32(part))
		if s == nil {
			return nil, damage.Errorf("no section %s of part %d", k, part)
		}
		secs = append(secs, s)
	}
	begin, end := secs[0].Off, uint64(0)
	for _, s := range secs {
		begin, end = min(begin, s.Off), max(end, s.Off+uint64(s.Stored))
	}
	buf := make([]byte, end-begin) // contiguous has compared both with the object's size
	if err := t.object.read(buf, int64(begin)); err != nil {
		return nil, err
	}
	return func(kind string) (*section.Section, []byte, error) {
		s := t.object.dir.Find(kind, uint32(part))
		raw, err := s.Payload(buf[s.Off-begin:][:s.Stored])
		return s, raw, format.At(int64(s.Off), err)
	}, nil
}

// LoadShards reads what the tables have of a part's shards, except their rows.
func (t *Tables) LoadShards(part int) ([]ShardInfo, error) {
	kinds := []string{typeNames, typeObjSize, typeTailLen, typeShardSmp, typeShardBlk, typeShardRows, typeHashes,
		typeKeyRange}
	for _, o := range optional {
		if t.object.dir.Find(o.kind, uint32(part)) != nil {
			kinds = append(kinds, o.kind)
		}
	}
	get, err := t.group(part, kinds...)
	if err != nil {
		return nil, err
	}
	p := t.Parts[part]
	_, hashes, err := get(typeHashes)
	if err != nil {
		return nil, err
	}
	if uint64(len(hashes)) != p.Shards*uint64(len(format.Hash{})) || len(hashes)%len(format.Hash{}) != 0 {
		return nil, damage.Errorf("part %d has %d bytes of hashes for %d shards", part, len(hashes), p.Shards)
	}
	shards := make([]ShardInfo, p.Shards)
	if err := t.shardColumns(part, shards, get); err != nil {
		return nil, err
	}
	for _, o := range optional {
		if slices.Contains(kinds, o.kind) {
			_, raw, err := get(o.kind)
			if err == nil {
				err = o.decode(raw, shards)
			}
			if err != nil {
				return nil, err
			}
		}
	}
	_, raw, err := get(typeNames)
	if err != nil {
		return nil, err
	}
	names, err := section.DecodeStrings(raw, len(shards), int64(len(shards))*maxShardName)
	if err != nil {
		return nil, err
	}
	if _, raw, err = get(typeKeyRange); err != nil {
		return nil, err
	}
	keys, err := section.DecodeStrings(raw, 2*len(shards), 2*int64(len(shards))*format.MaxName)
	if err != nil {
		return nil, err
	}
	objects := uint64(0)
	for i := range shards {
		s := &shards[i]
		s.Name, s.FirstKey, s.LastKey = names[i], keys[2*i], keys[2*i+1]
		copy(s.Hash[:], hashes[i*len(s.Hash):])
		if err := CheckShardName(s.Name); err != nil {
			return nil, err
		}
		const limit = 1 << 56
		if s.Size > limit || s.Tail > limit ||
			(!s.Plain() && (s.Tail > s.Size || s.Foreign || s.Index.Sidecar != SidecarTag{})) {
			return nil, format.InShard(s.Name, damage.Errorf("object of %d bytes with an index of %d", s.Size, s.Tail))
		}
		if s.Foreign && s.Purged != (format.Hash{}) {
			return nil, format.InShard(s.Name, damage.Errorf("another tool's archive cannot be purged"))
		}
		objects += s.objects()
	}
	if objects != p.Bytes {
		return nil, damage.Errorf("shards of part %d add up to %d bytes, not %d", part, objects, p.Bytes)
	}
	return shards, nil
}

// shardColumns reads the lengths and the counts of a part's shards, and compares the sums with the
// sums of the part. The order of the columns decides which error damage to several of them gives.
func (t *Tables) shardColumns(part int, shards []ShardInfo,
	get func(kind string) (*section.Section, []byte, error)) error {
	const (
		anyLength = math.MaxUint64
		count     = 1 << 40 // sums over all shards that fit in memory stay inside 64 bits
	)
	var sum ShardInfo
	for _, c := range []struct {
		kind  string
		limit uint64
		set   func(s *ShardInfo, v uint64)
	}{
		{typeObjSize, anyLength, func(s *ShardInfo, v uint64) { s.Size = v }},
		{typeTailLen, anyLength, func(s *ShardInfo, v uint64) { s.Tail = v }},
		{typeShardSmp, count, func(s *ShardInfo, v uint64) { s.Samples = v; sum.Samples += v }},
		{typeShardBlk, count, func(s *ShardInfo, v uint64) { s.Blocks = v; sum.Blocks += v }},
		{typeShardRows, count, func(s *ShardInfo, v uint64) { s.Rows = v; sum.Rows += v }},
	} {
		s, raw, err := get(c.kind)
		if err != nil {
			return err
		}
		v, err := s.Column(raw, len(shards))
		if err != nil {
			return err
		}
		for i := range shards {
			if v[i] > c.limit {
				return damage.Errorf("shard %d of part %d has %d in section %s", i, part, v[i], c.kind)
			}
			c.set(&shards[i], v[i])
		}
	}
	if p := t.Parts[part]; sum.Samples != p.Samples || sum.Blocks != p.Blocks || sum.Rows != p.Rows {
		return damage.Errorf("shards of part %d add up to %d samples, %d blocks, %d rows", part, sum.Samples,
			sum.Blocks, sum.Rows)
	}
	return nil
}

// LoadRows reads the rows of all shards of a part, in order. shards is the result of LoadShards for
// the part; each shard's rows are compared with it.
func (t *Tables) LoadRows(part int, shards []ShardInfo) ([]format.Row, error) {
	get, err := t.group(part, typeStored, typeDecoded, typeSamples, typeCodec, typeCRC)
	if err != nil {
		return nil, err
	}
	n := t.Parts[part].Rows
	if s := t.object.dir.Find(typeCRC, uint32(part)); uint64(s.Raw) != 4*n {
		return nil, damage.Errorf("part %d has %d bytes of checksums for %d rows", part, s.Raw, n)
	}
	rows, err := decodeRows(int(n), get)
	if err != nil {
		return nil, err
	}
	decoded := uint64(0)
	rest := rows
	for _, s := range shards {
		total, err := checkRows(rest[:s.Rows], s.Layout)
		if err == nil {
			err = checkCodecs(rest[:s.Rows], s.Plain())
		}
		if err == nil && (total.Samples != s.Samples || total.Blocks != s.Blocks ||
			(!s.Plain() && total.Stored+uint64(len(codec.EndFrame))+s.Tail != s.Size) ||
			(s.Plain() && !s.Foreign && total.Stored+tarblock.EndLen != s.Size) ||
			(s.Foreign && total.Stored+tarblock.EndLen > s.Size)) {
			err = damage.Errorf("rows add up to %d bytes, %d blocks, %d samples; the tables say an object of %d, %d, %d",
				total.Stored, total.Blocks, total.Samples, s.Size, s.Blocks, s.Samples)
		}
		if err != nil {
			return nil, format.InShard(s.Name, err)
		}
		decoded += total.Decoded
		rest = rest[s.Rows:]
	}
	if decoded != t.Parts[part].Decoded {
		return nil, damage.Errorf("rows of part %d decode to %d bytes, not %d", part, decoded, t.Parts[part].Decoded)
	}
	return rows, nil
}

// LoadSamples reads the samples of each row of a part and compares them with the decoded bytes of
// its block. It is all that the order needs: two or three bytes a block.
func (t *Tables) LoadSamples(part int) ([]uint64, error) {
	p := t.Parts[part]
	get, err := t.group(part, typeDecoded, typeSamples)
	if err != nil {
		return nil, err
	}
	// The section has at least a byte a row: if all samples are 0 there is no row.
	if s := t.object.dir.Find(typeSamples, uint32(part)); p.Rows > uint64(s.Raw) {
		return nil, damage.Errorf("part %d has %d rows in a section of %d bytes", part, p.Rows, s.Raw)
	}
	columns := map[string][]uint64{}
	for _, kind := range []string{typeDecoded, typeSamples} {
		s, raw, err := get(kind)
		if err == nil {
			columns[kind], err = s.Column(raw, int(p.Rows))
		}
		if err != nil {
			return nil, err
		}
	}
	rows, decoded := columns[typeSamples], columns[typeDecoded]
	layoutAt, err := t.layoutAt(part)
	if err != nil {
		return nil, err
	}
	var blocks, samples, bytes uint64
	for i := 0; i < len(rows); {
		first, room := i, uint64(0)
		for ok := true; ok; ok = i < len(rows) && rows[i] == 0 {
			if decoded[i] > format.MaxFrame {
				return nil, damage.Errorf("row %d of part %d decodes to %d bytes", i, part, decoded[i])
			}
			room += decoded[i]
			i++
		}
		n := rows[first]
		if n == 0 || n > math.MaxUint32 || leastBytes(layoutAt(first), n) > room {
			return nil, damage.Errorf("row %d of part %d: %d samples in %d bytes", first, part, n, room)
		}
		blocks, samples, bytes = blocks+1, samples+n, bytes+room
	}
	if samples != p.Samples || blocks != p.Blocks || bytes != p.Decoded {
		return nil, damage.Errorf("rows of part %d have %d samples in %d blocks of %d bytes, not %d in %d of %d",
			part, samples, blocks, bytes, p.Samples, p.Blocks, p.Decoded)
	}
	return rows, nil
}

// Load reads all parts and compares the digest with the digest of their shards.
func (t *Tables) Load() (*Manifest, error) {
	m := &Manifest{Totals: t.Totals}
	for part := range t.Parts {
		infos, err := t.LoadShards(part)
		if err != nil {
			return nil, err
		}
		rows, err := t.LoadRows(part, infos)
		if err != nil {
			return nil, err
		}
		for _, s := range infos {
			m.Shards = append(m.Shards, ShardEntry{ShardInfo: s, Rows: rows[:s.Rows:s.Rows]})
			rows = rows[s.Rows:]
		}
	}
	if d := m.digest(); d != t.Digest {
		return nil, damage.Errorf("the shards' digest is %v, section %s says %v", d, typeHead, t.Digest)
	}
	return m, t.checkGroups(m.Shards)
}

// Summary returns the manifest.json that publishes these tables under that name.
func (t *Tables) Summary(name string) *Summary {
	fields := t.Fields
	if fields == nil {
		fields = []format.FieldTotal{}
	}
	return &Summary{
		Format: ManifestFormat, Tables: name, Digest: format.DigestString(t.Digest), Generation: t.Generation,
		Samples: t.Samples,
		Shards:  t.Shards, Blocks: t.Blocks, Bytes: t.Bytes, PayloadBytes: t.PayloadBytes,
		Removed: uint64(len(t.Removed)), Fields: fields,
	}
}

// layoutAt returns a function that returns the layout of a row of a part, which is asked about rows
// in ascending order.
func (t *Tables) layoutAt(part int) (func(row int) *stacked.Layout, error) {
	if t.object.dir.Find(section.KindLayout, uint32(part)) == nil {
		return func(int) *stacked.Layout { return nil }, nil
	}
	shards, err := t.LoadShards(part)
	shard, end := -1, uint64(0)
	return func(row int) *stacked.Layout {
		for uint64(row) >= end && shard+1 < len(shards) {
			shard++
			end += shards[shard].Rows
		}
		return shards[shard].Layout
	}, err
}

// Check compares the summary with the tables that it names: with the tables of another generation
// in their place, samples that were removed would come back. The error wraps format.ErrMismatch.
func (s *Summary) Check(t *Tables) error {
	digest := format.DigestString(t.Digest)
	if s.Digest == digest && s.Generation == t.Generation && s.Removed == uint64(len(t.Removed)) {
		return nil
	}
	return fmt.Errorf("%w: %s is of generation %d with %d samples removed, digest %s; %s is of generation %d with %d removed, digest %s: "+
		"one of them was edited, or restored from a copy of another generation: restore both objects from one copy",
		format.ErrMismatch, format.ManifestName, s.Generation, s.Removed, s.Digest, s.Tables, t.Generation,
		len(t.Removed), digest)
}
