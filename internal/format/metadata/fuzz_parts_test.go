package metadata

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/codec"
	"github.com/shardtool/shardtool/internal/format/section"
	"github.com/shardtool/shardtool/internal/format/tarblock"
	"github.com/shardtool/shardtool/internal/testset/allocated"
)

// FuzzDecoder decodes any bytes as a frame of any row. What a raw frame holds, zstd finds in it
// too.
func FuzzDecoder(f *testing.F) {
	e := codec.NewEncoder(codec.LevelDefault)
	defer e.Close()
	for _, data := range [][]byte{nil, []byte("x"), words(1, 3000), noise(1, 3000), make([]byte, 70_000)} {
		f.Add(byte(0), uint32(len(data)), data)
		f.Add(byte(2), uint32(len(data)), codec.AppendRawFrame(nil, data, nil, nil))
		frame, _, err := e.AppendFrame(nil, data, nil, nil)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(byte(1), uint32(len(data)), frame)
	}
	f.Add(byte(1), uint32(tarblock.EndLen), codec.EndFrame)
	loose, strict := codec.NewDecoder(false), codec.NewDecoder(true)
	f.Fuzz(func(t *testing.T, codec byte, decoded uint32, stored []byte) {
		row := format.Row{Stored: uint32(len(stored)), Decoded: decoded % (1 << 18), Codec: format.Codec(codec % 4)}
		var got []byte
		var err error
		n := allocated.Bytes(func() { got, err = loose.Decode(nil, stored, row) })
		if limit := 1<<20 + 16*uint64(len(stored)) + 4*uint64(row.Decoded); n > limit { // a decoder has buffers too
			t.Fatalf("%d bytes allocated, limit %d", n, limit)
		}
		if err != nil {
			if !sound(err) {
				t.Fatalf("error %v", err)
			}
			return
		}
		if len(got) != int(row.Decoded) {
			t.Fatalf("%d bytes, the row says %d", len(got), row.Decoded)
		}
		checked, err := strict.Decode([]byte("before"), stored, row)
		if err == nil && string(checked) != "before"+string(got) {
			t.Fatal("with checksum other bytes")
		}
		if row.Codec == format.CodecRaw && row.Decoded > 0 {
			row.Codec = format.CodecZstd
			if other, err := loose.Decode(nil, stored, row); err != nil || !bytes.Equal(other, got) {
				t.Fatalf("zstd reads the raw frame differently: %v", err)
			}
		}
	})
}

// FuzzWalker goes through any bytes as tar, ours and foreign, by members and by samples.
func FuzzWalker(f *testing.F) {
	block := pack(f, small(), packOptions{Plain: true}).Data
	f.Add(block[:len(block)-tarblock.EndLen], false)
	f.Add(block, true)
	f.Add(append(tarblock.AppendHeader(nil, strings.Repeat("n/", 200)+"x", 0), make([]byte, 512)...), true)
	pax := appendEntry(nil, "", "x", 30, 'x')
	pax = append(pax, "12 path=a.b\n11 size=512\n7 a=bc\n"...)
	pax = append(pax, make([]byte, 512-31)...)
	f.Add(append(appendEntry(pax, "", "y", 0, '0'), make([]byte, 512)...), true)
	f.Fuzz(func(t *testing.T, buf []byte, foreign bool) {
		members, at := 0, int64(0)
		var payload int64
		for _, partial := range []bool{true, false} {
			w := tarblock.Walker{Buf: buf, Foreign: foreign, Partial: partial}
			var m tarblock.Member
			members, at, payload = 0, 0, 0
			for {
				ok, err := w.Next(&m)
				if err != nil && !sound(err) {
					t.Fatalf("error %v", err)
				}
				if !ok {
					break
				}
				if key, _ := format.SplitName(m.Name); format.CheckMember(m.Name) != nil || m.Key != len(key) {
					t.Fatalf("member %q has a key of %d bytes", m.Name, m.Key)
				}
				if m.Header < at || m.Payload < m.Header+tarblock.RecordLen || m.Size < 0 || m.End() < m.Payload {
					t.Fatalf("member %+v after %d", m, at)
				}
				if at = m.End(); !partial && at > int64(len(buf)) {
					t.Fatalf("member %+v ends beyond %d bytes", m, len(buf))
				}
				members++
				payload += m.Size
			}
		}
		it := tarblock.SampleIter{Walker: tarblock.Walker{Buf: buf, Foreign: foreign}}
		n := 0
		for it.Next() {
			if len(it.Fields) == 0 {
				t.Fatal("sample without fields")
			}
			for _, field := range it.Fields {
				n++
				payload -= int64(len(field.Data))
			}
		}
		if it.Err() == nil && (n != members || payload != 0) {
			t.Fatalf("%d fields of %d members, %d bytes left", n, members, payload)
		}
	})
}

