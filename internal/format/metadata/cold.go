package metadata

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"slices"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/codec"
	"github.com/shardtool/shardtool/internal/format/damage"
	"github.com/shardtool/shardtool/internal/format/section"
	"github.com/shardtool/shardtool/internal/format/tarblock"
)

// Cold is the range of the COLD frame, with its header, in the object whose end ParseTail read.
func (t *Tail) Cold() (off, n int64) {
	return int64(t.DataSize - t.IndexBase), int64(t.HotOff-t.DataSize) - skipHeader
}

// DecodeCold decodes the rest of the index from the bytes that Cold names. It is for one goroutine.
// Columns may share memory; the caller must not change them.
func (t *Tail) DecodeCold(cold []byte) (*ShardIndex, error) {
	off, _ := t.Cold()
	d, err := t.decoder(cold)
	var ix *ShardIndex
	if err == nil {
		ix, err = d.decode()
	}
	return ix, format.At(off, err)
}

// DecodeColumns is DecodeCold for attributes alone: their columns in the order of names. The column
// of an attribute that the shard does not have has no name.
func (t *Tail) DecodeColumns(cold []byte, names []string) ([]AttrColumn, error) {
	off, _ := t.Cold()
	d, err := t.decoder(cold)
	columns := make([]AttrColumn, len(names))
	for i, a := range t.Attributes {
		if k := slices.Index(names, a.Name); k >= 0 && err == nil {
			columns[k], err = d.attribute(i)
		}
	}
	return columns, format.At(off, err)
}

// decoder checks the header of COLD and notes its hash.
func (t *Tail) decoder(cold []byte) (*coldDecoder, error) {
	_, n := t.Cold()
	if int64(len(cold)) != n ||
		!bytes.Equal(cold[:skipHeader], section.AppendSkippable(nil, skippable, cold[skipHeader:])[:skipHeader]) {
		return nil, damage.Errorf("header of the cold index")
	}
	t.Index.Cold = sha256.Sum256(cold)
	return &coldDecoder{tail: t, cold: cold, samples: int(t.Samples)}, nil
}

type coldDecoder struct {
	tail    *Tail
	cold    []byte
	samples int
	zero    []uint64 // shared by all columns of zeros, whose length no stored bytes bound
}

func (d *coldDecoder) decode() (*ShardIndex, error) {
	// Sections that nothing below reads are compared too, so that a checksum guards every byte.
	for i := range d.tail.dir.Sections {
		if s := &d.tail.dir.Sections[i]; s.Off < d.tail.HotOff && codec.Checksum(d.stored(s)) != s.Crc {
			return nil, damage.Errorf("checksum mismatch in section %s, part %d", s.Kind, s.Part)
		}
	}
	ix := &ShardIndex{Schema: d.tail.Schema, Rows: d.tail.Rows, Meta: d.tail.Meta, Foreign: d.tail.Foreign,
		Layout: d.tail.Layout}
	if err := d.keys(ix); err != nil {
		return nil, fmt.Errorf("section %s: %w", typeKeys, err)
	}
	err := d.members(ix)
	if err != nil {
		return nil, err
	}
	for i := range d.tail.Attributes {
		c, err := d.attribute(i)
		if err != nil {
			return nil, err
		}
		ix.Attrs = append(ix.Attrs, c)
	}
	_, ix.Skipped, err = d.get(typeSkipped, 0)
	return ix, err
}

// members reads the sizes of the samples' fields, and where they are.
func (d *coldDecoder) members(ix *ShardIndex) error {
	if d.tail.Layout != nil {
		ix.rowSizes(d.samples)
		return nil
	}
	perField, err := d.shapes(ix)
	if err != nil {
		return err
	}
	members := 0
	for f, n := range perField {
		sizes, err := d.column(typeSize, uint32(f), n)
		if err != nil {
			return err
		}
		if sizes == nil {
			return damage.Errorf("no section %s for field %q", typeSize, d.tail.Fields[f])
		}
		ix.Sizes = append(ix.Sizes, StoredSizes(sizes))
		members += n
	}
	if ix.Gaps, err = d.column(typeGap, 0, members); err != nil {
		return err
	}
	return d.layout(ix)
}

// attribute reads the column of the i-th attribute.
func (d *coldDecoder) attribute(i int) (c AttrColumn, err error) {
	a := d.tail.Attributes[i]
	bits, err := d.column(typeAttr, uint32(i), d.samples)
	if err == nil && bits == nil {
		err = damage.Errorf("no section %s", typeAttr)
	}
	if err == nil {
		c, err = decodeAttr(a, d.samples, bits,
			func(kind string) (*section.Section, []byte, error) { return d.get(kind, uint32(i)) })
	}
	if err != nil {
		return c, fmt.Errorf("attribute %q: %w", a.Name, err)
	}
	return c, nil
}

func (d *coldDecoder) stored(s *section.Section) []byte {
	return d.cold[s.Off-d.tail.DataSize:][:s.Stored]
}

