package metadata

import (
	"bytes"
	"slices"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/codec"
	"github.com/shardtool/shardtool/internal/format/samplekey"
	"github.com/shardtool/shardtool/internal/format/section"
	"github.com/shardtool/shardtool/internal/format/stacked"
	"github.com/shardtool/shardtool/internal/testset/allocated"
)

// stackedVectors are stacked shards whose checksums are right, with at most one fault.
func stackedVectors(t *testing.T) (out []vector) {
	add := func(name, expect, note string, data []byte) {
		out = append(out, vector{"shard-stacked-" + name, "shard", expect, note, bytes.Clone(data), 0})
	}
	object, tail, ix := stackedShard(t, false)
	storedObject, storedTail, storedIx := stackedShard(t, true)
	add("ok", "ok", "two rows with numbered keys", object)
	add("stored-keys", "ok", "two rows with keys in the block", storedObject)
	numbered := &testShard{Data: object[:len(object)-len(tail)], Tail: tail, Index: ix}
	stored := &testShard{Data: storedObject[:len(storedObject)-len(storedTail)], Tail: storedTail, Index: storedIx}
	replace := func(of *testShard, kind string, raw []byte) []byte {
		p := *partsOf(of)
		for _, list := range []*[]section.Raw{&p.cold, &p.hot} {
			*list = slices.Clone(*list)
			for i := range *list {
				if s := &(*list)[i]; s.Kind == kind {
					s.Raw, s.Encoding, s.Cuts = raw, section.EncodingPlanes, nil
				}
			}
			*list = slices.DeleteFunc(*list, func(s section.Raw) bool { return s.Raw == nil })
		}
		return p.build()
	}
	layout := func(f ...stacked.Field) []byte { return appendLayout(nil, &stacked.Layout{Fields: f}) }
	x := stacked.Field{Name: "x.npy", DType: "<u2", Shape: []int64{2}}
	with := func(dtype string, shape ...int64) []byte {
		return layout(stacked.Field{Name: "x.npy", DType: dtype, Shape: shape})
	}
	keys := func(r ...samplekey.Range) []byte { return appendRanges(nil, samplekey.Ranges(r)) }
	for _, c := range []struct {
		name, expect, note, kind string
		raw                      []byte
	}{
		{"layout-kind-2", "version", "a layout of an unknown kind", section.KindLayout, []byte{2, 0, 0, 0, 0, 0, 0, 0}},
		{"layout-empty", "corrupt", "a layout without fields", section.KindLayout, layout()},
		{"layout-type", "corrupt", "elements of an unknown type", section.KindLayout, with("|O8", 2)},
		{"layout-big", "corrupt", "big-endian elements", section.KindLayout, with(">u2", 2)},
		{"layout-zero", "corrupt", "a dimension of 0", section.KindLayout, with("<u2", 0)},
		{"layout-huge", "corrupt", "a row of 16 MiB", section.KindLayout, with("|u1", 1<<24)},
		{"layout-fields", "corrupt", "another field than the schema", section.KindLayout, layout(stacked.Field{Name: "y.npy", DType: "<u2", Shape: []int64{2}})},
		{"layout-more", "corrupt", "a field more than the schema", section.KindLayout, layout(x, stacked.Field{Name: "y.npy", DType: "<u2"})},
		{"layout-shape", "corrupt", "another shape than the block", section.KindLayout, with("<u2", 1, 2)},
		{"layout-dtype", "corrupt", "another type than the block", section.KindLayout, with("<i2", 2)},
		{"layout-trailing", "corrupt", "a byte after the layout", section.KindLayout, append(layout(x), 0)},
		{"layout-missing", "corrupt", "a block of rows without a layout", section.KindLayout, nil},
		{"keys-few", "corrupt", "one numbered key for two samples", section.KindKeyNumbers, keys(samplekey.Range{Prefix: "a/", First: 8, Digits: 1, Count: 1})},
		{"keys-many", "corrupt", "2^40 numbered keys for two samples", section.KindKeyNumbers, keys(samplekey.Range{Prefix: "a/", First: 8, Digits: 1, Count: 1 << 40})},
		{"keys-none", "corrupt", "no range", section.KindKeyNumbers, keys()},
		{"keys-digits", "corrupt", "a number of 21 digits", section.KindKeyNumbers, keys(samplekey.Range{Prefix: "a/", First: 8, Digits: 21, Count: 2})},
		{"keys-outside", "corrupt", "a prefix that leads outside", section.KindKeyNumbers, keys(samplekey.Range{Prefix: "../", First: 8, Digits: 1, Count: 2})},
		{"keys-missing", "corrupt", "neither numbered keys nor others", section.KindKeyNumbers, nil},
		{"samples", "corrupt", "three samples in a block of two rows", typeSamples, section.AppendPlanes(nil, []uint64{3}, nil)},
		{"samples-huge", "corrupt", "more samples than bytes", typeSamples, section.AppendPlanes(nil, []uint64{1 << 30}, nil)},
	} {
		add(c.name, c.expect, c.note, replace(numbered, c.kind, c.raw))
	}
	add("key-other", "corrupt", "a key that is not in the block", replace(stored, typeKeys, section.AppendStrings(nil, []string{"a/8", "b/yz"}, nil)))
	add("key-stored", "corrupt", "the block of stored keys with numbered ones", swapKeys(t, stored))
	for _, c := range []struct {
		name, note string
		at         int
		to         byte
	}{
		{"block-number", "a member with the number of another sample", 8, '1'},
		{"block-header", "an array of another shape", 577, '3'},
		{"block-padding", "padding that is not zero", 700, 1},
	} {
		add(c.name, "corrupt", c.note, withBlock(t, numbered, func(b []byte) { b[c.at] = c.to }))
	}
	return append(out, stackedTables(t)...)
}