// FuzzMetadata: what decodes is written the same.
func FuzzMetadata(f *testing.F) {
	f.Add(section.AppendMetadata(nil, format.Metadata{}))
	f.Add(section.AppendMetadata(nil, format.Metadata{"a": "b", "": "", "c": strings.Repeat("x", 300)}))
	f.Fuzz(func(t *testing.T, raw []byte) {
		m, err := section.DecodeMetadata(raw)
		if err == nil && !bytes.Equal(section.AppendMetadata(nil, m), raw) {
			t.Fatalf("%x is written %x", raw, section.AppendMetadata(nil, m))
		}
		if err != nil && !sound(err) {
			t.Fatalf("error %v", err)
		}
	})
}

// FuzzSchema: what decodes is written the same.
func FuzzSchema(f *testing.F) {
	f.Add((&Schema{}).append(nil))
	f.Add((&Schema{Fields: []string{"", "jpg", "txt"}, Shapes: [][]uint32{{0}, {1, 2}}, Attributes: []format.Attribute{{Name: "a", Kind: format.AttrLabel}, {Name: "b", Kind: format.AttrNumber}}}).append(nil))
	f.Fuzz(func(t *testing.T, raw []byte) {
		s, err := decodeSchema(raw)
		if err == nil && !bytes.Equal(s.append(nil), raw) {
			t.Fatalf("%x is written %x", raw, s.append(nil))
		}
		if err != nil && !sound(err) {
			t.Fatalf("error %v", err)
		}
	})
}

// FuzzColumns: what decodes is written so that it decodes to the same, in either encoding.
func FuzzColumns(f *testing.F) {
	for _, v := range [][]uint64{nil, {0}, {1, 2, 1 << 40}, {5, 5, 5, 5}} {
		f.Add(section.AppendPlanes(nil, v, nil), uint16(len(v)), false)
		if len(v) > 0 {
			f.Add(section.AppendDictionary(nil, v, section.Dictionary(v)), uint16(len(v)), true)
		}
	}
	f.Fuzz(func(t *testing.T, raw []byte, n uint16, dict bool) {
		s := section.Section{Kind: "TEST", Encoding: map[bool]section.Encoding{true: section.EncodingDictionary, false: section.EncodingPlanes}[dict]}
		v, err := s.Column(raw, int(n))
		if err != nil {
			if !sound(err) {
				t.Fatalf("error %v", err)
			}
			return
		}
		c := section.Column("TEST", 0, true, v)
		s.Encoding = c.Encoding
		if back, err := s.Column(c.Raw, int(n)); err != nil || !slices.Equal(back, v) {
			t.Fatalf("%d became %d, %v", v, back, err)
		}
		if d := section.Dictionary(v); d != nil && len(v) > 0 {
			if back, err := section.DecodeDictionary(section.AppendDictionary(nil, v, d), int(n)); err != nil || !slices.Equal(back, v) {
				t.Fatalf("%d became %d, %v", v, back, err)
			}
		}
	})
}

// FuzzStrings: what decodes is written so that it decodes to the same, and stays inside its limit.
func FuzzStrings(f *testing.F) {
	for _, s := range [][]string{nil, {""}, {"a", "ab", "abc", "b"}, {strings.Repeat("x", 300), strings.Repeat("x", 299) + "y"}} {
		f.Add(section.AppendStrings(nil, s, nil), uint16(len(s)))
	}
	f.Fuzz(func(t *testing.T, raw []byte, n uint16) {
		limit := maxLabels(len(raw))
		var s []string
		var err error
		if used := allocated.Bytes(func() { s, err = section.DecodeStrings(raw, int(n), limit) }); used > 64<<10+40*uint64(n)+uint64(limit) {
			t.Fatalf("%d bytes allocated", used)
		}
		if err != nil {
			if !sound(err) {
				t.Fatalf("error %v", err)
			}
			return
		}
		total := 0
		for _, x := range s {
			total += len(x)
		}
		if int64(total) > limit || len(s) != int(n) {
			t.Fatalf("%d strings of %d bytes", len(s), total)
		}
		if back, err := section.DecodeStrings(section.AppendStrings(nil, s, nil), int(n), limit); err != nil || !slices.Equal(back, s) {
			t.Fatalf("%q became %q, %v", s, back, err)
		}
	})
}
