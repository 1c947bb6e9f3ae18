package metadata

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/damage"
	"github.com/shardtool/shardtool/internal/format/section"
)

// AttrColumn holds an attribute's values for all samples of a shard.
type AttrColumn struct {
	format.Attribute
	bits   []uint64 // label number, zigzag integer or float bits; 0 where absent
	labels []string // ascending
	absent []byte   // bit i mod 8 of byte i/8: sample i has no value; nil when all have one
}

// At returns the value of sample i, and whether it has one.
func (c *AttrColumn) At(i int) (format.AttrValue, bool) {
	v := format.AttrValue{Attribute: c.Attribute}
	if c.absent != nil && c.absent[i/8]>>(i%8)&1 != 0 {
		return v, false
	}
	switch x := c.bits[i]; c.Kind {
	case format.AttrLabel:
		v.Label = c.labels[x]
	case format.AttrInteger:
		v.Integer = int64(x>>1) ^ -int64(x&1)
	default:
		v.Number = math.Float64frombits(x)
	}
	return v, true
}

// Value returns a value as an int64, a float64 or a string.
func Value(v format.AttrValue) any {
	switch v.Kind {
	case format.AttrInteger:
		return v.Integer
	case format.AttrNumber:
		return v.Number
	}
	return v.Label
}

// Len returns the number of samples.
func (c *AttrColumn) Len() int { return len(c.bits) }

// Raw returns the values as they are stored, for programs that go through many: the number of a
// label in Labels, a zigzag-encoded integer, or the bits of a float64. absent has a bit set for
// each sample without a value, bit i mod 8 of byte i/8; it is nil if all have one. The caller must
// not change either.
func (c *AttrColumn) Raw() (values []uint64, absent []byte) { return c.bits, c.absent }

// Labels returns the distinct values of a label attribute, ascending. The caller must not change
// them.
func (c *AttrColumn) Labels() []string { return c.labels }

// attrBuilder collects columns of attributes, each of which may begin at any sample.
type attrBuilder struct {
	id   map[string]int
	cols []attrColumnBuilder
}

type attrColumnBuilder struct {
	format.Attribute
	bits    []uint64
	present []bool
	labelID map[string]uint64
	labels  []string
}

// check reports whether add can take the values of a sample.
func (b *attrBuilder) check(attrs []format.AttrValue) error {
	for i, v := range attrs {
		if v.Kind > format.AttrNumber {
			return fmt.Errorf("attribute %q of kind %d", v.Name, uint8(v.Kind)) // a bug of the caller
		}
		if id, ok := b.id[v.Name]; ok && b.cols[id].Kind != v.Kind {
			return fmt.Errorf("%w: attribute %q is a %v here and a %v in earlier samples", format.ErrMismatch, v.Name,
				v.Kind, b.cols[id].Kind)
		}
		for _, o := range attrs[:i] {
			if o.Name == v.Name {
				return fmt.Errorf("%w attribute %q", format.ErrDuplicate, v.Name)
			}
		}
	}
	return nil
}

// add takes the values of sample i, which check has accepted.
func (b *attrBuilder) add(i int, attrs []format.AttrValue) {
	for _, v := range attrs {
		id, ok := b.id[v.Name]
		if !ok {
			if b.id == nil {
				b.id = map[string]int{}
			}
			id = len(b.cols)
			b.id[v.Name] = id
			b.cols = append(b.cols, attrColumnBuilder{Attribute: v.Attribute})
		}
		c := &b.cols[id]
		c.fill(i)
		c.bits = append(c.bits, c.encode(v))
		c.present = append(c.present, true)
	}
}

// fill marks the samples before n as having no value.
func (c *attrColumnBuilder) fill(n int) {
	for len(c.bits) < n {
		c.bits = append(c.bits, 0)
		c.present = append(c.present, false)
	}
}

