package tarblock

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/damage"
)

// memberNames are names on every side of the limits of tar's header fields.
func memberNames() []string {
	dirs := func(n int) string { return strings.Repeat("directory/", n/10+1)[:n] }
	n := []string{
		"a", "a.b", "a.b.c", "dir/a.txt", "with space.txt", "new\nline.txt", "tab\t.x", "quote\"'.x", "back\\slash.x", "dots.in.field.tar.gz",
		"utf8/ä€😀.txt", "caf\xe9.txt", "\xff\xfe/\x80.\xc3\x28", "\x01\x7f.x", " leading.x", "trailing .x ", "-dash.x", "a:b*c?.x", "%2e.x",
		strings.Repeat("x", 300) + ".x", dirs(99) + "/" + strings.Repeat("\xe9", 200), dirs(300) + "x.y",
		"first/" + strings.Repeat("y", 96) + ".z", strings.Repeat("p", 154) + "/" + strings.Repeat("q", 100),
		dirs(99) + "/tail that begins behind byte 100.txt", strings.Repeat("ä/", 40) + "ä.txt",
	}
	for _, size := range []int{99, 100, 101, 102, 155, 156, 157, 200, 254, 255, 256, 257, 258, 511, 512, 513, 1023, 1024, format.MaxName} {
		n = append(n, strings.Repeat("x", size), strings.Repeat("long name of a directory/", size)[:size-2]+"zz")
	}
	return n
}

// TestHeaderAgainstArchiveTar: Go's reader finds name, size and the fixed fields of every header of
// ours.
func TestHeaderAgainstArchiveTar(t *testing.T) {
	for _, name := range memberNames() {
		for _, size := range []int64{0, 1, 511, 512, 1 << 20, maxOctalSize, maxOctalSize + 1, 1 << 40} {
			h := AppendHeader(nil, name, size)
			if int64(len(h)) != headerLen(name) {
				t.Fatalf("%q: header of %d bytes, headerLen says %d", name, len(h), headerLen(name))
			}
			got, err := tar.NewReader(bytes.NewReader(h)).Next()
			if err != nil {
				t.Fatalf("%q, %d bytes: %v", name, size, err)
			}
			if got.Name != name || got.Size != size || got.Mode != 0o444 || got.Uid != 0 || got.Gid != 0 || got.ModTime.Unix() != 0 || got.Typeflag != tar.TypeReg {
				t.Fatalf("%q, %d bytes: archive/tar reads %+v", name, size, got)
			}
			w, m := Walker{Buf: h, Partial: true}, Member{}
			if ok, err := w.Next(&m); !ok || err != nil || string(m.Name) != name || m.Size != size || m.Payload != int64(len(h)) {
				t.Fatalf("%q, %d bytes: walker reads %+v, %v, %v", name, size, m, ok, err)
			}
			f, m := Walker{Buf: h, Partial: true, Foreign: true}, Member{}
			if ok, err := f.Next(&m); !ok || err != nil || string(m.Name) != name || m.Size != size {
				t.Fatalf("%q, %d bytes: foreign walker reads %+v, %v, %v", name, size, m, ok, err)
			}
			key, field := format.SplitName([]byte(name))
			if n := FieldHeaderLen(string(key), string(field)); n != headerLen(name) {
				t.Fatalf("%q: fieldHeaderLen %d, headerLen %d", name, n, headerLen(name))
			}
		}
	}
}

// TestArchiveAgainstArchiveTar: a block and an end-of-archive are an archive whose contents Go
// reads.
func TestArchiveAgainstArchiveTar(t *testing.T) {
	var b Builder
	for i, name := range memberNames() {
		data := bytesOf(uint64(i), i*37)
		at := b.Member(name, len(data))
		copy(b.Buf[at:], data)
	}
	r := tar.NewReader(bytes.NewReader(append(b.Buf, make([]byte, EndLen)...)))
	for i, name := range memberNames() {
		h, err := r.Next()
		if err != nil || h.Name != name {
			t.Fatalf("member %d: %v, %v, want %q", i, h, err, name)
		}
		if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, bytesOf(uint64(i), i*37)) {
			t.Fatalf("member %q: %d bytes, %v", name, len(got), err)
		}
	}
	if _, err := r.Next(); err != io.EOF {
		t.Fatalf("after the last member: %v", err)
	}
}

