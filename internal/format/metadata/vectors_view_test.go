package metadata

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strconv"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/curate/viewfile"
	"github.com/shardtool/shardtool/internal/format/damage"
	"github.com/shardtool/shardtool/internal/format/section"
)

// idOf is the first seven digits of a view's ID as a number, which its vector has as its value.
func idOf(t *testing.T, v *viewfile.View) int {
	t.Helper()
	n, err := strconv.ParseInt(v.ID()[:7], 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	return int(n)
}

// checkView reads the vector of a view.
func (v *vector) checkView() error {
	head, err := viewfile.Head(v.data)
	if err != nil {
		return err
	}
	got, err := viewfile.Decode(v.data, head.Digest, head.Samples)
	if err != nil {
		return err
	}
	if n, err := strconv.ParseInt(got.ID()[:7], 16, 64); err != nil || int(n) != v.extra {
		return damage.Errorf("the ID is %s", got.ID())
	}
	return nil
}

// viewHead is the section VHED of a view.
func viewHead(v *viewfile.View) []byte {
	head := binary.LittleEndian.AppendUint64(slices.Clone(v.Digest[:]), v.Samples)
	head = binary.LittleEndian.AppendUint64(head, v.Draws)
	if v.Classes != nil {
		head = binary.LittleEndian.AppendUint64(head, uint64(len(v.Classes)))
	}
	return head
}

// viewVectors are views, and views with one fault whose checksums are right.
func viewVectors(t *testing.T) (out []vector) {
	subset := &viewfile.View{Digest: format.Hash{1, 2, 3}, Samples: 20, Chosen: []byte{0x81, 0x00, 0x0a}}
	weights := &viewfile.View{Digest: format.Hash{1, 2, 3}, Samples: 5, Draws: 9, Weights: []uint32{0, 1, 1 << 31, 70_000, 3}}
	few := &viewfile.View{Digest: format.Hash{9}, Samples: 100, Draws: 50, Weights: make([]uint32, 100)}
	for i := range few.Weights {
		few.Weights[i] = []uint32{0, 1 << 30, 1<<32 - 1}[i%3]
	}
	classes := &viewfile.View{Digest: format.Hash{1, 2, 3}, Samples: 6, Draws: 9, Weights: []uint32{1, 0, 2, 1, 2, 3}, Classes: []uint64{1, 3, 1 << 40}}
	file := func(secs []section.Raw) []byte {
		body, dir, err := section.Append(nil, uint64(section.DirectoryLen(len(secs))), secs)
		if err != nil {
			t.Fatal(err)
		}
		return append(section.AppendDirectory(nil, "SHRDVIW1", dir), body...)
	}
	add := func(name, expect, note string, id int, data []byte) {
		out = append(out, vector{"view-" + name, "view", expect, note, data, id})
	}
	for name, v := range map[string]*viewfile.View{"subset": subset, "weights": weights, "dictionary": few, "classes": classes} {
		data, err := v.Encode()
		if err != nil {
			t.Fatal(err)
		}
		add(name, "ok", "a view of "+strconv.Itoa(int(v.Samples))+" samples; the value is the beginning of its ID", idOf(t, v), data)
	}
	head := section.Raw{Kind: "VHED", Critical: true, Raw: viewHead(subset)}
	bits := section.Raw{Kind: "VBIT", Critical: true, Raw: subset.Chosen}
	add("other", "ok", "an unknown section that is not critical", idOf(t, subset), file([]section.Raw{head, bits, {Kind: "NEW!", Raw: []byte("x")}}))
	add("critical", "version", "an unknown section that is critical", 0, file([]section.Raw{head, bits, {Kind: "NEW!", Critical: true, Raw: []byte("x")}}))
	past := bits
	past.Raw = []byte{0x81, 0x00, 0x1a}
	add("bits-past", "corrupt", "a bit after those of the samples", 0, file([]section.Raw{head, past}))
	short := bits
	short.Raw = bits.Raw[:2]
	add("bits-short", "corrupt", "a byte of bits too few", 0, file([]section.Raw{head, short}))
	add("no-bits", "corrupt", "a subset without bits", 0, file([]section.Raw{head}))
	second := bits
	second.Part = 1
	add("part-other", "corrupt", "the second part first", 0, file([]section.Raw{head, second}))
	drawn := section.Raw{Kind: "VHED", Critical: true, Raw: viewHead(weights)}
	add("kinds", "corrupt", "bits in a view with draws", 0, file([]section.Raw{drawn, {Kind: "VBIT", Critical: true, Raw: []byte{1}}}))
	large := section.Column("VWGT", 0, true, []uint64{0, 1, 1 << 32, 3, 4})
	add("weight-large", "corrupt", "a weight of 2^32", 0, file([]section.Raw{drawn, large}))
	classed := section.Raw{Kind: "VHED", Critical: true, Raw: viewHead(classes)}
	of := section.Column("VCLS", 0, true, classes.Classes)
	members := section.Column("VWGT", 0, true, []uint64{1, 0, 2, 1, 2, 3})
	add("classes-none", "corrupt", "a view with 3 classes without their weights", 0, file([]section.Raw{classed, members}))
	add("classes-without", "corrupt", "weights of classes in a view without classes", 0, file([]section.Raw{drawn, of, section.Column("VWGT", 0, true, []uint64{0, 1, 2, 2, 1})}))
	add("classes-order", "corrupt", "classes that are not numbered by their first samples", 0, file([]section.Raw{classed, of, section.Column("VWGT", 0, true, []uint64{2, 0, 1, 1, 2, 3})}))
	add("classes-past", "corrupt", "a sample of class 4 of 3", 0, file([]section.Raw{classed, of, section.Column("VWGT", 0, true, []uint64{1, 0, 2, 3, 2, 4})}))
	add("classes-empty", "corrupt", "a class without samples", 0, file([]section.Raw{classed, of, section.Column("VWGT", 0, true, []uint64{1, 0, 2, 1, 2, 2})}))
	add("classes-zero", "corrupt", "a class of weight 0", 0, file([]section.Raw{classed, section.Column("VCLS", 0, true, []uint64{1, 0, 5}), members}))
	add("classes-late", "corrupt", "the weights of classes after the samples", 0, file([]section.Raw{classed, members, of}))
	changed := slices.Clone(out[0].data)
	for i := range out {
		if out[i].name == "view-subset" {
			changed = bytes.Clone(out[i].data)
		}
	}
	changed[len(changed)-1] ^= 1
	add("checksum", "corrupt", "a bit changed", 0, changed)
	return out
}
