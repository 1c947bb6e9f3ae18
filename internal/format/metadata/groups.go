package metadata

import (
	"fmt"
	"math"
	"slices"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/damage"
	"github.com/shardtool/shardtool/internal/format/section"
	"github.com/shardtool/shardtool/internal/format/tarblock"
)

// typeGroups holds the samples of groups of blocks of a part: what an order needs, in one place for
// all parts (SPEC 6.2).
const typeGroups = "GSMP"

const (
	// mostSingle is the most blocks of a data set whose groups are single blocks: an order holds four
	// bytes for each. Larger ones have as few groups as an order has runs: at most mostGroups.
	mostSingle = 1 << 26
	mostGroups = 1 << 24
	// groupsRange is about how many bytes of the sections of groups are read at once.
	groupsRange = 8 << 20
)

// Groups is what an order needs of the shards of a part.
type Groups struct {
	// Grain is how many blocks a group has. The last group of a shard may have fewer.
	Grain uint64
	// Blocks is the number of blocks of each shard.
	Blocks []uint64
	// Samples is the number of samples of each group, in the order of the blocks.
	Samples []uint32
}

// groupsOf returns how many groups of that many blocks the blocks of a shard make.
func groupsOf(blocks, grain uint64) uint64 {
	n := blocks / grain
	if blocks%grain > 0 {
		n++
	}
	return n
}

// grainOf chooses the blocks of a group: 1, or the least power of two with which a large data set
// has at most mostGroups. An order doubles its runs by the same rule, so groups fit into them.
func grainOf(shards []ShardEntry, single, most uint64) uint64 {
	count := func(grain uint64) (n, largest uint64) {
		for i := range shards {
			n, largest = n+groupsOf(shards[i].Blocks, grain), max(largest, shards[i].Blocks)
		}
		return n, largest
	}
	blocks, largest := count(1)
	grain := uint64(1)
	for blocks > single && grain < largest {
		if n, _ := count(grain); n <= most {
			break
		}
		grain *= 2
	}
	return grain
}

// groupSections encodes the groups of parts, each of which ends before a shard. There are none of a
// single part, which a reader has with its first read, and none if an order could not have runs of
// so many samples.
func groupSections(shards []ShardEntry, ends []int) (secs []section.Raw) {
	if len(ends) < 2 {
		return nil
	}
	grain, from := grainOf(shards, mostSingle, mostGroups), 0
	for part, end := range ends {
		s, ok := groupSection(uint32(part), shards[from:end], grain)
		if !ok {
			return nil
		}
		secs, from = append(secs, s), end
	}
	return secs
}

func groupSection(part uint32, shards []ShardEntry, grain uint64) (s section.Raw, ok bool) {
	s = section.Raw{Kind: typeGroups, Part: part, Raw: appendUint32(nil, uint32(grain))}
	blocks, samples := groupsIn(shards, grain)
	s.Raw = section.AppendPlanes(s.Raw, blocks, &s.Cuts)
	s.Raw = section.AppendPlanes(s.Raw, samples, &s.Cuts)
	return s, len(samples) == 0 || slices.Max(samples) <= math.MaxUint32
}

// groupsIn returns the blocks of each shard and the samples of each group.
func groupsIn(shards []ShardEntry, grain uint64) (blocks, samples []uint64) {
	for i := range shards {
		blocks = append(blocks, shards[i].Blocks)
		samples = AppendGroups(samples, shards[i].Rows, grain)
	}
	return blocks, samples
}

// AppendGroups appends the samples of each group of blocks of a shard.
func AppendGroups(dst []uint64, rows []format.Row, grain uint64) []uint64 {
	block := uint64(0)
	for _, r := range rows {
		if r.Samples == 0 {
			continue // it continues the block before
		}
		if block%grain == 0 {
			dst = append(dst, 0)
		}
		dst[len(dst)-1] += uint64(r.Samples)
		block++
	}
	return dst
}

// SameGroups compares the samples of groups with what AppendGroups makes.
func SameGroups(groups []uint32, sums []uint64) bool {
	return slices.EqualFunc(groups, sums, func(a uint32, b uint64) bool { return uint64(a) == b })
}

// Grouped reports whether the tables have groups. Tables of a single part and those of older
// programs have none.
func (t *Tables) Grouped() bool { return t.grouped }

func (t *Tables) findGroups() bool {
	for i := range t.Parts {
		if t.object.dir.Find(typeGroups, uint32(i)) == nil {
			return false
		}
	}
	return len(t.Parts) > 0
}