// TestWalkerRefuses: in blocks of ours nothing is passed over.
func TestWalkerRefuses(t *testing.T) {
	good := AppendHeader(nil, "a.txt", 3)
	good = append(append(good, "abc"...), make([]byte, 509)...)
	long := AppendHeader(nil, strings.Repeat("d/", 200)+"x", 0)
	edit := func(base []byte, at int, with string) []byte {
		b := bytes.Clone(base)
		copy(b[at:], with)
		return b
	}
	for name, b := range map[string][]byte{
		"cut header":               good[:511],
		"cut payload":              good[:1023],
		"bytes after the member":   append(bytes.Clone(good), 1),
		"end of archive inside":    append(bytes.Clone(good), make([]byte, 1024)...),
		"no magic":                 edit(good, 257, "xstar"),
		"directory":                edit(good, 156, "5"),
		"symbolic link":            edit(good, 156, "2"),
		"old regular file":         edit(good, 156, "\x00"),
		"extended header":          edit(good, 156, "x"),
		"size with a letter":       edit(good, 124, "0000000000g"),
		"no size":                  edit(good, 124, strings.Repeat("\x00", 12)),
		"size beyond the end":      edit(good, 124, "00000001001"),
		"negative size":            edit(good, 124, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"),
		"size of 2^62":             edit(good, 124, "\x80\x00\x00\x00\x40\x00\x00\x00\x00\x00\x00\x00"),
		"size of 2^63":             edit(good, 124, "\x80\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00"),
		"long name without member": long[:1024],
		"long name twice":          append(bytes.Clone(long[:1024]), long...),
		"long name without NUL":    edit(long, 124, "00000000620"),
		"long name with tail":      edit(long, 512+5, "\x00"),
	} {
		w, m := Walker{Buf: b}, Member{}
		var err error
		for ok := true; ok && err == nil; {
			ok, err = w.Next(&m)
		}
		if !errors.Is(err, format.ErrCorrupt) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// TestSampleIter: members of one key are one sample; fields are found by name.
func TestSampleIter(t *testing.T) {
	var b Builder
	for _, name := range []string{"a", "a.x", "a.y", "b/a.x", "b.x", "a.x"} {
		copy(b.Buf[b.Member(name, len(name)):], name)
	}
	var got []string
	it := SampleIter{Walker: Walker{Buf: b.Buf}}
	for it.Next() {
		got = append(got, fmt.Sprintf("%s@%d:%d", it.Key, it.Offset/1024, len(it.Fields)))
		for _, f := range it.Fields {
			if string(f.Data) != format.JoinName(string(it.Key), string(f.Name)) {
				t.Errorf("field %q of %q holds %q", f.Name, it.Key, f.Data)
			}
		}
	}
	if s := strings.Join(got, " "); s != "a@0:3 b/a@3:1 b@4:1 a@5:1" || it.Err() != nil {
		t.Errorf("samples %s, error %v", s, it.Err())
	}
	if n := testing.AllocsPerRun(100, func() {
		it := SampleIter{Walker: Walker{Buf: b.Buf}, Fields: it.Fields}
		for it.Next() {
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestBlockBuilder: memory that is used again leaves nothing of the block before in padding.
func TestBlockBuilder(t *testing.T) {
	var b Builder
	for round := range 3 {
		b.Reset()
		for i, n := range []int{1000, 1, 513, 0, 512} {
			at := b.Member(fmt.Sprintf("%d.x", i), n)
			copy(b.Buf[at:at+n], bytes.Repeat([]byte{0xaa}, n))
		}
		it := Walker{Buf: b.Buf}
		var m Member
		for {
			ok, err := it.Next(&m)
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				break
			}
			if !damage.AllZero(b.Buf[m.Payload+m.Size : m.End()]) {
				t.Errorf("round %d: padding of %s is not zero", round, m.Name)
			}
		}
		b.Buf = append(b.Buf[:0], bytes.Repeat([]byte{0xff}, cap(b.Buf))...)
	}
}

// bytesOf returns n bytes that depend on seed.
func bytesOf(seed uint64, n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(seed + uint64(i)*(seed|1))
	}
	return p
}
