package metadata

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/codec"
	"github.com/shardtool/shardtool/internal/format/names"
	"github.com/shardtool/shardtool/internal/format/tarblock"
)

// foreignBlock is a block as other tools leave it: a folder before, members in any order, an
// extended header, a long name.
func foreignBlock() (data []byte, ix *ShardIndex) {
	add := func(name string, size int) (payload uint64) {
		data = appendEntry(data, "", name, int64(size), '0')
		payload = uint64(len(data))
		return payload + uint64(len(func() []byte {
			data = append(data, bytes.Repeat([]byte{'x'}, size)...)
			data = append(data, make([]byte, tarblock.Padding(int64(size)))...)
			return nil
		}()))
	}
	data = appendEntry(data, "", "./dir/", 0, '5')
	txt := add("./dir/a.txt", 5)
	record := "20 comment=whatever\n"
	data = appendEntry(data, "", "PaxHeaders/x", int64(len(record)), 'x')
	data = append(append(data, record...), make([]byte, tarblock.Padding(int64(len(record))))...)
	jpg := add("dir/a.jpg", 700)
	data = appendEntry(data, "", "././@LongLink", 8, 'L')
	data = append(append(data, "dir/b.t\x00"...), make([]byte, 504)...)
	b := add("cut", 0)
	var build IndexBuilder
	_ = build.AddForeign("dir/a", []format.FieldSize{{Name: "jpg", Size: 700}, {Name: "txt", Size: 5}}, []uint64{jpg, txt})
	_ = build.AddForeign("dir/b", []format.FieldSize{{Name: "t", Size: 0}}, []uint64{b})
	build.AddRow(format.Row{Stored: uint32(len(data)), Decoded: uint32(len(data)), Samples: 2, CRC: codec.Checksum(data)})
	ix = build.Finish(nil)
	ix.Foreign, ix.End = true, 10240
	return data, ix
}

// TestForeignIndex: the index of a foreign archive survives a round trip, and locates payloads.
func TestForeignIndex(t *testing.T) {
	data, ix := foreignBlock()
	tail, err := AppendTail(nil, ix, true)
	if err != nil {
		t.Fatal(err)
	}
	p, need, err := ParseTail(tail, int64(len(tail)))
	if err != nil || need != 0 || !p.Foreign || !p.Plain() || p.DataSize != uint64(len(data))+10240 {
		t.Fatalf("%+v, %v", p, err)
	}
	off, n := p.Cold()
	back, err := p.DecodeCold(tail[off : off+n])
	if err != nil || !back.Foreign || back.End != 10240 || !slices.Equal(back.Gaps, ix.Gaps) || !slices.Equal(back.Keys.stored, ix.Keys.stored) {
		t.Fatalf("%+v, %v", back, err)
	}
	if _, err := AppendTail(nil, ix, false); err == nil {
		t.Error("a compressed foreign shard is written")
	}
	for piece := range len(data) {
		c := NewBlockChecker(back.Cursors([]int{0})[0], 2)
		if err := errors.Join(c.Write(data[:piece]), c.Write(data[piece:]), c.End()); err != nil {
			t.Fatalf("cut at %d: %v", piece, err)
		}
		if c := NewBlockChecker(back.Cursors([]int{0})[0], 2); c.Write(data[:piece]) == nil && c.End() == nil {
			t.Fatalf("the first %d bytes are taken for the block", piece)
		}
	}
	for name, change := range map[string]func(ix *ShardIndex){
		"key":        func(ix *ShardIndex) { ix.Keys.stored[1] = "dir/c" },
		"size":       func(ix *ShardIndex) { ix.Sizes[0] = StoredSizes([]uint64{699}) },
		"place":      func(ix *ShardIndex) { ix.Gaps[0] += 512 },
		"field":      func(ix *ShardIndex) { ix.Fields[1] = "u" },
		"one sample": func(ix *ShardIndex) { ix.Keys = StoredKeys(ix.Keys.stored[:1]) },
	} {
		_, other := foreignBlock()
		change(other)
		c := NewBlockChecker(other.Cursors([]int{0})[0], other.Keys.Len())
		if err := errors.Join(c.Write(data), c.End()); !errors.Is(err, format.ErrCorrupt) {
			t.Errorf("another %s: %v", name, err)
		}
	}
}

// TestForeignPlaces: an index whose payloads lie outside their blocks is corrupt.
func TestForeignPlaces(t *testing.T) {
	_, ix := foreignBlock()
	size := uint64(ix.Rows[0].Decoded)
	for _, place := range []uint64{0, 511, size - 699, size, size + 1, 1 << 63, 1<<64 - 1} {
		_, ix := foreignBlock()
		ix.Gaps[0] = place
		if _, err := AppendTail(nil, ix, true); !errors.Is(err, format.ErrCorrupt) {
			t.Errorf("payload at %d of %d: %v", place, size, err)
		}
	}
	ix.Gaps = nil
	if _, err := AppendTail(nil, ix, true); !errors.Is(err, format.ErrCorrupt) {
		t.Errorf("no places: %v", err)
	}
}

