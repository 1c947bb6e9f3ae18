package stacked

import (
	"archive/tar"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/format"
)

// pairs is a layout of a number and of an array of two numbers.
func pairs() *Layout {
	return &Layout{Fields: []Field{{Name: "score", DType: "<f4"}, {Name: "x.npy", DType: "<u2", Shape: []int64{2}}}}
}

// pairBlock is a block of three samples, the first with number 7 in the shard; with keys it stores
// them.
func pairBlock(keys ...string) *Block {
	width := 0
	for _, k := range keys {
		width = max(width, len(k))
	}
	b, _, _ := NewBlock(nil, pairs(), 7, 3, width)
	for k := range 3 {
		binary.LittleEndian.PutUint32(b.Row(0, k), math.Float32bits(float32(k)/2))
		copy(b.Row(1, k), []byte{byte(k), 0, 0xff, byte(k)})
		if keys != nil {
			b.SetKey(k, keys[k])
		}
	}
	return b
}

// members lists a tar archive as another tool sees it.
func members(t *testing.T, archive []byte) (names []string, data [][]byte) {
	t.Helper()
	r := tar.NewReader(bytes.NewReader(archive))
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return names, data
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		names, data = append(names, h.Name), append(data, content)
	}
}

// array returns an NPY file of version 1.0 as NumPy's description of the format has it: the header
// ends with a newline at a multiple of 64.
func array(descr, shape string, rows ...byte) []byte {
	head := "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }"
	head += strings.Repeat(" ", (64-(10+len(head)+1)%64)%64) + "\n"
	out := append([]byte("\x93NUMPY\x01\x00"), byte(len(head)), byte(len(head)>>8))
	return append(append(out, head...), rows...)
}

// TestBlockMembers reads a block with Go's tar reader: the arrays are the samples' rows.
func TestBlockMembers(t *testing.T) {
	names, data := members(t, pairBlock("a", "dir/long", "b").Buf)
	if want := []string{"000000007.score.npy", "000000007.x.npy", "000000007.__key__.npy"}; !slices.Equal(names, want) {
		t.Fatalf("members %q", names)
	}
	for i, want := range [][]byte{
		array("<f4", "(3,)", 0, 0, 0, 0, 0, 0, 0, 0x3f, 0, 0, 0x80, 0x3f),
		array("<u2", "(3, 2)", 0, 0, 0xff, 0, 1, 0, 0xff, 1, 2, 0, 0xff, 2),
		append(array("|S8", "(3,)"), "a\x00\x00\x00\x00\x00\x00\x00dir/longb\x00\x00\x00\x00\x00\x00\x00"...),
	} {
		if !bytes.Equal(data[i], want) {
			t.Errorf("%s is\n%q, want\n%q", names[i], data[i], want)
		}
	}
}

// TestOpenBlock finds keys, rows and fields of samples.
func TestOpenBlock(t *testing.T) {
	keys := []string{"a", "dir/long", "b"}
	for _, numbered := range []bool{false, true} {
		made := pairBlock(keys...)
		if numbered {
			made = pairBlock()
		}
		var b Block
		if err := OpenBlock(&b, made.Buf, pairs(), 7, 3, numbered); err != nil {
			t.Fatal(err)
		}
		for k := range 3 {
			if !numbered && string(b.Key(k)) != keys[k] {
				t.Errorf("key %d is %q", k, b.Key(k))
			}
			base, stride := b.Rows(1)
			row := []byte{byte(k), 0, 0xff, byte(k)}
			if stride != 4 || !bytes.Equal(b.Buf[base+k*stride:][:stride], row) || !bytes.Equal(b.Row(1, k), row) {
				t.Errorf("row %d is %x", k, b.Row(1, k))
			}
			if got, want := b.AppendField(nil, 1, k), array("<u2", "(2,)", row...); !bytes.Equal(got, want) || b.layout.Fields[1].Size() != int64(len(want)) {
				t.Errorf("field of sample %d is %q", k, got)
			}
			names, data := members(t, b.AppendTar(nil, k, []byte(keys[k])))
			if !slices.Equal(names, []string{keys[k] + ".score", keys[k] + ".x.npy"}) || !bytes.Equal(data[0], b.AppendField(nil, 0, k)) || !bytes.Equal(data[1], b.AppendField(nil, 1, k)) {
				t.Errorf("as a tar, sample %d is %q", k, names)
			}
		}
	}
}

