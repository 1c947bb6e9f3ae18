package metadata

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/codec"
	"github.com/shardtool/shardtool/internal/format/damage"
	"github.com/shardtool/shardtool/internal/format/names"
	"github.com/shardtool/shardtool/internal/format/samplekey"
	"github.com/shardtool/shardtool/internal/format/section"
)

const vectorDir = "../../../testdata/spec/vectors"

// vector is an object with at most one fault, and the result that every reader must give.
type vector struct {
	name   string
	kind   string // shard, sidecar, tables, keys, summary, view
	expect string // ok, corrupt, version
	note   string
	data   []byte
	extra  int // of a sidecar: length of its tar; of a view: the beginning of its ID
}

func (v *vector) encode() []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "kind: %s\nexpect: %s\nnote: %s\n", v.kind, v.expect, v.note)
	if v.extra > 0 {
		fmt.Fprintf(&b, "value: %d\n", v.extra)
	}
	b.WriteByte('\n')
	for line := range slices.Chunk([]byte(base64.StdEncoding.EncodeToString(v.data)), 76) {
		b.Write(line)
		b.WriteByte('\n')
	}
	return []byte(b.String())
}

func decodeVector(name string, text []byte) (v vector, err error) {
	head, body, ok := strings.Cut(string(text), "\n\n")
	if !ok {
		return v, fmt.Errorf("%s has no body", name)
	}
	v.name = name
	for line := range strings.Lines(head) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch key {
		case "kind":
			v.kind = value
		case "expect":
			v.expect = value
		case "note":
			v.note = value
		case "value":
			if _, err := fmt.Sscan(value, &v.extra); err != nil {
				return v, err
			}
		default:
			return v, fmt.Errorf("%s: header %q", name, line)
		}
	}
	v.data, err = base64.StdEncoding.DecodeString(strings.ReplaceAll(body, "\n", ""))
	return v, err
}

// check reads a vector as a reader of its kind would, and returns what it finds.
func (v *vector) check() error {
	switch v.kind {
	case "shard":
		_, err := checkShard(v.data)
		return err
	case "sidecar":
		t, _, err := ParseTail(v.data, int64(len(v.data)))
		if err != nil {
			return err
		}
		if !t.Plain() || t.DataSize != uint64(v.extra) {
			return damage.Errorf("sidecar of a tar of %d bytes", t.DataSize)
		}
		off, n := t.Cold()
		_, err = t.DecodeCold(v.data[off : off+n])
		return err
	case "tables":
		t, err := OpenTables(readFrom(v.data), int64(len(v.data)))
		if err != nil {
			return err
		}
		m, err := t.Load()
		if err == nil && m.digest() != t.Digest {
			err = damage.Errorf("digest")
		}
		return err
	case "keys":
		t := samplekey.Table{Entries: uint64(v.extra)}
		if int64(len(v.data)) != t.Size() {
			return damage.Errorf("keys table of %d bytes", len(v.data))
		}
		if err := t.CheckHeader(v.data[:samplekey.HeaderLen]); err != nil {
			return err
		}
		_, err := t.Decode(nil, v.data[samplekey.HeaderLen:], 0, t.Groups())
		return err
	case "summary":
		_, err := DecodeSummary(v.data)
		return err
	case "view":
		return v.checkView()
	}
	return fmt.Errorf("kind %q", v.kind)
}

