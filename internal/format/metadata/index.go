// Package metadata encodes and decodes what describes samples. Each such file is a directory of
// sections (SPEC 4.1), each with its own checksum:
//
//   - the index of a shard, at its end or in a sidecar: an [IndexBuilder] collects it, [AppendTail]
//     writes it, [ParseTail] and [Tail.DecodeCold] read it (SPEC 4 and 5),
//   - the tables of a generation: [EncodeTables] writes a [Manifest], [OpenTables] reads it in parts,
//     and a [Summary] is the manifest.json that names them (SPEC 6).
//
// A [BlockChecker] compares a decoded block with the index of its shard, and a [ShardHasher]
// computes the identity of a shard (SPEC 7).
package metadata

import (
	"encoding/binary"
	"fmt"
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

// Schema names what the samples of a shard or a data set have.
type Schema struct {
	// Fields are the field names in ascending byte order. The number of a field is its index here.
	Fields []string
	// Shapes are the sets of fields that samples have, each ascending, in order of first
	// appearance.
	Shapes [][]uint32
	// Attributes are in ascending order of names.
	Attributes []format.Attribute
}

// ShardIndex is the whole index of a shard: IndexBuilder collects it and DecodeCold returns it.
type ShardIndex struct {
	Schema
	// Rows has a row a frame, in file order.
	Rows []format.Row
	// Meta describes the origin of the shard (SPEC 4.6).
	Meta format.Metadata
	// Layout describes the rows of a stacked shard; it is nil in an ordinary one.
	Layout *stacked.Layout
	// Keys of all samples in storage order.
	Keys KeyColumn
	// Sizes holds, for each field, the payload sizes of the samples that have it.
	Sizes []SizeColumn
	// ShapeOf is the number of each sample's shape; nil when there is one shape.
	ShapeOf []uint64
	// Gaps is the number of bytes between each payload and the end of the member before, in member
	// order; nil if all are 512. Extended headers make it larger. In a foreign archive it is the
	// offset of each payload in its block, in the order of samples and their fields, and not nil if
	// there are samples.
	Gaps []uint64
	// Foreign: another tool wrote the archive. End is then the length of what follows its last
	// block.
	Foreign bool
	End     uint64
	// Attrs has a column an attribute.
	Attrs []AttrColumn
	// Skipped lists samples that were left out when the shard was written, one line of JSON each
	// (SPEC 6.4); mostly empty.
	Skipped []byte
}

// Shape returns the field numbers of sample i, ascending.
func (ix *ShardIndex) Shape(i int) []uint32 {
	if ix.ShapeOf == nil {
		return ix.Shapes[0]
	}
	return ix.Shapes[ix.ShapeOf[i]]
}

// IndexBuilder collects a shard's index while its blocks are written. Samples and rows are added in
// storage order. The zero value is ready. It is for one goroutine.
type IndexBuilder struct {
	fields  []string // in order of first appearance; sorted by Finish
	fieldID map[string]uint32
	sizes   [][]uint64
	shapes  [][]uint32
	shapeID map[string]uint64
	shapeOf []uint64
	gaps    []uint64
	gapped  bool
	keys    []string
	rows    []format.Row
	attrs   attrBuilder
	stacked *stacked.Layout  // of all samples, which AddRows added
	ranges  samplekey.Ranges // the keys, while AddRow added no other
	samples int

	shapeKey []byte
}

// AddSample adds a sample whose members have the headers of AppendHeader. Its fields ascend by
// name. attrs may be nil. After an error the sample is not in the index.
func (b *IndexBuilder) AddSample(key string, fields []format.FieldSize, attrs []format.AttrValue) error {
	return b.add(key, fields, nil, attrs)
}

// AddForeign adds a sample of another tool's archive. Its fields ascend by name; places are the
// offsets of their payloads in the block. The samples of one shard are either all foreign or none.
func (b *IndexBuilder) AddForeign(key string, fields []format.FieldSize, places []uint64) error {
	return b.add(key, fields, places, nil)
}

func (b *IndexBuilder) add(key string, fields []format.FieldSize, places []uint64, attrs []format.AttrValue) error {
	if err := b.check(key, fields, attrs); err != nil {
		return damage.InSample(key, err)
	}
	if b.fieldID == nil {
		b.fieldID, b.shapeID = map[string]uint32{}, map[string]uint64{}
	}
	b.shapeKey = b.shapeKey[:0]
	for i, f := range fields {
		id, ok := b.fieldID[f.Name]
		if !ok {
			id = uint32(len(b.fields))
			b.fieldID[f.Name] = id
			b.fields = append(b.fields, f.Name)
			b.sizes = append(b.sizes, nil)
		}
		b.sizes[id] = append(b.sizes[id], uint64(f.Size))
		b.shapeKey = binary.LittleEndian.AppendUint32(b.shapeKey, id)
		gap := uint64(tarblock.FieldHeaderLen(key, f.Name))
		if places != nil {
			gap = places[i]
		}
		b.gaps = append(b.gaps, gap)
		b.gapped = b.gapped || gap != tarblock.RecordLen || places != nil
	}
	id, ok := b.shapeID[string(b.shapeKey)]
	if !ok {
		id = uint64(len(b.shapes))
		shape := make([]uint32, len(fields))
		for i := range shape {
			shape[i] = binary.LittleEndian.Uint32(b.shapeKey[4*i:])
		}
		b.shapes = append(b.shapes, shape)
		b.shapeID[string(b.shapeKey)] = id
	}
	b.shapeOf = append(b.shapeOf, id)
	b.attrs.add(b.samples, attrs)
	b.keys = append(b.keys, key)
	b.samples++
	return nil
}

func (b *IndexBuilder) check(key string, fields []format.FieldSize, attrs []format.AttrValue) error {
	if len(fields) == 0 {
		return fmt.Errorf("%w: no fields", format.ErrName)
	}
	for i, f := range fields {
		switch {
		case i > 0 && f.Name == fields[i-1].Name:
			return fmt.Errorf("%w field %q", format.ErrDuplicate, f.Name)
		case i > 0 && f.Name < fields[i-1].Name:
			return fmt.Errorf("field %q after %q", f.Name, fields[i-1].Name) // a bug of the caller
		case len(key)+1+len(f.Name) > format.MaxName:
			return fmt.Errorf("%w: key and field %q are longer than %d bytes", format.ErrName, f.Name, format.MaxName)
		case f.Size < 0:
			return fmt.Errorf("field %q of %d bytes", f.Name, f.Size) // a bug of the caller
		}
	}
	return b.attrs.check(attrs)
}

// AddRow adds a frame.
func (b *IndexBuilder) AddRow(r format.Row) { b.rows = append(b.rows, r) }

// Finish returns the index. The builder cannot be used afterwards.
func (b *IndexBuilder) Finish(meta format.Metadata) *ShardIndex {
	// Field numbers follow the names' order, whichever sample came first.
	order := make([]uint32, len(b.fields))
	for i := range order {
		order[i] = uint32(i)
	}
	slices.SortFunc(order, func(x, y uint32) int { return strings.Compare(b.fields[x], b.fields[y]) })
	ix := &ShardIndex{Rows: b.rows, Meta: meta, Keys: StoredKeys(b.keys)}
	if b.stacked != nil {
		b.finishRows(ix)
		return ix
	}
	renumber := make([]uint32, len(order))
	for to, from := range order {
		renumber[from] = uint32(to)
		ix.Fields = append(ix.Fields, b.fields[from])
		ix.Sizes = append(ix.Sizes, StoredSizes(b.sizes[from]))
	}
	for _, shape := range b.shapes {
		for i := range shape {
			shape[i] = renumber[shape[i]]
		}
		ix.Shapes = append(ix.Shapes, shape)
	}
	if len(ix.Shapes) > 1 {
		ix.ShapeOf = b.shapeOf
	}
	if b.gapped {
		ix.Gaps = b.gaps
	}
	ix.Attributes, ix.Attrs = b.attrs.finish(b.samples)
	return ix
}

// hotSections and coldSections are the sections of the index, in the order of the file.
func (ix *ShardIndex) hotSections() []section.Raw {
	s := []section.Raw{{Kind: typeSchema, Critical: true, Raw: ix.Schema.append(nil)}}
	if ix.Layout != nil {
		s = append(s, section.Raw{Kind: section.KindLayout, Critical: true, Raw: appendLayout(nil, ix.Layout)})
	}
	if rs := ix.Keys.Ranges(); rs != nil {
		s = append(s, section.Raw{Kind: section.KindKeyNumbers, Critical: true, Raw: appendRanges(nil, rs)})
	}
	s = append(s, rowSections(0, ix.Rows)...)
	return append(s, section.Raw{Kind: typeMeta, Raw: section.AppendMetadata(nil, ix.Meta)})
}

func (ix *ShardIndex) coldSections() []section.Raw {
	var s []section.Raw
	for f := range ix.Sizes {
		if ix.Layout == nil {
			s = append(s, section.Column(typeSize, uint32(f), true, ix.Sizes[f].stored))
		}
	}
	if ix.ShapeOf != nil {
		s = append(s, section.Column(typeShape, 0, true, ix.ShapeOf))
	}
	if ix.Gaps != nil {
		s = append(s, section.Column(typeGap, 0, true, ix.Gaps))
	}
	if ix.Keys.Ranges() == nil {
		keys := section.Raw{Kind: typeKeys, Critical: true}
		keys.Raw = section.AppendStrings(nil, ix.Keys.stored, &keys.Cuts)
		s = append(s, keys)
	}
	for i := range ix.Attrs {
		s = append(s, ix.Attrs[i].sections(uint32(i))...)
	}
	if len(ix.Skipped) > 0 {
		s = append(s, section.Raw{Kind: typeSkipped, Raw: ix.Skipped})
	}
	return s
}

// rowSections are the columns of rows, in shard indexes and in tables.
func rowSections(part uint32, rows []format.Row) []section.Raw {
	stored, decoded := make([]uint64, len(rows)), make([]uint64, len(rows))
	samples, codec := make([]uint64, len(rows)), make([]uint64, len(rows))
	crc := make([]byte, 0, 4*len(rows))
	for i, r := range rows {
		stored[i], decoded[i], samples[i], codec[i] = uint64(r.Stored), uint64(r.Decoded), uint64(r.Samples),
			uint64(r.Codec)
		crc = binary.LittleEndian.AppendUint32(crc, r.CRC)
	}
	return []section.Raw{
		section.Column(typeStored, part, true, stored),
		section.Column(typeDecoded, part, true, decoded),
		section.Column(typeSamples, part, true, samples),
		section.Column(typeCodec, part, true, codec),
		{Kind: typeCRC, Part: part, Critical: true, Raw: crc},
	}
}

// decodeRows rebuilds rows from their columns. get returns a section and its raw bytes.
func decodeRows(n int, get func(kind string) (*section.Section, []byte, error)) ([]format.Row, error) {
	// The checksums are first: n is compared with their length before anything is allocated.
	_, crc, err := get(typeCRC)
	if err != nil {
		return nil, err
	}
	if len(crc) != 4*n {
		return nil, damage.Errorf("section %s has %d bytes for %d rows", typeCRC, len(crc), n)
	}
	rows := make([]format.Row, n)
	// none of our frames grows more: raw blocks add 3 bytes in 128 KiB
	const maxStored = format.MaxFrame + format.MaxFrame/8
	for _, c := range []struct {
		kind  string
		limit uint64
		set   func(r *format.Row, v uint64)
	}{
		{typeStored, maxStored, func(r *format.Row, v uint64) { r.Stored = uint32(v) }},
		{typeDecoded, format.MaxFrame, func(r *format.Row, v uint64) { r.Decoded = uint32(v) }},
		{typeSamples, math.MaxUint32, func(r *format.Row, v uint64) { r.Samples = uint32(v) }},
		{typeCodec, math.MaxUint8, func(r *format.Row, v uint64) { r.Codec = format.Codec(v) }},
	} {
		s, raw, err := get(c.kind)
		if err != nil {
			return nil, err
		}
		v, err := s.Column(raw, n)
		if err != nil {
			return nil, err
		}
		for i, x := range v {
			if x > c.limit {
				return nil, damage.Errorf("row %d: %d in section %s, limit %d", i, x, c.kind, c.limit)
			}
			c.set(&rows[i], x)
		}
	}
	for i := range rows {
		rows[i].CRC = binary.LittleEndian.Uint32(crc[4*i:])
	}
	return rows, nil
}

// rowsTotal is the sum over the rows of one shard.
type rowsTotal struct {
	Blocks, Samples, Stored, Decoded uint64
}

// checkRows checks that rows can belong to one shard, and adds them up: their codecs are known,
// their lengths possible, their samples no more than 512-byte headers fit, or rows of the layout,
// and the first row of a block precedes its continuations. A block of a stacked shard has one row.
func checkRows(rows []format.Row, layout *stacked.Layout) (t rowsTotal, err error) {
	block := uint64(0) // decoded bytes of the current block
	samples := uint64(0)
	for i, r := range rows {
		if r.Codec > format.CodecRaw {
			return t, fmt.Errorf("%w: codec %d of row %d is unknown: use a newer shardtool", format.ErrVersion, r.Codec,
				i)
		}
		if r.Samples > 0 {
			if leastBytes(layout, samples) > block {
				return t, damage.Errorf("row %d: %d samples in %d bytes", i-1, samples, block)
			}
			block, samples = 0, uint64(r.Samples)
			t.Blocks++
		} else if i == 0 || layout != nil {
			return t, damage.Errorf("row %d continues a block", i)
		}
		switch {
		case r.Stored == 0 || r.Decoded == 0,
			r.Codec == format.CodecBytes && r.Stored != r.Decoded,
			r.Codec == format.CodecRaw && r.Stored <= r.Decoded,
			r.Codec == format.CodecZstd && uint64(r.Decoded) > codec.MaxExpand*uint64(r.Stored):
			return t, damage.Errorf("row %d: %d stored bytes for %d decoded ones, codec %v", i, r.Stored, r.Decoded,
				r.Codec)
		}
		block += uint64(r.Decoded)
		t.Samples += uint64(r.Samples)
		t.Stored += uint64(r.Stored)
		t.Decoded += uint64(r.Decoded)
	}
	if leastBytes(layout, samples) > block {
		return t, damage.Errorf("row %d: %d samples in %d bytes", len(rows)-1, samples, block)
	}
	if layout != nil && t.Samples > stacked.MaxSamples {
		return t, damage.Errorf("%d samples in a stacked shard, at most %d", t.Samples, stacked.MaxSamples)
	}
	return t, nil
}

// checkCodecs checks that the rows' codecs match a plain or a compressed shard.
func checkCodecs(rows []format.Row, plain bool) error {
	for i, r := range rows {
		if (r.Codec == format.CodecBytes) != plain {
			return damage.Errorf("row %d has codec %v", i, r.Codec)
		}
	}
	return nil
}

func (s *Schema) append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(s.Fields)))
	for _, f := range s.Fields {
		dst = section.AppendString(dst, f)
	}
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(s.Shapes)))
	for _, shape := range s.Shapes {
		dst = binary.LittleEndian.AppendUint32(dst, uint32(len(shape)))
		for _, f := range shape {
			dst = binary.LittleEndian.AppendUint32(dst, f)
		}
	}
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(s.Attributes)))
	for _, a := range s.Attributes {
		dst = append(section.AppendString(dst, a.Name), byte(a.Kind))
	}
	return dst
}

