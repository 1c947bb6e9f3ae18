package sections

import (
	"bytes"
	"slices"
	"strconv"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/format/internal/damage"
)

// idOf is the first seven digits of a view's ID as a number, which its vector has as its value.
func idOf(t *testing.T, v *View) int {
	t.Helper()
	n, err := strconv.ParseInt(v.ID()[:7], 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	return int(n)
}

// checkView reads the vector of a view.
func (v *vector) checkView() error {
	head, err := ViewHead(v.data)
	if err != nil {
		return err
	}
	got, err := DecodeView(v.data, head.Digest, head.Samples)
	if err != nil {
		return err
	}
	if n, err := strconv.ParseInt(got.ID()[:7], 16, 64); err != nil || int(n) != v.extra {
		return damage.Errorf("the ID is %s", got.ID())
	}
	return nil
}

// viewVectors are views, and views with one fault whose checksums are right.
func viewVectors(t *testing.T) (out []vector) {
	subset := &View{Digest: format.Hash{1, 2, 3}, Samples: 20, Chosen: []byte{0x81, 0x00, 0x0a}}
	weights := &View{Digest: format.Hash{1, 2, 3}, Samples: 5, Draws: 9, Weights: []uint32{0, 1, 1 << 31, 70_000, 3}}
	few := &View{Digest: format.Hash{9}, Samples: 100, Draws: 50, Weights: make([]uint32, 100)}
	for i := range few.Weights {
		few.Weights[i] = []uint32{0, 1 << 30, 1<<32 - 1}[i%3]
	}
	file := func(secs []rawSection) []byte {
		body, dir, err := appendSections(nil, uint64(directoryLen(len(secs))), secs)
		if err != nil {
			t.Fatal(err)
		}
		return append(appendDirectory(nil, magicView, dir), body...)
	}
	add := func(name, expect, note string, id int, data []byte) {
		out = append(out, vector{"view-" + name, "view", expect, note, data, id})
	}
	for name, v := range map[string]*View{"subset": subset, "weights": weights, "dictionary": few} {
		data, err := v.Encode()
		if err != nil {
			t.Fatal(err)
		}
		add(name, "ok", "a view of "+strconv.Itoa(int(v.Samples))+" samples; the value is the beginning of its ID", idOf(t, v), data)
	}
	head := rawSection{kind: typeViewHead, critical: true, raw: subset.appendHead(nil)}
	bits := rawSection{kind: typeViewBits, critical: true, raw: subset.Chosen}
	add("other", "ok", "an unknown section that is not critical", idOf(t, subset), file([]rawSection{head, bits, {kind: "NEW!", raw: []byte("x")}}))
	add("critical", "version", "an unknown section that is critical", 0, file([]rawSection{head, bits, {kind: "NEW!", critical: true, raw: []byte("x")}}))
	past := bits
	past.raw = []byte{0x81, 0x00, 0x1a}
	add("bits-past", "corrupt", "a bit after those of the samples", 0, file([]rawSection{head, past}))
	short := bits
	short.raw = bits.raw[:2]
	add("bits-short", "corrupt", "a byte of bits too few", 0, file([]rawSection{head, short}))
	add("no-bits", "corrupt", "a subset without bits", 0, file([]rawSection{head}))
	second := bits
	second.part = 1
	add("part-other", "corrupt", "the second part first", 0, file([]rawSection{head, second}))
	drawn := rawSection{kind: typeViewHead, critical: true, raw: weights.appendHead(nil)}
	add("kinds", "corrupt", "bits in a view with draws", 0, file([]rawSection{drawn, {kind: typeViewBits, critical: true, raw: []byte{1}}}))
	large := columnSection(typeWeights, 0, true, []uint64{0, 1, 1 << 32, 3, 4})
	add("weight-large", "corrupt", "a weight of 2^32", 0, file([]rawSection{drawn, large}))
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
