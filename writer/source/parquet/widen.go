package parquet

import (
	"fmt"
	"math"

	pq "github.com/apache/arrow/go/v17/parquet"

	"github.com/shardtool/shardtool/hint"
)

// wide is what a column of integers in some files, and of floats in others, is read as.
var wide = leafType{scalar{class: classDouble}, pq.Types.Double}

// widens reports whether one of the types has integers where the other has floats, and all else is
// the same.
func widens(a, b *node) bool {
	for a.shape == shapeList && b.shape == shapeList {
		a, b = a.kids[0], b.kids[0]
	}
	if a.shape != shapeScalar || b.shape != shapeScalar {
		return false
	}
	s, t := a.leaf.scalar.family(), b.leaf.scalar.family()
	return s == "integer" && t == "float" || s == "float" && t == "integer"
}

// widened returns the node with floats in the place of its numbers.
func (n *node) widened() *node {
	out := *n
	if n.shape == shapeList {
		out.kids = []*node{n.kids[0].widened()}
		return &out
	}
	out.leaf = wide
	return &out
}

// widen makes floats of the numbers of the current row, which is not null.
func (c *column) widen(row int) error {
	of := c.narrow.tensorScalar()
	if of.class == classDouble {
		return nil
	}
	if c.narrow.shape == shapeScalar {
		u, err := of.double(c.v)
		c.v = value{u: u}
		return err
	}
	if c.cells != nil {
		c.shred(row)
	}
	e := c.parts[0]
	nums := make([]uint64, 0, len(e.nums)+len(e.ends))
	for i := range cap(nums) {
		v, _ := e.value(i)
		u, err := of.double(v)
		if err != nil {
			return err
		}
		nums = append(nums, u)
	}
	e.nums, e.ends, e.bytes = nums, e.ends[:0], e.bytes[:0]
	return nil
}

// double returns the bits of a number as a float. An integer that is none is an error.
func (s scalar) double(v value) (uint64, error) {
	if s.family() == "float" {
		return math.Float64bits(s.float(v)), nil
	}
	n := s.integer(v)
	f := float64(n)
	back := f < 1<<63 && int64(f) == n
	if s.class == classUnsigned && s.bits == 64 {
		f = float64(uint64(n))
		back = f < 1<<64 && uint64(f) == uint64(n)
	}
	if !back {
		l := leafType{scalar: s}
		return 0, fmt.Errorf("%s is no float of 64 bits, as which files with floats have the column read: leave it out, or write it as text", l.appendText(nil, v))
	}
	return math.Float64bits(f), nil
}

// widenable adds to an error of two types what would make them one.
func widenable(err error, a, b *node) error {
	if !widens(a, b) {
		return err
	}
	return hint.With(err, hint.Set("widen", "true", "reads integers as floats"))
}