// GroupRanges divides the parts into ranges for LoadGroups. The last element is the number of
// parts.
func (t *Tables) GroupRanges() []int {
	var cuts []int
	begin := uint64(0)
	for i := range t.Parts {
		s := t.object.dir.Find(typeGroups, uint32(i))
		if i == 0 || s.Off < begin || s.Off+uint64(s.Stored)-begin > groupsRange {
			cuts, begin = append(cuts, i), s.Off
		}
	}
	return append(cuts, len(t.Parts))
}

// LoadGroups reads the groups of parts from ≤ i < to with one read: from and to are neighbours in
// GroupRanges.
func (t *Tables) LoadGroups(from, to int) ([]Groups, error) {
	first, last := t.object.dir.Find(typeGroups, uint32(from)), t.object.dir.Find(typeGroups, uint32(to-1))
	buf := make([]byte, last.Off+uint64(last.Stored)-first.Off) // Contiguous has compared both with the size
	if err := t.object.read(buf, int64(first.Off)); err != nil {
		return nil, err
	}
	out := make([]Groups, 0, to-from)
	for part := from; part < to; part++ {
		s := t.object.dir.Find(typeGroups, uint32(part))
		raw, err := s.Payload(buf[s.Off-first.Off:][:s.Stored])
		if err != nil {
			return nil, format.At(int64(s.Off), err)
		}
		g, err := t.decodeGroups(part, raw)
		if err != nil {
			return nil, fmt.Errorf("section %s, part %d: %w", typeGroups, part, err)
		}
		out = append(out, g)
	}
	return out, nil
}

// decodeGroups decodes a section and compares it with the totals of its part. Memory is allocated
// only by what the lengths of sections bear out.
func (t *Tables) decodeGroups(part int, raw []byte) (g Groups, err error) {
	p := &t.Parts[part]
	if s := t.object.dir.Find(typeHashes, uint32(part)); s == nil || uint64(s.Raw) != p.Shards*uint64(len(format.Hash{})) {
		return g, damage.Errorf("%d shards, and hashes of others", p.Shards)
	}
	least := uint64(tarblock.RecordLen)
	if t.object.dir.Find(section.KindLayout, uint32(part)) != nil {
		least = 1 // a row of a stacked shard has no header
	}
	if p.Decoded/format.MaxFrame > p.Rows || p.Samples > p.Decoded/least {
		return g, damage.Errorf("%d samples in %d rows of %d bytes", p.Samples, p.Rows, p.Decoded)
	}
	r := section.Reader{Src: raw}
	if g.Grain = uint64(r.U32()); g.Grain == 0 {
		return g, damage.Errorf("groups of no blocks")
	}
	var rest []byte
	if g.Blocks, rest, err = section.DecodePlanes(r.Src, int(p.Shards)); err != nil {
		return g, err
	}
	blocks, groups := uint64(0), uint64(0)
	for _, n := range g.Blocks {
		if n > p.Blocks-blocks {
			return g, damage.Errorf("more blocks than the %d of the part", p.Blocks)
		}
		blocks, groups = blocks+n, groups+groupsOf(n, g.Grain)
	}
	if blocks != p.Blocks || groups > uint64(len(rest)) { // each has samples: a byte at least
		return g, damage.Errorf("%d blocks in %d groups, the part has %d", blocks, groups, p.Blocks)
	}
	counts, rest, err := section.DecodePlanes(rest, int(groups))
	if err != nil {
		return g, err
	}
	samples := uint64(0)
	g.Samples = make([]uint32, len(counts))
	for i, n := range counts {
		if n == 0 || n > math.MaxUint32 || n > p.Samples-samples {
			return g, damage.Errorf("a group of %d samples, the part has %d", n, p.Samples)
		}
		samples, g.Samples[i] = samples+n, uint32(n)
	}
	if samples != p.Samples || len(rest) > 0 {
		return g, damage.Errorf("%d samples, the part has %d; %d bytes too many", samples, p.Samples, len(rest))
	}
	return g, nil
}

// checkGroups compares the groups with the rows that they sum up.
func (t *Tables) checkGroups(shards []ShardEntry) error {
	if !t.Grouped() {
		return nil
	}
	cuts := t.GroupRanges()
	for i, from := range cuts[:len(cuts)-1] {
		groups, err := t.LoadGroups(from, cuts[i+1])
		if err != nil {
			return err
		}
		for k := range groups {
			p := &t.Parts[from+k]
			blocks, samples := groupsIn(shards[p.FirstShard:p.FirstShard+p.Shards], groups[k].Grain)
			if !slices.Equal(groups[k].Blocks, blocks) || !SameGroups(groups[k].Samples, samples) {
				return damage.Errorf("section %s, part %d: other samples than the rows have", typeGroups, from+k)
			}
		}
	}
	return nil
}
