package metadata

import (
	"fmt"
	"iter"
	"slices"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/samplekey"
	"github.com/shardtool/shardtool/internal/format/stacked"
)

// KeyColumn is the keys of a shard's samples: stored one by one, or computed from ranges.
type KeyColumn struct {
	stored  []string
	ranges  samplekey.Ranges
	n       int
	cleared map[int]bool // of numbered keys
}

// StoredKeys returns the column of these keys.
func StoredKeys(keys []string) KeyColumn { return KeyColumn{stored: keys, n: len(keys)} }

// NumberedKeys returns the column of the keys of ranges.
func NumberedKeys(rs samplekey.Ranges) KeyColumn { return KeyColumn{ranges: rs, n: int(rs.Len())} }

// Len returns the number of keys.
func (c *KeyColumn) Len() int { return c.n }

// Ranges returns the ranges of numbered keys; nil where keys are stored.
func (c *KeyColumn) Ranges() samplekey.Ranges { return c.ranges }

// At returns the key of sample i. It is empty after Clear.
func (c *KeyColumn) At(i int) string {
	switch {
	case c.ranges == nil:
		return c.stored[i]
	case c.cleared[i]:
		return ""
	}
	return string(c.ranges.AppendKey(nil, uint64(i)))
}

// All yields the keys in storage order, with their numbers.
func (c *KeyColumn) All() iter.Seq2[int, string] {
	return func(yield func(int, string) bool) {
		if c.ranges == nil {
			for i, k := range c.stored {
				if !yield(i, k) {
					return
				}
			}
			return
		}
		i := 0
		var buf []byte
		for r := range c.ranges {
			for k := range c.ranges[r].Count {
				buf = c.ranges[r].AppendKey(buf[:0], k)
				key := string(buf)
				if c.cleared[i] {
					key = ""
				}
				if !yield(i, key) {
					return
				}
				i++
			}
		}
	}
}

// Slice returns all keys; the caller must not change them. It takes memory for each where keys are
// numbered.
func (c *KeyColumn) Slice() []string {
	if c.ranges == nil {
		return c.stored
	}
	keys := make([]string, 0, c.n)
	for _, k := range c.All() {
		keys = append(keys, k)
	}
	return keys
}

// Find returns the number of the first sample with a key.
func (c *KeyColumn) Find(key string) (i int, ok bool) {
	if c.ranges == nil {
		i = slices.Index(c.stored, key)
		return i, i >= 0
	}
	n, ok := c.ranges.Find(key)
	return int(n), ok && !c.cleared[int(n)]
}

// Ends returns the least and the greatest key; both are empty where there is none.
func (c *KeyColumn) Ends() (least, greatest string) {
	if c.ranges != nil {
		return c.ranges.Ends()
	}
	if c.n == 0 {
		return "", ""
	}
	return slices.Min(c.stored), slices.Max(c.stored)
}

// Clear makes the key of sample i empty. The column must not be shared yet.
func (c *KeyColumn) Clear(i int) {
	if c.ranges == nil {
		c.stored[i] = ""
		return
	}
	if c.cleared == nil {
		c.cleared = map[int]bool{}
	}
	c.cleared[i] = true
}

// replace gives samples other keys.
func (c *KeyColumn) replace(samples []int, keys []string) {
	if c.ranges == nil {
		for i, s := range samples {
			c.stored[s] = keys[i]
		}
		return
	}
	var rs samplekey.Ranges
	next := 0
	for i, key := range c.All() {
		if next < len(samples) && samples[next] == i {
			key = keys[next]
			next++
		}
		rs.Add(key)
	}
	*c = NumberedKeys(rs)
}

// Memory returns what keys and sizes take in memory, nearly.
func (ix *ShardIndex) Memory() (n int64) {
	c := &ix.Keys
	for _, k := range c.stored {
		n += 16 + int64(len(k))
	}
	for i := range c.ranges {
		n += 48 + int64(len(c.ranges[i].Prefix))
	}
	for f := range ix.Sizes {
		n += 8 * int64(len(ix.Sizes[f].stored))
	}
	return n + 16*int64(len(c.cleared))
}