// TestForeignTables: tables record which shards are foreign, and reject invalid combinations.
func TestForeignTables(t *testing.T) {
	data, ix := foreignBlock()
	entry := func(name string) ShardEntry {
		return ShardEntry{Rows: ix.Rows, ShardInfo: ShardInfo{Name: name, Size: uint64(len(data)) + 10240, Tail: 1, Samples: 2, Blocks: 1, Rows: 1, FirstKey: "a", LastKey: "b"}}
	}
	load := func(shards ...ShardEntry) (*Manifest, error) {
		raw, _, _, err := EncodeTables(&Manifest{Totals: Totals{Generation: 1}, Shards: shards})
		if err != nil {
			return nil, err
		}
		tab, err := OpenTables(func(p []byte, off int64) error { copy(p, raw[off:]); return nil }, int64(len(raw)))
		if err != nil {
			return nil, err
		}
		return tab.Load()
	}
	own := entry("own.tar")
	own.Size = uint64(len(data)) + tarblock.EndLen
	foreign := entry("foreign.tar")
	foreign.Foreign = true
	foreign.Index.Sidecar = SidecarTag{1, 2, 3, 4, 5, 6, 7, 8}
	var shards []ShardEntry
	for i := range 11 {
		shards = append(shards, own)
		if i%3 == 1 {
			shards[i] = foreign
		}
	}
	m, err := load(shards...)
	if err != nil {
		t.Fatal(err)
	}
	for i := range m.Shards {
		if m.Shards[i].Foreign != shards[i].Foreign {
			t.Errorf("shard %d: foreign is %v", i, m.Shards[i].Foreign)
		}
		want := map[bool]string{true: "foreign.tar.0102030405060708.shidx", false: "own.tar.shidx"}[m.Shards[i].Foreign]
		if got := m.Shards[i].IndexObject(); got != want {
			t.Errorf("shard %d: the sidecar is %s, want %s", i, got, want)
		}
	}
	for name, bad := range map[string]func(s *ShardEntry){
		"not foreign": func(s *ShardEntry) { s.Foreign = false },
		"compressed":  func(s *ShardEntry) { s.Name, s.Index.Sidecar = "foreign.tar.zst", SidecarTag{} },
		"sidecar":     func(s *ShardEntry) { s.Name, s.Foreign = "own.tar.zst", false },
		"no end":      func(s *ShardEntry) { s.Size = uint64(len(data)) },
	} {
		s := foreign
		bad(&s)
		if _, err := load(s); !errors.Is(err, format.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSidecarName: a name that has a tag gives it back, and no other name does.
func TestSidecarName(t *testing.T) {
	tag := SidecarTag{0xfe, 2, 3, 4, 5, 6, 7, 8}
	name := names.Sidecar("sub/x.tar", tag)
	if archive, got, ok := names.ParseSidecar(name); !ok || archive != "sub/x.tar" || got != tag || name != "sub/x.tar.fe02030405060708.shidx" {
		t.Fatal(name, archive, got, ok)
	}
	for _, other := range []string{"x.tar.shidx", ".tar.fe02030405060708.shidx", "x.tar.FE02030405060708.shidx", "x.tar.fe020304050607.shidx", "x.tar.zst.fe02030405060708.shidx", name + ".bak"} {
		if _, _, ok := names.ParseSidecar(other); ok {
			t.Errorf("%s has a tag", other)
		}
	}
}

// FuzzForeignEntry: no bytes make the reader of entries panic, hang, or ask for more than it may;
// the walker agrees with it, and refuses just the names that CheckMember refuses.
func FuzzForeignEntry(f *testing.F) {
	data, _ := foreignBlock()
	f.Add(data)
	f.Add(data[512:])
	f.Add(make([]byte, 1024))
	f.Add(appendEntry(nil, "", "a/./b.txt", 0, '0'))
	f.Add(appendEntry(appendEntry(nil, "", "dir/", 512, 0), "", "a.txt", 0, '0'))
	f.Fuzz(func(t *testing.T, p []byte) {
		w, off := tarblock.Walker{Buf: p, Foreign: true}, int64(0)
		for {
			e, need, err := tarblock.ReadForeignEntry(p[off:])
			if need > tarblock.MaxForeignHeaders+2*tarblock.RecordLen {
				t.Fatalf("%d bytes are wanted", need)
			}
			if err != nil || need > 0 || e.Type == 0 {
				break
			}
			if e.Type == '0' {
				end := e.Payload + e.Size + tarblock.Padding(e.Size)
				if end < e.Payload || end > int64(len(p))-off {
					break
				}
				var m tarblock.Member
				ok, err := w.Next(&m)
				if format.CheckMember(e.Name) != nil {
					if ok || !errors.Is(err, format.ErrCorrupt) {
						t.Fatalf("at %d: the walker takes the name %q: %v", off, e.Name, err)
					}
					break
				}
				if err != nil || !ok || !bytes.Equal(m.Name, e.Name) || m.Payload != off+e.Payload || m.Size != e.Size {
					t.Fatalf("at %d: %q of %d bytes, the walker finds %q of %d, %v", off, e.Name, e.Size, m.Name, m.Size, err)
				}
				off += end
				continue
			}
			if e.Type != '5' {
				break // refused by what indexes archives
			}
			off += e.Payload
		}
		_ = tarblock.CheckForeignEnd(p)
		_, ix := foreignBlock()
		c := NewBlockChecker(ix.Cursors([]int{0})[0], 2)
		_ = c.Write(p)
		_ = c.End()
	})
}

// appendEntry appends a header record of any type.
func appendEntry(dst []byte, prefix, name string, size int64, typeflag byte) []byte {
	at := len(dst)
	dst = tarblock.AppendHeader(dst, name, size)
	h := dst[at:]
	h[156] = typeflag
	copy(h[345:], prefix)
	copy(h[148:156], "        ")
	sum := 0
	for _, c := range h {
		sum += int(c)
	}
	copy(h[148:156], fmt.Sprintf("%06o\x00 ", sum))
	return dst
}
