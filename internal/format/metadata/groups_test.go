package metadata

import (
	"errors"
	"slices"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/section"
)

// TestGroups: what the tables have for an order is what the rows add up to, at any grain, and the
// grain is the least with which there are few enough groups.
func TestGroups(t *testing.T) {
	m := testManifest(PartRows-1, 0, 2, 70_000, 5)
	tables, _, err := openTables(encodeTables(t, m))
	if err != nil || !tables.Grouped() || len(tables.Parts) != 4 {
		t.Fatal(tables, err)
	}
	for _, grain := range []uint64{1, 2, 3, 64, 1 << 20} {
		secs := tableParts(t, encodeTables(t, m))
		for i := range secs {
			if p := &secs[i]; p.Kind == typeGroups {
				of := tables.Parts[p.Part]
				s, ok := groupSection(p.Part, m.Shards[of.FirstShard:of.FirstShard+of.Shards], grain)
				if p.Raw = s.Raw; !ok {
					t.Fatal("too many samples")
				}
			}
		}
		tables, _, err := openTables(buildTables(secs, nil))
		if err != nil {
			t.Fatal(grain, err)
		}
		cuts := tables.GroupRanges()
		if !slices.Equal(cuts, []int{0, 4}) {
			t.Fatal(cuts)
		}
		all, err := tables.LoadGroups(0, 4)
		if err != nil {
			t.Fatal(grain, err)
		}
		for part, g := range all {
			if counts, err := tables.LoadSamples(part); err != nil || grain == 1 && !SameGroups(g.Samples, slices.DeleteFunc(counts, func(n uint64) bool { return n == 0 })) {
				t.Fatal("part", part, err)
			}
			sum, groups := uint64(0), uint64(0)
			for _, n := range g.Samples {
				sum += uint64(n)
			}
			for i, n := range g.Blocks {
				if n != m.Shards[tables.Parts[part].FirstShard+uint64(i)].Blocks {
					t.Fatal("part", part, "shard", i, "has", n, "blocks")
				}
				groups += groupsOf(n, grain)
			}
			if g.Grain != grain || sum != tables.Parts[part].Samples || groups != uint64(len(g.Samples)) {
				t.Fatal(part, g.Grain, sum, groups)
			}
		}
	}
	if one, _, err := openTables(encodeTables(t, testManifest(PartRows))); err != nil || one.Grouped() {
		t.Error("a single part has groups", err)
	}
	blocks := m.Shards[0].Blocks + m.Shards[2].Blocks + m.Shards[3].Blocks + m.Shards[4].Blocks
	for _, c := range []struct{ single, most, grain uint64 }{
		{blocks, 1, 1}, {blocks - 1, blocks, 1}, {blocks - 1, blocks - 1, 2}, {1, 4, 1 << 16}, {1, 1, 1 << 16},
	} {
		if g := grainOf(m.Shards, c.single, c.most); g != c.grain {
			t.Errorf("%d blocks, at most %d or %d groups: groups of %d, not %d", blocks, c.single, c.most, g, c.grain)
		}
	}
}

// TestGroupsDamage: groups that do not fit the totals, or differ from the rows, are corrupt.
func TestGroupsDamage(t *testing.T) {
	m := testManifest(PartRows, 7)
	good := encodeTables(t, m)
	blocks := section.AppendPlanes(nil, []uint64{m.Shards[1].Blocks}, nil)
	_, counts := groupsIn(m.Shards[1:], 1)
	edited := func(edit func(counts []uint64)) []byte {
		c := slices.Clone(counts)
		edit(c)
		return section.AppendPlanes(append(appendUint32(nil, 1), blocks...), c, nil)
	}
	for name, raw := range map[string][]byte{
		"empty":           nil,
		"grain 0":         section.AppendPlanes(append(appendUint32(nil, 0), blocks...), counts, nil),
		"another grain":   section.AppendPlanes(append(appendUint32(nil, 2), blocks...), counts, nil),
		"no blocks":       section.AppendPlanes(section.AppendPlanes(appendUint32(nil, 1), []uint64{0}, nil), counts, nil),
		"many blocks":     section.AppendPlanes(section.AppendPlanes(appendUint32(nil, 1), []uint64{1 << 60}, nil), counts, nil),
		"a group of none": edited(func(c []uint64) { c[0], c[1] = c[0]+c[1], 0 }),
		"too many":        edited(func(c []uint64) { c[0]++ }),
		"too few":         edited(func(c []uint64) { c[1]-- }),
		"moved":           edited(func(c []uint64) { c[0], c[1] = c[0]+1, c[1]-1 }),
		"a byte more":     append(edited(func([]uint64) {}), 0),
	} {
		secs := tableParts(t, good)
		for i := range secs {
			if secs[i].Kind == typeGroups && secs[i].Part == 1 {
				secs[i].Raw = raw
			}
		}
		tables, err := OpenTables(readFrom(buildTables(secs, nil)), int64(len(buildTables(secs, nil))))
		if err != nil {
			t.Fatal(name, err)
		}
		_, failed := tables.LoadGroups(0, 2)
		if name == "moved" { // which no total shows
			_, failed = tables.Load()
		}
		if !errors.Is(failed, format.ErrCorrupt) {
			t.Errorf("%s: %v", name, failed)
		}
	}
}