// get returns a section and its raw bytes, or nil if COLD has none of that name.
func (d *coldDecoder) get(kind string, part uint32) (*section.Section, []byte, error) {
	s := d.tail.dir.Find(kind, part)
	if s == nil || s.Off >= d.tail.HotOff {
		return nil, nil, nil
	}
	raw, err := s.Payload(d.stored(s))
	return s, raw, err
}

// column reads a section of n integers; nil if there is none.
func (d *coldDecoder) column(kind string, part uint32, n int) ([]uint64, error) {
	s, raw, err := d.get(kind, part)
	if s == nil || err != nil {
		return nil, err
	}
	if s.Encoding == section.EncodingPlanes && len(raw) == 1 && raw[0] == 0 {
		if len(d.zero) < n || d.zero == nil {
			d.zero = make([]uint64, n)
		}
		return d.zero[:n:n], nil
	}
	return s.Column(raw, n)
}

func (d *coldDecoder) keys(ix *ShardIndex) error {
	s, raw, err := d.get(typeKeys, 0)
	if err != nil {
		return err
	}
	if (s == nil) != (d.tail.Numbered != nil) {
		return damage.Errorf("%v, and section %s: %v", s != nil, section.KindKeyNumbers, d.tail.Numbered != nil)
	}
	if s == nil {
		ix.Keys = NumberedKeys(d.tail.Numbered)
		return nil
	}
	// Every key is in a tar header or a row, so the blocks bound them.
	keys, err := section.DecodeStrings(raw, d.samples, int64(d.tail.Total.Decoded))
	if err != nil {
		return err
	}
	for _, k := range keys {
		if err := format.CheckKey(k); err != nil {
			return fmt.Errorf("%w: %w", format.ErrCorrupt, err)
		}
	}
	ix.Keys = StoredKeys(keys)
	return nil
}

// shapes reads the samples' shapes and counts the samples that have each field.
func (d *coldDecoder) shapes(ix *ShardIndex) (perField []int, err error) {
	if ix.ShapeOf, err = d.column(typeShape, 0, d.samples); err != nil {
		return nil, err
	}
	if ix.ShapeOf == nil && len(d.tail.Shapes) > 1 {
		return nil, damage.Errorf("no section %s for %d shapes", typeShape, len(d.tail.Shapes))
	}
	members := uint64(0)
	perField = make([]int, len(d.tail.Fields))
	for i := range d.samples {
		if ix.ShapeOf != nil && ix.ShapeOf[i] >= uint64(len(d.tail.Shapes)) {
			return nil, damage.Errorf("sample %d has shape %d of %d", i, ix.ShapeOf[i], len(d.tail.Shapes))
		}
		shape := ix.Shape(i)
		if members += uint64(len(shape)); members*tarblock.RecordLen > d.tail.Total.Decoded {
			return nil, damage.Errorf("more than %d members in %d bytes", members, d.tail.Total.Decoded)
		}
		for _, f := range shape {
			perField[f]++
		}
	}
	return perField, nil
}

// layout compares the members of each block with its rows: an offset that is computed from sizes is
// one that exists. In a foreign archive each payload lies inside its block.
func (d *coldDecoder) layout(ix *ShardIndex) error {
	if d.tail.Foreign {
		if ix.End = d.tail.DataSize - d.tail.DataLen; ix.Gaps == nil && d.samples > 0 {
			return damage.Errorf("no section %s in the index of a foreign archive", typeGap)
		}
	}
	at := make([]int, len(ix.Fields))
	sample, member := 0, 0
	for row := 0; row < len(ix.Rows); {
		first, end := row, sample+int(ix.Rows[row].Samples)
		var room uint64
		room, row = blockAt(ix.Rows, row)
		for ; sample < end; sample++ {
			for _, f := range ix.Shape(sample) {
				size, gap := ix.Sizes[f].At(at[f]), uint64(tarblock.RecordLen)
				if ix.Gaps != nil {
					gap = ix.Gaps[member]
				}
				at[f]++
				member++
				padded := size + uint64(tarblock.Padding(int64(size)))
				inside := gap <= room && size <= room-gap && padded <= room-gap
				switch {
				case d.tail.Foreign && (gap < tarblock.RecordLen || !inside):
					return damage.Errorf("row %d: field %q of sample %d, %d bytes at %d, lies outside its block", first,
						ix.Fields[f], sample, size, gap)
				case d.tail.Foreign:
				case gap != uint64(tarblock.FieldHeaderLen(ix.Keys.At(sample), ix.Fields[f])):
					return damage.Errorf("sample %d: %d bytes before a payload of field %q", sample, gap, ix.Fields[f])
				case !inside:
					return damage.Errorf("row %d: sample %d ends beyond its block", first, sample)
				default:
					room -= gap + padded
				}
			}
		}
		if room != 0 && !d.tail.Foreign {
			return damage.Errorf("row %d: %d bytes after the block's last sample", first, room)
		}
	}
	return nil
}

// blockAt returns the decoded bytes of the block that begins at a row, and the row after it.
func blockAt(rows []format.Row, row int) (decoded uint64, next int) {
	decoded = uint64(rows[row].Decoded)
	for next = row + 1; next < len(rows) && rows[next].Samples == 0; next++ {
		decoded += uint64(rows[next].Decoded)
	}
	return decoded, next
}