// withBlock edits the only block of a stacked shard.
func withBlock(t *testing.T, s *testShard, edit func(b []byte)) []byte {
	t.Helper()
	d := codec.NewDecoder(true)
	defer d.Close()
	block, err := d.Decode(nil, s.Data[:s.Index.Rows[0].Stored], s.Index.Rows[0])
	if err != nil {
		t.Fatal(err)
	}
	edit(block)
	frame := codec.AppendRawFrame(nil, block, nil, nil)
	ix := *s.Index
	ix.Rows = slices.Clone(ix.Rows)
	r := &ix.Rows[0]
	r.Stored, r.CRC, r.Codec = uint32(len(frame)), codec.Checksum(frame), format.CodecRaw
	tail, err := AppendTail(nil, &ix, false)
	if err != nil {
		t.Fatal(err)
	}
	return slices.Concat(frame, EndOfArchive(false), tail)
}

// swapKeys gives a shard with stored keys numbered ones.
func swapKeys(t *testing.T, s *testShard) []byte {
	t.Helper()
	ix := *s.Index
	ix.Keys = NumberedKeys(samplekey.Ranges{{Prefix: "a/", First: 8, Digits: 1, Count: 2}})
	tail, err := AppendTail(nil, &ix, false)
	if err != nil {
		t.Fatal(err)
	}
	return append(bytes.Clone(s.Data), tail...)
}