// SizeColumn is the payload sizes of one field, in storage order.
type SizeColumn struct {
	stored []uint64
	same   uint64 // of all, where stored is nil
	n      int
}

// StoredSizes returns the column of these sizes.
func StoredSizes(v []uint64) SizeColumn { return SizeColumn{stored: v, n: len(v)} }

// Len returns the number of samples that have the field.
func (c *SizeColumn) Len() int { return c.n }

// At returns the i-th size.
func (c *SizeColumn) At(i int) uint64 {
	if c.stored == nil {
		return c.same
	}
	return c.stored[i]
}

// Total returns the total of a field of that name.
func (c *SizeColumn) Total(name string) format.FieldTotal {
	t := format.FieldTotal{Name: name, Samples: uint64(c.n)}
	if c.stored == nil {
		t.Bytes, t.Min, t.Max = c.same*uint64(c.n), c.same, c.same
		return t
	}
	for i, n := range c.stored {
		if i == 0 {
			t.Min = n
		}
		t.Bytes += n
		t.Min, t.Max = min(t.Min, n), max(t.Max, n)
	}
	return t
}

// NumberKeys stores the keys as ranges where they are numbered: at most one range for 16 keys.
func (ix *ShardIndex) NumberKeys() {
	var rs samplekey.Ranges
	for _, k := range ix.Keys.stored {
		rs.Add(k)
		if len(rs) > 1+ix.Keys.n/16 {
			return
		}
	}
	if len(rs) > 0 && rs.Numbered() {
		ix.Keys = NumberedKeys(rs)
	}
}

// rowSizes sets the sizes of the fields of a stacked shard of n samples.
func (ix *ShardIndex) rowSizes(n int) {
	for i := range ix.Layout.Fields {
		ix.Sizes = append(ix.Sizes, SizeColumn{same: uint64(ix.Layout.Fields[i].Size()), n: n})
	}
}

// AddRows adds the samples of a block of a stacked shard. keys are their keys where these are not
// numbered, ranges where they are. attrs is nil, or has an entry for each sample.
func (b *IndexBuilder) AddRows(l *stacked.Layout, n int, ranges samplekey.Ranges, keys []string,
	attrs [][]format.AttrValue) error {
	if b.samples > 0 && !b.stacked.Equal(l) {
		return fmt.Errorf("rows of another layout in one shard") // a bug of the caller
	}
	b.stacked = l
	if uint64(n) != ranges.Len()+uint64(len(keys)) || len(keys) > 0 && len(b.ranges) > 0 || len(ranges) > 0 &&
		len(b.keys) > 0 {
		// a bug of the caller
		return fmt.Errorf("%d rows with %d numbered keys and %d others", n, ranges.Len(), len(keys))
	}
	for i, values := range attrs {
		if err := b.attrs.check(values); err != nil {
			return err
		}
		b.attrs.add(b.samples+i, values)
	}
	b.keys = append(b.keys, keys...)
	for i := range ranges {
		b.ranges.Join(ranges[i])
	}
	b.samples += n
	return nil
}

// finishRows completes the index of a stacked shard.
func (b *IndexBuilder) finishRows(ix *ShardIndex) {
	ix.Layout = b.stacked
	shape := []uint32{}
	for i := range b.stacked.Fields {
		ix.Fields = append(ix.Fields, b.stacked.Fields[i].Name)
		shape = append(shape, uint32(i))
	}
	ix.Shapes = [][]uint32{shape}
	if b.ranges != nil {
		ix.Keys = NumberedKeys(b.ranges)
	}
	ix.rowSizes(b.samples)
	ix.Attributes, ix.Attrs = b.attrs.finish(b.samples)
}