func (c *attrColumnBuilder) encode(v format.AttrValue) uint64 {
	switch v.Kind {
	case format.AttrInteger:
		return uint64(v.Integer<<1) ^ uint64(v.Integer>>63)
	case format.AttrNumber:
		return math.Float64bits(v.Number)
	}
	id, ok := c.labelID[v.Label]
	if !ok {
		if c.labelID == nil {
			c.labelID = map[string]uint64{}
		}
		id = uint64(len(c.labels))
		c.labelID[v.Label] = id
		c.labels = append(c.labels, v.Label)
	}
	return id
}

// finish sorts attributes and labels, so that the bytes depend on the set and not on its order.
func (b *attrBuilder) finish(samples int) (attrs []format.Attribute, cols []AttrColumn) {
	slices.SortFunc(b.cols, func(x, y attrColumnBuilder) int { return strings.Compare(x.Name, y.Name) })
	for i := range b.cols {
		c := &b.cols[i]
		c.fill(samples)
		out := AttrColumn{Attribute: c.Attribute, bits: c.bits}
		if slices.Contains(c.present, false) {
			out.absent = make([]byte, (samples+7)/8)
			for i, p := range c.present {
				if !p {
					out.absent[i/8] |= 1 << (i % 8)
				}
			}
		}
		if c.Kind == format.AttrLabel {
			out.labels = slices.Clone(c.labels)
			slices.Sort(out.labels)
			for i, p := range c.present {
				if p {
					at, _ := slices.BinarySearch(out.labels, c.labels[c.bits[i]])
					out.bits[i] = uint64(at)
				}
			}
		}
		attrs = append(attrs, out.Attribute)
		cols = append(cols, out)
	}
	return attrs, cols
}

func (c *AttrColumn) sections(part uint32) []section.Raw {
	s := []section.Raw{section.Column(typeAttr, part, false, c.bits)}
	if c.Kind == format.AttrLabel {
		l := section.Raw{Kind: typeLabels, Part: part}
		l.Raw = appendUint32(nil, uint32(len(c.labels)))
		l.Raw = section.AppendStrings(l.Raw, c.labels, &l.Cuts)
		s = append(s, l)
	}
	if c.absent != nil {
		s = append(s, section.Raw{Kind: typeAbsent, Part: part, Raw: c.absent})
	}
	return s
}

// maxLabels bounds an attribute's labels by the raw length of their section: shared prefixes let
// few bytes name many.
func maxLabels(raw int) int64 { return 1<<20 + 256*int64(raw) }

// decodeAttr makes a column of n samples from their values and the sections that belong to them.
// get returns nil for a missing section.
func decodeAttr(a format.Attribute, n int, bits []uint64,
	get func(kind string) (*section.Section, []byte, error)) (AttrColumn, error) {
	c := AttrColumn{Attribute: a, bits: bits}
	s, raw, err := get(typeAbsent)
	if err != nil {
		return c, err
	}
	if s != nil {
		if len(raw) != (n+7)/8 {
			return c, damage.Errorf("section %s has %d bytes for %d samples", typeAbsent, len(raw), n)
		}
		c.absent = raw
	}
	if a.Kind != format.AttrLabel {
		return c, nil
	}
	if s, raw, err = get(typeLabels); err != nil {
		return c, err
	}
	r := section.Reader{Src: raw}
	count := r.U32()
	if s == nil || r.Err != nil || uint64(count) > uint64(n) {
		return c, damage.Errorf("attribute %q has %d labels for %d samples", a.Name, count, n)
	}
	if c.labels, err = section.DecodeStrings(r.Src, int(count), maxLabels(len(raw))); err != nil {
		return c, err
	}
	for i, x := range c.bits {
		if x >= uint64(count) && (c.absent == nil || c.absent[i/8]>>(i%8)&1 == 0) {
			return c, damage.Errorf("sample %d has label %d of %d", i, x, count)
		}
	}
	return c, nil
}