func decodeSchema(src []byte) (Schema, error) {
	r := section.Reader{Src: src}
	var s Schema
	for i := range r.U32() {
		f := r.Str()
		if r.Err != nil {
			break
		}
		if err := format.CheckField(f); err != nil {
			return s, fmt.Errorf("%w: %w", format.ErrCorrupt, err)
		}
		if i > 0 && f <= s.Fields[i-1] {
			return s, damage.Errorf("fields are not ascending: %q after %q", f, s.Fields[i-1])
		}
		s.Fields = append(s.Fields, f)
	}
	for range r.U32() {
		n := r.U32()
		if r.Err != nil {
			break
		}
		if n == 0 || uint64(n) > uint64(len(s.Fields)) {
			return s, damage.Errorf("shape of %d fields", n)
		}
		var shape []uint32
		for i := range int(n) {
			f := r.U32()
			if int(f) >= len(s.Fields) || (i > 0 && f <= shape[i-1]) {
				return s, damage.Errorf("shape names field %d of %d", f, len(s.Fields))
			}
			shape = append(shape, f)
		}
		s.Shapes = append(s.Shapes, shape)
	}
	for i := range r.U32() {
		a := format.Attribute{Name: r.Str(), Kind: format.AttrKind(r.U8())}
		if r.Err != nil {
			break
		}
		if a.Kind > format.AttrNumber {
			return s, fmt.Errorf("%w: attribute %q of kind %d: use a newer shardtool", format.ErrVersion, a.Name,
				a.Kind)
		}
		if i > 0 && a.Name <= s.Attributes[i-1].Name {
			return s, damage.Errorf("attributes are not ascending: %q after %q", a.Name, s.Attributes[i-1].Name)
		}
		s.Attributes = append(s.Attributes, a)
	}
	return s, r.End()
}