// TestDamage flips each byte of a block, cuts it at each length and gives it another number of
// samples. Whatever is no row and no key is found, with an error that wraps ErrCorrupt.
func TestDamage(t *testing.T) {
	for _, stored := range []bool{false, true} {
		made := pairBlock()
		if stored {
			made = pairBlock("a/8", "bb", "c")
		}
		var b Block
		open := func(p []byte, first uint64, n int) error { return OpenBlock(&b, p, pairs(), first, n, !stored) }
		if err := open(made.Buf, 7, 3); err != nil {
			t.Fatal(err)
		}
		rows, keys := make([]bool, len(made.Buf)), make([]bool, len(made.Buf))
		for f := range pairs().Fields {
			base, stride := made.Rows(f)
			for i := range 3 * stride {
				rows[base+i] = true
			}
		}
		if stored {
			for i := range 3 * made.width {
				keys[made.bases[2]+i] = true
			}
		}
		for i := range made.Buf {
			bad := bytes.Clone(made.Buf)
			bad[i] ^= 1 << (i % 8)
			err := open(bad, 7, 3)
			if err != nil && !errors.Is(err, format.ErrCorrupt) || rows[i] && err != nil || !rows[i] && !keys[i] && err == nil {
				t.Fatalf("byte %d: %v", i, err)
			}
		}
		for n := range made.Buf {
			if err := open(made.Buf[:n], 7, 3); !errors.Is(err, format.ErrCorrupt) {
				t.Fatalf("%d bytes: %v", n, err)
			}
		}
		if err := open(append(bytes.Clone(made.Buf), make([]byte, 512)...), 7, 3); !errors.Is(err, format.ErrCorrupt) {
			t.Errorf("bytes after the block: %v", err)
		}
		for _, n := range []int{0, 2, 4, 1 << 20, math.MaxInt32} {
			if err := open(made.Buf, 7, n); !errors.Is(err, format.ErrCorrupt) {
				t.Errorf("%d samples: %v", n, err)
			}
		}
		if err := open(made.Buf, 8, 3); !errors.Is(err, format.ErrCorrupt) {
			t.Errorf("another first number: %v", err)
		}
		if err := OpenBlock(&b, made.Buf, pairs(), 7, 3, stored); !errors.Is(err, format.ErrCorrupt) {
			t.Errorf("keys of the other kind: %v", err)
		}
	}
}

// TestBadKeys refuses stored keys that no sample can have.
func TestBadKeys(t *testing.T) {
	for _, key := range []string{"", "a.b", "../a", "/a", "a\x00b", "a//b"} {
		b := pairBlock("k", key, "four")
		if err := OpenBlock(new(Block), b.Buf, pairs(), 7, 3, false); !errors.Is(err, format.ErrCorrupt) {
			t.Errorf("%q: %v", key, err)
		}
	}
}

// TestLayout compares layouts and computes lengths.
func TestLayout(t *testing.T) {
	l := pairs()
	if err := l.Check(); err != nil || l.Row() != 8 || l.Fields[1].String() != "<u2 (2)" {
		t.Errorf("%v, rows of %d bytes, %s", err, l.Row(), l.Fields[1].String())
	}
	var none *Layout
	for name, o := range map[string]*Layout{
		"type":   {Fields: []Field{{Name: "score", DType: "<i4"}, l.Fields[1]}},
		"name":   {Fields: []Field{{Name: "score2", DType: "<f4"}, l.Fields[1]}},
		"shape":  {Fields: []Field{l.Fields[0], {Name: "x.npy", DType: "<u2", Shape: []int64{2, 1}}}},
		"number": {Fields: l.Fields[:1]},
		"none":   none,
	} {
		if l.Equal(o) || o.Equal(l) {
			t.Errorf("a layout with another %s is equal", name)
		}
	}
	if !l.Equal(pairs()) || !none.Equal(nil) {
		t.Error("equal layouts are not")
	}
}
