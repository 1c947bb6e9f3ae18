package metadata

import (
	"encoding/binary"
	"math/big"
	"math/bits"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/damage"
	"github.com/shardtool/shardtool/internal/format/section"
)

// AttrTotal is the sum over one integer attribute of a data set.
type AttrTotal struct {
	Name string
	// Samples is the number of samples that have the attribute. Min and Max are its least and
	// greatest value, 0 where no sample has it.
	Samples  uint64
	Min, Max int64
	// Negative counts the values below 0. Counts counts the others by powers of two: entry 0 those
	// of 0, entry i those from 2^(i-1) up to, but not including, 2^i.
	Negative uint64
	Counts   [64]uint64

	high, low uint64 // the sum, in two's complement
}

// Sum is the sum of the values.
func (t *AttrTotal) Sum() *big.Int {
	sum := new(big.Int).SetInt64(int64(t.high))
	sum.Lsh(sum, 64)
	return sum.Add(sum, new(big.Int).SetUint64(t.low))
}

// Add adds the value of a sample.
func (t *AttrTotal) Add(v int64) {
	if t.Samples == 0 {
		t.Min, t.Max = v, v
	}
	t.Samples++
	t.Min, t.Max = min(t.Min, v), max(t.Max, v)
	if v < 0 {
		t.Negative++
	} else {
		t.Counts[bits.Len64(uint64(v))]++
	}
	t.addSum(uint64(v>>63), uint64(v))
}

// AddAll adds the values of a column.
func (t *AttrTotal) AddAll(c *AttrColumn) {
	for i := range c.bits {
		if v, ok := c.At(i); ok {
			t.Add(v.Integer)
		}
	}
}

// Merge adds the total of other samples.
func (t *AttrTotal) Merge(o *AttrTotal) {
	switch {
	case o.Samples == 0:
		return
	case t.Samples == 0:
		t.Min, t.Max = o.Min, o.Max
	}
	t.Samples += o.Samples
	t.Min, t.Max = min(t.Min, o.Min), max(t.Max, o.Max)
	t.Negative += o.Negative
	for i, n := range o.Counts {
		t.Counts[i] += n
	}
	t.addSum(o.high, o.low)
}

func (t *AttrTotal) addSum(high, low uint64) {
	var carry uint64
	t.low, carry = bits.Add64(t.low, low, 0)
	t.high += high + carry
}

// appendAttrTotals appends section ATOT (SPEC 6.2): the totals of those attributes of the schema
// that have one.
func appendAttrTotals(dst []byte, attrs []format.Attribute, totals []AttrTotal) ([]byte, error) {
	dst = appendUint32(dst, uint32(len(totals)))
	for i := range totals {
		t := &totals[i]
		at := integerAttr(attrs, t.Name)
		if at < 0 {
			return nil, damage.Errorf("a total of %q, which is no integer attribute of the schema", t.Name)
		}
		dst = appendUint32(dst, uint32(at))
		for _, v := range []uint64{t.Samples, t.low, t.high, uint64(t.Min), uint64(t.Max), t.Negative} {
			dst = binary.LittleEndian.AppendUint64(dst, v)
		}
		counts := len(t.Counts)
		for counts > 0 && t.Counts[counts-1] == 0 {
			counts--
		}
		dst = append(dst, byte(counts))
		for _, n := range t.Counts[:counts] {
			dst = binary.LittleEndian.AppendUint64(dst, n)
		}
	}
	return dst, nil
}

func integerAttr(attrs []format.Attribute, name string) int {
	for i, a := range attrs {
		if a.Name == name && a.Kind == format.AttrInteger {
			return i
		}
	}
	return -1
}

// decodeAttrTotals decodes what appendAttrTotals appended, for a data set of that many samples.
func decodeAttrTotals(src []byte, attrs []format.Attribute, samples uint64) ([]AttrTotal, error) {
	r := section.Reader{Src: src}
	n, last := r.U32(), -1
	if uint64(n) > uint64(len(attrs)) {
		return nil, damage.Errorf("totals of %d attributes, the schema has %d", n, len(attrs))
	}
	var totals []AttrTotal
	for range n {
		totals = append(totals, AttrTotal{}) // one by one: the section justifies their memory
		t := &totals[len(totals)-1]
		at := int(r.U32())
		t.Samples, t.low, t.high = r.U64(), r.U64(), r.U64()
		t.Min, t.Max, t.Negative = int64(r.U64()), int64(r.U64()), r.U64()
		counts := int(r.U8())
		if r.Err == nil && (at <= last || at >= len(attrs) || attrs[at].Kind != format.AttrInteger ||
			counts > len(t.Counts)) {
			return nil, damage.Errorf("a total of attribute %d with %d counts", at, counts)
		}
		for k := range min(counts, len(t.Counts)) {
			t.Counts[k] = r.U64()
		}
		if r.Err != nil {
			return nil, r.Err
		}
		if t.Name, last = attrs[at].Name, at; !t.consistent(samples) {
			return nil, damage.Errorf("the total of attribute %q contradicts itself", t.Name)
		}
	}
	return totals, r.End()
}

// consistent reports whether a total can be one over some of the samples of a data set.
func (t *AttrTotal) consistent(samples uint64) bool {
	left := t.Samples
	for _, n := range append(t.Counts[:], t.Negative) {
		if n > left {
			return false
		}
		left -= n
	}
	if left > 0 || t.Samples > samples {
		return false
	}
	count, sum := new(big.Int).SetUint64(t.Samples), t.Sum()
	least, most := big.NewInt(t.Min), big.NewInt(t.Max)
	return t.Min <= t.Max && sum.Cmp(least.Mul(least, count)) >= 0 && sum.Cmp(most.Mul(most, count)) <= 0 &&
		(t.Samples > 0 || t.Min == 0 && t.Max == 0)
}
