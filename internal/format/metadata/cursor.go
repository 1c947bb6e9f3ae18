package metadata

import "github.com/shardtool/shardtool/format"

// FieldCursor is the place of a sample's sizes in the columns of an index.
type FieldCursor struct {
	ix *ShardIndex
	// Sample is the number in the shard. at has, for each field, how many earlier samples have it.
	Sample int
	at     []int
}

// Cursors returns a cursor at each of the given sample numbers, which ascend.
func (ix *ShardIndex) Cursors(samples []int) []FieldCursor {
	out := make([]FieldCursor, 0, len(samples))
	c := FieldCursor{ix: ix, at: make([]int, len(ix.Fields))}
	for _, s := range samples {
		for c.Sample < s {
			c.next()
		}
		cp := c
		cp.at = append([]int{}, c.at...)
		out = append(out, cp)
	}
	return out
}

// Fields appends the sample's fields with their sizes to dst, and moves to the next sample.
func (c *FieldCursor) Fields(dst []format.FieldSize) []format.FieldSize {
	for _, f := range c.ix.Shape(c.Sample) {
		dst = append(dst, format.FieldSize{Name: c.ix.Fields[f], Size: int64(c.ix.Sizes[f].At(c.at[f]))})
	}
	c.next()
	return dst
}

func (c *FieldCursor) next() {
	for _, f := range c.ix.Shape(c.Sample) {
		c.at[f]++
	}
	c.Sample++
}