// TestVectors runs the vectors that are there, and with -update writes those that are missing.
func TestVectors(t *testing.T) {
	made := append(makeVectors(t), viewVectors(t)...)
	if *update {
		if err := os.MkdirAll(vectorDir, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, v := range made {
			file := filepath.Join(vectorDir, v.name+".txt")
			if _, err := os.Stat(file); os.IsNotExist(err) {
				if err := os.WriteFile(file, v.encode(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	files, err := filepath.Glob(filepath.Join(vectorDir, "*.txt"))
	if err != nil || len(files) < 40 {
		t.Fatalf("%d vectors in %s, %v", len(files), vectorDir, err)
	}
	want := map[string]error{"ok": nil, "corrupt": format.ErrCorrupt, "version": format.ErrVersion}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		v, err := decodeVector(filepath.Base(file), text)
		if err != nil {
			t.Fatal(err)
		}
		expect, known := want[v.expect]
		if got := v.check(); !known || !errors.Is(got, expect) || (expect == nil && got != nil) {
			t.Errorf("%s (%s): %v, expected %s", v.name, v.note, got, v.expect)
		}
	}
	// What a writer makes today is what it made when the vectors were written.
	for _, v := range made {
		text, err := os.ReadFile(filepath.Join(vectorDir, v.name+".txt"))
		if err != nil {
			t.Fatalf("%v: go test ./internal/format/metadata -run TestVectors -update writes it", err)
		}
		if v.expect == "ok" && !bytes.Equal(text, v.encode()) {
			t.Errorf("%s: other bytes are written today", v.name)
		}
	}
}

// makeVectors derives all vectors from a small shard, its sidecar, tables, keys and summary.
func makeVectors(t *testing.T) (out []vector) {
	shard := smallShard(t, false)
	obj := shard.object()
	plain := smallShard(t, true)
	add := func(kind, name, expect, note string, extra int, data []byte) {
		out = append(out, vector{kind + "-" + name, kind, expect, note, bytes.Clone(data), extra})
	}
	edit := func(data []byte, f func(b []byte)) []byte {
		b := bytes.Clone(data)
		f(b)
		return b
	}
	tail, _, err := ParseTail(obj, int64(len(obj)))
	if err != nil {
		t.Fatal(err)
	}
	seekLen := len(seekTable(shard.Index.Rows, len(codec.EndFrame), 0, 0))
	loc := len(obj) - seekLen - locatorLen
	// relocate edits the locator and puts its checksum right again.
	relocate := func(f func(l []byte)) []byte {
		return edit(obj, func(b []byte) {
			l := b[loc : loc+locatorLen]
			f(l)
			binary.LittleEndian.PutUint32(l[locatorLen-4:], codec.Checksum(l[:locatorLen-4]))
		})
	}
	u64 := func(at int, v uint64) func(l []byte) {
		return func(l []byte) { binary.LittleEndian.PutUint64(l[at:], v) }
	}
	// rehot edits HOT and puts its checksums right again.
	rehot := func(f func(h []byte)) []byte {
		return edit(obj, func(b []byte) {
			h := b[tail.HotOff : tail.HotOff+tail.HotLen]
			f(h)
			n := section.DirectoryLen(len(tail.dir.Sections)) - 4
			binary.LittleEndian.PutUint32(h[n:], codec.Checksum(h[:n]))
			l := b[loc : loc+locatorLen]
			binary.LittleEndian.PutUint32(l[64:], codec.Checksum(h))
			binary.LittleEndian.PutUint32(l[68:], codec.Checksum(l[:68]))
		})
	}
	add("shard", "ok", "ok", "a bit of everything: shapes, attributes, long and non-UTF-8 names, a block of two frames, raw and compressed", 0, obj)
	add("shard", "empty", "ok", "no samples", 0, pack(t, nil, packOptions{}).object())
	add("shard", "one", "ok", "one sample with an empty field of no bytes", 0, pack(t, []testSample{one("k", "", "")}, packOptions{}).object())
	add("shard", "cut-last-byte", "corrupt", "the last byte is missing", 0, obj[:len(obj)-1])
	add("shard", "cut-index", "corrupt", "ends behind the end of archive: a plain tar.zst", 0, obj[:tail.DataSize])
	add("shard", "cut-first-frame", "corrupt", "ends behind its first frame", 0, obj[:tail.Rows[0].Stored])
	add("shard", "trailing-zeros", "corrupt", "512 zeros behind its end", 0, append(bytes.Clone(obj), make([]byte, 512)...))
	add("shard", "joined", "corrupt", "two shards one behind the other", 0, append(bytes.Clone(obj), obj...))
	add("shard", "flip-first-frame", "corrupt", "a bit of the first frame", 0, edit(obj, func(b []byte) { b[20] ^= 1 }))
	add("shard", "flip-last-frame", "corrupt", "a bit of the last frame", 0, edit(obj, func(b []byte) { b[tail.DataLen-6] ^= 0x10 }))
	add("shard", "flip-eoa", "corrupt", "a bit of the end-of-archive frame", 0, edit(obj, func(b []byte) { b[tail.DataLen+9] ^= 1 }))
	add("shard", "flip-cold", "corrupt", "a bit of a cold section", 0, edit(obj, func(b []byte) { b[tail.DataSize+12] ^= 1 }))
	add("shard", "flip-cold-header", "corrupt", "a bit of the magic of COLD", 0, edit(obj, func(b []byte) { b[tail.DataSize] ^= 1 }))
	add("shard", "flip-hot", "corrupt", "a bit of a hot section", 0, edit(obj, func(b []byte) { b[tail.HotOff+tail.HotLen-1] ^= 1 }))
	add("shard", "flip-directory", "corrupt", "a bit of the directory", 0, edit(obj, func(b []byte) { b[tail.HotOff+20] ^= 1 }))
	add("shard", "flip-locator", "corrupt", "a bit of the locator", 0, edit(obj, func(b []byte) { b[loc+24] ^= 1 }))
	add("shard", "flip-seek-table", "corrupt", "a bit of the seek table, which has no checksum", 0, edit(obj, func(b []byte) { b[len(obj)-seekLen+9] ^= 1 }))
	add("shard", "swapped-frames", "corrupt", "the first two frames have changed places", 0, edit(obj, func(b []byte) {
		n0, n1 := tail.Rows[0].Stored, tail.Rows[1].Stored
		copy(b, obj[n0:n0+n1])
		copy(b[n1:], obj[:n0])
	}))
	for _, c := range []struct {
		name string
		at   int
	}{{"data-size", 24}, {"hot-off", 32}, {"hot-len", 40}, {"data-len", 48}, {"samples", 56}, {"index-base", 16}} {
		add("shard", "locator-"+c.name+"-huge", "corrupt", "locator, checksum right: "+c.name+" is 2^63", 0, relocate(u64(c.at, 1<<63)))
		add("shard", "locator-"+c.name+"-less", "corrupt", "locator, checksum right: "+c.name+" is one", 0, relocate(u64(c.at, 1)))
	}
	add("shard", "major-2", "version", "locator of major version 2", 0, relocate(func(l []byte) { l[8] = 2 }))
	add("shard", "minor-9", "ok", "locator of minor version 9: to be ignored", 0, relocate(func(l []byte) { l[10] = 9 }))
	add("shard", "flag-critical", "version", "an unknown flag among the critical ones", 0, relocate(func(l []byte) { l[12] = 0x40 }))
	add("shard", "flag-other", "ok", "an unknown flag among those to be ignored", 0, relocate(func(l []byte) { l[15] = 0x40 }))
	add("shard", "hot-major-2", "version", "directory of major version 2", 0, rehot(func(h []byte) { h[8] = 2 }))
	row := func(h []byte, kind string) []byte {
		i := slices.IndexFunc(tail.dir.Sections, func(s section.Section) bool { return s.Kind == kind })
		return h[section.DirHeaderLen+i*section.DirEntryLen:][:section.DirEntryLen]
	}
	add("shard", "section-critical", "version", "an unknown section that is critical", 0, rehot(func(h []byte) { copy(row(h, typeKeys), "NEW!") }))
	add("shard", "section-other", "ok", "an unknown section that is not critical (META renamed)", 0, rehot(func(h []byte) { copy(row(h, typeMeta), "NEW!") }))
	add("shard", "section-twice", "corrupt", "a section comes twice", 0, rehot(func(h []byte) { copy(row(h, typeDecoded), typeStored) }))
	add("shard", "section-gap", "corrupt", "a section begins a byte too late", 0, rehot(func(h []byte) { row(h, typeKeys)[12]++ }))
	add("shard", "section-raw-huge", "corrupt", "a section decodes to 4 GiB", 0, rehot(func(h []byte) { binary.LittleEndian.PutUint32(row(h, typeStored)[24:], 1<<32-1) }))
	add("sidecar", "ok", "ok", "the index of a plain tar", len(plain.Data), plain.Tail)
	add("sidecar", "other-tar", "corrupt", "the tar has one record more", len(plain.Data)+512, plain.Tail)
	add("sidecar", "cut", "corrupt", "the last byte is missing", len(plain.Data), plain.Tail[:len(plain.Tail)-1])
	add("sidecar", "front", "corrupt", "the first byte is missing", len(plain.Data), plain.Tail[1:])
	out = append(out, manifestVectors(t, edit)...)
	return append(out, editedVectors(t)...)
}

// manifestVectors are the vectors of tables, keys and summary, made of the golden data set.
func manifestVectors(t *testing.T, edit func([]byte, func([]byte)) []byte) (out []vector) {
	add := func(kind, name, expect, note string, extra int, data []byte) {
		out = append(out, vector{kind + "-" + name, kind, expect, note, data, extra})
	}
	read := func(name string) []byte {
		data, err := os.ReadFile(filepath.Join(goldenDir, name))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	text := read(format.ManifestName)
	sum, err := DecodeSummary(text)
	if err != nil {
		t.Fatal(err)
	}
	tables := read(sum.Tables)
	opened, err := OpenTables(readFrom(tables), int64(len(tables)))
	if err != nil {
		t.Fatal(err)
	}
	n := section.DirectoryLen(len(opened.object.dir.Sections)) - 4
	redir := func(f func(b []byte)) []byte {
		return edit(tables, func(b []byte) {
			f(b)
			binary.LittleEndian.PutUint32(b[n:], codec.Checksum(b[:n]))
		})
	}
	add("tables", "ok", "ok", "those of golden-v1", 0, tables)
	add("tables", "cut", "corrupt", "the last byte is missing", 0, tables[:len(tables)-1])
	add("tables", "trailing", "corrupt", "a byte too many", 0, append(bytes.Clone(tables), 0))
	add("tables", "flip-directory", "corrupt", "a bit of the directory", 0, edit(tables, func(b []byte) { b[40] ^= 1 }))
	add("tables", "flip-section", "corrupt", "a bit of the last section", 0, edit(tables, func(b []byte) { b[len(b)-1] ^= 1 }))
	add("tables", "major-2", "version", "major version 2", 0, redir(func(b []byte) { b[8] = 2 }))
	add("tables", "minor-9", "ok", "minor version 9: to be ignored", 0, redir(func(b []byte) { b[10] = 9 }))
	add("tables", "sections-huge", "corrupt", "2^32 − 1 sections", 0, redir(func(b []byte) { binary.LittleEndian.PutUint32(b[12:], 1<<32-1) }))
	keys := read(names.Keys(opened.Keys))
	entries := int(opened.Samples)
	add("keys", "ok", "ok", "those of golden-v1", entries, keys)
	add("keys", "cut", "corrupt", "the last byte is missing", entries, keys[:len(keys)-1])
	add("keys", "flip-entry", "corrupt", "a bit of an entry", entries, edit(keys, func(b []byte) { b[samplekey.HeaderLen+3] ^= 1 }))
	add("keys", "flip-header", "corrupt", "a bit of the header", entries, edit(keys, func(b []byte) { b[16] ^= 1 }))
	add("keys", "unsorted", "corrupt", "two entries have changed places, the checksum is right", entries, edit(keys, func(b []byte) {
		const e = 9
		first, second := b[samplekey.HeaderLen:samplekey.HeaderLen+e], b[samplekey.HeaderLen+e:samplekey.HeaderLen+2*e]
		for i := range first {
			first[i], second[i] = second[i], first[i]
		}
		binary.LittleEndian.PutUint32(b[len(b)-4:], codec.Checksum(b[samplekey.HeaderLen:len(b)-4]))
	}))
	add("summary", "ok", "ok", "that of golden-v1", 0, text)
	add("summary", "newer", "version", "format shardtool/2", 0, bytes.Replace(text, []byte("shardtool/1"), []byte("shardtool/2"), 1))
	add("summary", "other", "corrupt", "another format", 0, bytes.Replace(text, []byte("shardtool/1"), []byte("webdataset1"), 1))
	add("summary", "outside", "corrupt", "names tables outside the data set", 0, bytes.Replace(text, []byte(sum.Tables), []byte("../"+sum.Tables), 1))
	add("summary", "cut", "corrupt", "the second half is missing", 0, text[:len(text)/2])
	add("summary", "digest", "corrupt", "a digest of another algorithm", 0, bytes.Replace(text, []byte("sha256:"), []byte("md5:"), 1))
	return out
}