// stackedTables are vectors of tables with two stacked shards and an ordinary one.
func stackedTables(t *testing.T) (out []vector) {
	m := testManifest(3, 0, 3)
	l := &stacked.Layout{Fields: []stacked.Field{{Name: "x.npy", DType: "<u2", Shape: []int64{2}}}}
	m.Shards[0].Layout, m.Shards[2].Layout = l, l
	m.Shards[0].Numbered = samplekey.Ranges{{Prefix: "a/", First: 8, Digits: 1, Count: m.Shards[0].Samples}}
	secs := tableParts(t, encodeTables(t, m))
	with := func(kind string, edit func(raw []byte) []byte) []byte {
		secs := slices.Clone(secs)
		for i := range secs {
			if secs[i].Kind == kind {
				secs[i].Raw, secs[i].Encoding, secs[i].Cuts = edit(bytes.Clone(secs[i].Raw)), section.EncodingPlanes, nil
			}
		}
		return buildTables(secs, nil)
	}
	same := func(raw []byte) []byte { return raw }
	for _, c := range []struct {
		name, expect, note, kind string
		edit                     func(raw []byte) []byte
	}{
		{"ok", "ok", "two stacked shards of three, one with numbered keys", section.KindLayout, same},
		{"place", "corrupt", "a layout that is not listed", section.KindLayout, func(raw []byte) []byte { raw[len(raw)-4] = 2; return raw }},
		{"kind-2", "version", "a layout of an unknown kind", section.KindLayout, func(raw []byte) []byte { raw[4] = 2; return raw }},
		{"short", "corrupt", "a shard without a place", section.KindLayout, func(raw []byte) []byte { return raw[:len(raw)-4] }},
		{"list-huge", "corrupt", "2^32 − 1 layouts", section.KindLayout, func(raw []byte) []byte { copy(raw, "\xff\xff\xff\xff"); return raw }},
		{"keys-more", "corrupt", "more numbered keys than samples", section.KindKeyNumbers, func(raw []byte) []byte { raw[4+4+2+8+1]++; return raw }},
		{"keys-huge", "corrupt", "2^32 − 1 ranges", section.KindKeyNumbers, func(raw []byte) []byte { copy(raw, "\xff\xff\xff\xff"); return raw }},
	} {
		out = append(out, vector{"tables-stacked-" + c.name, "tables", c.expect, c.note, with(c.kind, c.edit), 0})
	}
	return out
}

// FuzzStacked: a layout, key ranges and a block of rows of any bytes are refused or are written the
// same, and cost no more memory than they have bytes.
func FuzzStacked(f *testing.F) {
	for _, stored := range []bool{false, true} {
		object, _, ix := stackedShard(f, stored)
		d := codec.NewDecoder(true)
		block, err := d.Decode(nil, object[:ix.Rows[0].Stored], ix.Rows[0])
		d.Close()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(appendLayout(nil, ix.Layout), appendRanges(nil, ix.Keys.Ranges()), block, uint32(2), !stored)
	}
	f.Fuzz(func(t *testing.T, layout, keys, block []byte, n uint32, numbered bool) {
		n %= stacked.MaxSamples
		var l *stacked.Layout
		var rs samplekey.Ranges
		var err, kerr error
		used := allocated.Bytes(func() {
			r := section.Reader{Src: layout}
			l, err = readLayout(&r)
			k := section.Reader{Src: keys}
			rs, kerr = readRanges(&k, uint64(n))
		})
		if limit := uint64(64<<10 + 64*(len(layout)+len(keys))); used > limit {
			t.Fatalf("%d bytes allocated, limit %d", used, limit)
		}
		if kerr == nil && !bytes.HasPrefix(keys, appendRanges(nil, rs)) {
			t.Fatalf("%x is written %x", keys, appendRanges(nil, rs))
		}
		if kerr != nil && !sound(kerr) || err != nil && !sound(err) {
			t.Fatal(err, kerr)
		}
		if err != nil {
			return
		}
		if !bytes.HasPrefix(layout, appendLayout(nil, l)) {
			t.Fatalf("%x is written %x", layout, appendLayout(nil, l))
		}
		var b stacked.Block
		used = allocated.Bytes(func() { err = stacked.OpenBlock(&b, block, l, 0, int(n), numbered) })
		if limit := uint64(64<<10 + 4096*len(l.Fields)); used > limit {
			t.Fatalf("%d bytes allocated for a block, limit %d", used, limit)
		}
		if err != nil {
			if !sound(err) {
				t.Fatal(err)
			}
			return
		}
		for _, k := range []int{0, int(n) - 1} {
			if n > 0 && int64(len(b.Row(0, k))) != l.Fields[0].Row() {
				t.Fatal("a row of another length")
			}
		}
	})
}
