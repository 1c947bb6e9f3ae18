package metadata

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/damage"
	"github.com/shardtool/shardtool/internal/format/section"
	"github.com/shardtool/shardtool/internal/format/tarblock"
)

// The samples that were removed from a data set, and the shards that were rewritten without their
// bytes (SPEC 6.6). Both sections are critical: a reader that does not know them must not read the
// generation, because it would deliver removed samples.
const (
	typeRemoved = "RMVD" // numbers of the removed samples, and of those whose bytes are gone
	typePurged  = "PRGD" // identity of what a purged shard holds, a shard
)

// Content returns the identity of what the shard's object holds: Purged where removed samples were
// purged, else Hash.
func (s *ShardInfo) Content() format.Hash {
	if s.Purged != (format.Hash{}) {
		return s.Purged
	}
	return s.Hash
}

// Within returns the numbers n with from <= n < to out of ascending numbers.
func Within(numbers []uint64, from, to uint64) []uint64 {
	if len(numbers) == 0 {
		return nil
	}
	i, _ := slices.BinarySearch(numbers, from)
	n, _ := slices.BinarySearch(numbers[i:], to)
	return numbers[i : i+n : i+n]
}

// removedSection is the section of the removed samples; ok is false where there are none.
func (m *Manifest) removedSection() (s section.Raw, ok bool, err error) {
	samples := SumSamples(m.Shards)
	s = section.Raw{Kind: typeRemoved, Critical: true}
	for _, numbers := range [][]uint64{m.Removed, m.Purged} {
		gaps, next := make([]uint64, len(numbers)), uint64(0)
		for i, n := range numbers {
			if n < next || n >= samples {
				// a bug of the caller
				return s, false, fmt.Errorf("removed sample %d of %d, after %d", n, samples, next)
			}
			gaps[i], next = n-next+1, n+1
		}
		s.Raw = binary.LittleEndian.AppendUint64(s.Raw, uint64(len(numbers)))
		s.Raw = section.AppendPlanes(s.Raw, gaps, &s.Cuts)
	}
	if !subset(m.Purged, m.Removed) {
		return s, false, fmt.Errorf("a purged sample is not removed") // a bug of the caller
	}
	return s, len(m.Removed) > 0, nil
}

// subset reports whether all of a are in b. Both are ascending.
func subset(a, b []uint64) bool {
	for _, n := range a {
		i, found := slices.BinarySearch(b, n)
		if !found {
			return false
		}
		b = b[i+1:]
	}
	return true
}

// decodeRemoved decodes the numbers of the removed samples of a data set of that many samples.
func decodeRemoved(raw []byte, samples uint64) (removed, purged []uint64, err error) {
	lists := [2][]uint64{}
	for i := range lists {
		if len(raw) < 9 {
			return nil, nil, damage.Errorf("section %s ends within a list", typeRemoved)
		}
		n := binary.LittleEndian.Uint64(raw)
		raw = raw[8:]
		// A gap is at least 1, so that a list of n takes at least n bytes: no short section makes a
		// long list.
		if n > uint64(len(raw)-1) {
			return nil, nil, damage.Errorf("section %s lists %d samples in %d bytes", typeRemoved, n, len(raw))
		}
		if lists[i], raw, err = section.DecodePlanes(raw, int(n)); err != nil {
			return nil, nil, fmt.Errorf("section %s: %w", typeRemoved, err)
		}
		next := uint64(0)
		for j, gap := range lists[i] {
			if gap == 0 || gap > samples-next {
				return nil, nil, damage.Errorf("section %s leads to sample %d and %d more, of %d", typeRemoved, next,
					gap, samples)
			}
			next += gap
			lists[i][j] = next - 1
		}
	}
	if len(raw) != 0 || len(lists[0]) == 0 || !subset(lists[1], lists[0]) {
		return nil, nil, damage.Errorf("section %s has %d samples, %d of them purged, and %d more bytes", typeRemoved,
			len(lists[0]), len(lists[1]), len(raw))
	}
	return lists[0], lists[1], nil
}

// ClearSamples takes what describes some samples out of an index: keys[i] becomes the key of sample
// number samples[i], and the sample loses its labels and numbers. Integer attributes stay, except
// those named, because lengths in them decide how other samples are packed into units. Sizes and
// fields stay, so that totals do. samples ascend. The index must not be shared.
func (ix *ShardIndex) ClearSamples(samples []int, keys []string, attributes []string) {
	ix.Keys.replace(samples, keys)
	for c := range ix.Attrs {
		if a := &ix.Attrs[c]; a.Kind != format.AttrInteger || slices.Contains(attributes, a.Name) {
			a.clear(samples)
		}
	}
	if ix.Layout == nil {
		ix.clearGaps(samples)
	}
}

// Without returns the column without the values of some samples.
func (c AttrColumn) Without(samples []int) AttrColumn {
	if len(samples) > 0 {
		c.clear(samples)
	}
	return c
}

// clear removes the values of some samples, and labels that no other sample has.
func (c *AttrColumn) clear(samples []int) {
	c.bits = slices.Clone(c.bits)
	if c.absent = slices.Clone(c.absent); c.absent == nil {
		c.absent = make([]byte, (len(c.bits)+7)/8)
	}
	for _, s := range samples {
		c.bits[s] = 0
		c.absent[s/8] |= 1 << (s % 8)
	}
	if c.Kind != format.AttrLabel {
		return
	}
	used := make([]bool, len(c.labels))
	for i, x := range c.bits {
		if c.absent[i/8]>>(i%8)&1 == 0 {
			used[x] = true
		}
	}
	var labels []string
	number := make([]uint64, len(c.labels))
	for i, l := range c.labels {
		if number[i] = uint64(len(labels)); used[i] {
			labels = append(labels, l)
		}
	}
	c.labels = labels
	for i, x := range c.bits {
		if c.absent[i/8]>>(i%8)&1 == 0 {
			c.bits[i] = number[x]
		}
	}
}

// clearGaps computes the header lengths of the members of samples that have other keys now.
func (ix *ShardIndex) clearGaps(samples []int) {
	members, other := 0, false
	var gaps []uint64
	for i := range ix.Keys.Len() {
		shape := ix.Shape(i)
		_, cleared := slices.BinarySearch(samples, i)
		for _, f := range shape {
			gap := uint64(tarblock.RecordLen)
			if cleared {
				gap = uint64(tarblock.FieldHeaderLen(ix.Keys.At(i), ix.Fields[f]))
			} else if ix.Gaps != nil {
				gap = ix.Gaps[members]
			}
			gaps = append(gaps, gap)
			other = other || gap != tarblock.RecordLen
			members++
		}
	}
	if ix.Gaps = nil; other {
		ix.Gaps = gaps
	}
}
