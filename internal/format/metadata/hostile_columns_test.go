package metadata

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/codec"
	"github.com/shardtool/shardtool/internal/format/damage"
	"github.com/shardtool/shardtool/internal/format/section"
	"github.com/shardtool/shardtool/internal/format/tarblock"
	"github.com/shardtool/shardtool/internal/testset/allocated"
)

// TestHostileColumns sets every integer of every column to hostile values, in both encodings.
func TestHostileColumns(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine: make test runs it without the race detector")
	}
	for _, plain := range []bool{false, true} {
		s := pack(t, small(), packOptions{Block: 1500, Frame: 1024, Plain: plain})
		base := partsOf(s)
		try := func(i int, what string, edited section.Raw, mayPass bool) {
			p := *base
			p.cold, p.hot = slices.Clone(base.cold), slices.Clone(base.hot)
			if i < len(p.cold) {
				p.cold[i] = edited
			} else {
				p.hot[i-len(p.cold)] = edited
			}
			obj := p.build()
			_, _, err := openIndex(t, obj)
			if err == nil && plain {
				_, err = checkSidecar(p.data, obj)
			} else if err == nil {
				_, err = checkShard(obj)
			}
			if err == nil && !mayPass {
				t.Errorf("plain %v: section %s, part %d: %s: passes", plain, edited.Kind, edited.Part, what)
			}
			if err != nil && !sound(err) {
				t.Errorf("plain %v: section %s, part %d: %s: %v", plain, edited.Kind, edited.Part, what, err)
			}
		}
		for i, sec := range append(slices.Clone(base.cold), base.hot...) {
			n := map[string]int{typeStored: len(base.rows), typeDecoded: len(base.rows), typeSamples: len(base.rows), typeCodec: len(base.rows),
				typeShape: int(base.samples), typeAttr: int(base.samples)}[sec.Kind]
			if sec.Kind == typeSize {
				n = s.Index.Sizes[sec.Part].Len()
			}
			if sec.Kind == typeGap {
				n = len(s.Index.Gaps)
			}
			if n == 0 {
				continue
			}
			src := section.Section{Kind: sec.Kind, Encoding: sec.Encoding}
			v, err := src.Column(sec.Raw, n)
			if err != nil {
				t.Fatal(err)
			}
			for at := range v {
				for _, x := range hostileValues {
					e := slices.Clone(v)
					if e[at] = x; x == v[at] {
						continue
					}
					what := fmt.Sprintf("integer %d is %#x, not %#x", at, x, v[at])
					free := sec.Kind == typeAttr || (sec.Kind == typeCodec && x == 1)
					edited := section.Raw{Kind: sec.Kind, Part: sec.Part, Critical: true, Raw: section.AppendPlanes(nil, e, nil)}
					try(i, what, edited, free)
					edited.Encoding, edited.Raw = section.EncodingDictionary, section.AppendDictionary(nil, e, section.Dictionary(e))
					try(i, what+" (dictionary)", edited, free)
				}
			}
			if slices.Max(v) > 0 {
				try(i, "zeros", section.Raw{Kind: sec.Kind, Part: sec.Part, Critical: true, Raw: []byte{0}}, sec.Kind == typeAttr)
			}
		}
	}
}

// TestManyZeroColumns: columns of zeros take no bytes, so they must take no memory either, however
// many there are.
func TestManyZeroColumns(t *testing.T) {
	var samples []testSample
	for i := range 3000 {
		s := one(fmt.Sprintf("%d", i), "x", "")
		if i == 0 {
			for a := range 2000 {
				s.Attrs = append(s.Attrs, integer(fmt.Sprintf("attribute %04d", a), 0))
			}
		}
		samples = append(samples, s)
	}
	p := partsOf(pack(t, samples, packOptions{}))
	p.cold = slices.DeleteFunc(p.cold, func(s section.Raw) bool { return s.Kind == typeAbsent })
	obj := p.build()
	if len(obj) > 300_000 {
		t.Fatalf("object of %d bytes proves nothing", len(obj))
	}
	if _, ix, err := openIndex(t, obj); err != nil || len(ix.Attrs) != 2000 {
		t.Fatalf("error %v", err)
	}
}

// TestManyNames: front coding lets few bytes name many; limits hold.
func TestManyNames(t *testing.T) {
	long := string(bytes.Repeat([]byte("x"), 100_000))
	hostile := func(n int) []byte {
		names := make([]string, n)
		for i := range names {
			names[i] = long
		}
		return section.AppendStrings(nil, names, nil)
	}
	raw := hostile(5000)
	n := allocated.Bytes(func() {
		if _, err := section.DecodeStrings(raw, 5000, maxLabels(len(raw))); !errors.Is(err, format.ErrCorrupt) {
			t.Errorf("500 MB of labels out of %d bytes: %v", len(raw), err)
		}
	})
	if n > 1<<20 {
		t.Errorf("%d bytes allocated", n)
	}
	p := partsOf(smallShard(t, false))
	for i := range p.cold {
		if p.cold[i].Kind == typeKeys {
			p.cold[i].Raw = hostile(int(p.samples))
		}
	}
	if _, _, err := openIndex(t, p.build()); !errors.Is(err, format.ErrCorrupt) {
		t.Errorf("keys that are longer than the blocks: %v", err)
	}
}

// TestContentBound: the size that a section claims is compared with the headers of its zstd blocks
// before memory is allocated.
func TestContentBound(t *testing.T) {
	z := section.Zstd()
	for _, n := range []int{0, 1, 100, (128 << 10), (128 << 10) + 1, 1 << 20} {
		for _, data := range [][]byte{noise(1, n), words(1, n), make([]byte, n)} {
			frames := z.EncodeAll(data, z.EncodeAll(data, nil))
			if got := codec.ContentBound(frames); got < uint64(2*n) || got > uint64(2*n+4*(128<<10)) {
				t.Errorf("two frames of %d bytes hold at most %d", n, got)
			}
			for cut := 1; cut < min(len(frames), 200); cut++ {
				if got := codec.ContentBound(frames[:len(frames)-cut]); got != 0 && cut < len(frames)/2 {
					t.Errorf("without the last %d bytes of %d they hold at most %d", cut, len(frames), got)
				}
			}
		}
	}
	if got := codec.ContentBound(codec.EndFrame); got != tarblock.EndLen {
		t.Errorf("the end-of-archive holds at most %d", got)
	}
	s := section.Section{Kind: "TEST", Codec: format.CodecZstd, Stored: uint32(len(codec.EndFrame)), Raw: 15 * codec.MaxExpand, Crc: codec.Checksum(codec.EndFrame)}
	if n := allocated.Bytes(func() {
		if _, err := s.Payload(codec.EndFrame); !errors.Is(err, format.ErrCorrupt) {
			t.Errorf("a section of %d bytes in %d: %v", s.Raw, s.Stored, err)
		}
	}); n > 4096 {
		t.Errorf("%d bytes allocated", n)
	}
	s.Raw = tarblock.EndLen
	if got, err := s.Payload(codec.EndFrame); err != nil || !damage.AllZero(got) || len(got) != tarblock.EndLen {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}
