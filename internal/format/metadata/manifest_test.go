package metadata

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/codec"
	"github.com/shardtool/shardtool/internal/format/names"
)

// TestSummary: manifest.json as written is read; what readers trust is checked, the rest is not.
func TestSummary(t *testing.T) {
	tables, _, err := openTables(encodeTables(t, testManifest(2, 0)))
	if err != nil {
		t.Fatal(err)
	}
	want := tables.Summary(names.Tables(format.BlockHash(nil)))
	text := string(want.Encode())
	if !strings.HasSuffix(text, "}\n") || !strings.Contains(text, "\n  \"payload_bytes\": 1099511627778,\n") {
		t.Errorf("summary reads %s", text)
	}
	got, err := DecodeSummary([]byte(text))
	if err != nil || !bytes.Equal(got.Encode(), want.Encode()) {
		t.Errorf("got %+v, %v", got, err)
	}
	if empty := (&Tables{}).Summary("x").Encode(); !bytes.Contains(empty, []byte(`"fields": []`)) {
		t.Errorf("no fields: %s", empty)
	}
	for _, c := range []struct {
		old, new string
		want     error
	}{
		{"shardtool/1", "shardtool/2", format.ErrVersion},
		{"shardtool/1", "other/1", format.ErrCorrupt},
		{`"format"`, `"fmt"`, format.ErrCorrupt},
		{"manifest-e3b0c44298fc1c14.bin", "../manifest-e3b0c44298fc1c14.bin", format.ErrCorrupt},
		{"manifest-e3b0c44298fc1c14.bin", "manifest-E3B0C44298FC1C14.bin", format.ErrCorrupt},
		{"manifest-e3b0c44298fc1c14.bin", "manifest-e3b0c44298fc1c1.bin", format.ErrCorrupt},
		{"sha256:", "sha512:", format.ErrCorrupt},
		{"sha256:", "sha256:0", format.ErrCorrupt},
		{`"samples": 3`, `"samples": "3"`, format.ErrCorrupt},
		{`"samples": 3`, `"samples": -3`, format.ErrCorrupt},
		{"{", "[", format.ErrCorrupt},
		{"}\n", "", format.ErrCorrupt},
		{`"format"`, `"unknown": {"a": [1]}, "format"`, nil},
		{`"generation": 2`, `"generation": 9`, nil},
	} {
		at := strings.LastIndex(text, c.old)
		if at < 0 {
			t.Fatalf("no %q in %s", c.old, text)
		}
		edited := text[:at] + c.new + text[at+len(c.old):]
		if _, err := DecodeSummary([]byte(edited)); !errors.Is(err, c.want) || c.want == nil && err != nil {
			t.Errorf("%q for %q: %v, want %v", c.new, c.old, err, c.want)
		}
	}
	for n := range len(text) - 1 {
		if _, err := DecodeSummary([]byte(text[:n])); !errors.Is(err, format.ErrCorrupt) {
			t.Fatalf("the first %d bytes: %v", n, err)
		}
	}
}

// TestObjectNames: names that lead outside a data set are refused.
func TestObjectNames(t *testing.T) {
	for _, name := range []string{"a.tar", "a.tar.zst", "sub/dir/train-000000.tar.zst", "a b.tar", "ä.tar", strings.Repeat("x", 1020) + ".tar"} {
		if err := CheckShardName(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{"", "a", "a.zst", "/a.tar", "../a.tar", "a/../b.tar", "./a.tar", "a//b.tar", "a/", "s3://b/a.tar", "file:///a.tar",
		"a\\b.tar", "a\x00.tar", strings.Repeat("x", 1021) + ".tar", "a.tar.shidx", "a.TAR"} {
		if err := CheckShardName(name); !errors.Is(err, format.ErrCorrupt) {
			t.Errorf("%q: %v", name, err)
		}
	}
	h := format.BlockHash(nil)
	if !names.IsTables(names.Tables(h)) || !names.IsKeys(names.Keys(h)) || names.IsTables(names.Keys(h)) || names.IsKeys(names.Tables(h)) {
		t.Error("names of tables and keys")
	}
	if m := (&Manifest{}); m.KeysName() != "" {
		t.Errorf("no keys table is named %q", m.KeysName())
	}
	for _, s := range []string{"", "x", h.String()[1:], h.String() + "0", strings.Repeat("g", 64)} {
		if _, err := format.ParseHash(s); !errors.Is(err, format.ErrCorrupt) {
			t.Errorf("hash %q: %v", s, err)
		}
	}
	if back, err := parseDigest(format.DigestString(h)); err != nil || back != h {
		t.Errorf("digest: %v, %v", back, err)
	}
}

// TestDigest: the digest is the hash of the bytes that SPEC 7 lists, and of nothing else.
func TestDigest(t *testing.T) {
	m := testManifest(3, 0, 9)
	b := []byte("shardtool-content-1\n")
	b = binary.LittleEndian.AppendUint64(b, 3)
	for _, s := range m.Shards {
		b = binary.LittleEndian.AppendUint64(b, s.Samples)
		b = binary.LittleEndian.AppendUint64(b, s.Blocks)
		for _, r := range s.Rows {
			if r.Samples > 0 {
				b = binary.LittleEndian.AppendUint32(b, r.Samples)
			}
		}
		b = append(b, s.Hash[:]...)
	}
	want := format.Hash(sha256.Sum256(b))
	if got := m.digest(); got != want {
		t.Errorf("digest %v, want %v", got, want)
	}
	for what, edit := range map[string]func(){
		"name": func() { m.Shards[2].Name = "other.tar.zst" }, "size": func() { m.Shards[2].Size++ }, "tail": func() { m.Shards[2].Tail++ },
		"codec": func() { m.Shards[2].Rows[0].Codec = format.CodecRaw }, "stored": func() { m.Shards[2].Rows[0].Stored++ }, "crc": func() { m.Shards[2].Rows[0].CRC++ },
		"metadata": func() { m.Meta = nil }, "generation": func() { m.Generation++ }, "first key": func() { m.Shards[2].FirstKey = "x" },
	} {
		if edit(); m.digest() != want {
			t.Errorf("%s is in the digest", what)
		}
	}
	for what, edit := range map[string]func(){
		"hash": func() { m.Shards[1].Hash[5] ^= 1 }, "samples of a block": func() { m.Shards[2].Rows[0].Samples++ },
		"samples": func() { m.Shards[2].Samples++ }, "blocks": func() { m.Shards[2].Blocks++ }, "order": func() { m.Shards[0], m.Shards[1] = m.Shards[1], m.Shards[0] },
	} {
		before := m.digest()
		if edit(); m.digest() == before {
			t.Errorf("%s is not in the digest", what)
		}
	}
	if (&Manifest{}).digest() == (&Manifest{Shards: m.Shards[:1]}).digest() {
		t.Error("no shards")
	}
	var h ShardHasher
	if h.Sum() != format.BlockHash(nil) {
		t.Error("shard without blocks")
	}
	a, c := format.BlockHash([]byte("a")), format.BlockHash([]byte("c"))
	h.Add(a)
	h.Add(c)
	if h.Sum() != format.BlockHash(append(a[:], c[:]...)) {
		t.Error("shard of two blocks")
	}
}

// TestParseLevel: the names of levels.
func TestParseLevel(t *testing.T) {
	for _, l := range []codec.Level{codec.LevelDefault, codec.LevelFastest, codec.LevelBetter, codec.LevelBest} {
		if got, err := codec.ParseLevel(l.String()); err != nil || got != l {
			t.Errorf("%v: %v, %v", l, got, err)
		}
	}
	if _, err := codec.ParseLevel("max"); err == nil || !strings.Contains(err.Error(), "fastest, default, better, best") {
		t.Errorf("level max: %v", err)
	}
}

// TestIndexBuilder: what AddSample refuses leaves no trace.
func TestIndexBuilder(t *testing.T) {
	var b IndexBuilder
	good := []format.FieldSize{{Name: "a", Size: 1}, {Name: "b", Size: 2}}
	if err := b.AddSample("k", good, []format.AttrValue{label("class", "x")}); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		fields []format.FieldSize
		attrs  []format.AttrValue
		want   error
	}{
		"no fields":             {nil, nil, format.ErrName},
		"field twice":           {[]format.FieldSize{{Name: "a", Size: 1}, {Name: "a", Size: 1}}, nil, format.ErrDuplicate},
		"fields out of order":   {[]format.FieldSize{{Name: "b", Size: 1}, {Name: "a", Size: 1}}, nil, nil},
		"negative size":         {[]format.FieldSize{{Name: "new", Size: -1}}, nil, nil},
		"long name":             {[]format.FieldSize{{Name: strings.Repeat("n", format.MaxName), Size: 1}}, nil, format.ErrName},
		"attribute twice":       {[]format.FieldSize{{Name: "new", Size: 1}}, []format.AttrValue{label("class", "x"), label("class", "y")}, format.ErrDuplicate},
		"attribute twice, new":  {[]format.FieldSize{{Name: "new", Size: 1}}, []format.AttrValue{label("n", "x"), label("n", "y")}, format.ErrDuplicate},
		"kind changes":          {[]format.FieldSize{{Name: "new", Size: 1}}, []format.AttrValue{label("other", "y"), integer("class", 1)}, format.ErrMismatch},
		"kind that is not ours": {[]format.FieldSize{{Name: "new", Size: 1}}, []format.AttrValue{{Attribute: format.Attribute{Name: "z", Kind: 9}}}, nil},
	} {
		if err := b.AddSample("bad", c.fields, c.attrs); err == nil || c.want != nil && !errors.Is(err, c.want) || !strings.Contains(err.Error(), `"bad"`) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	if err := b.AddSample("l", good[:1], nil); err != nil {
		t.Fatal(err)
	}
	ix := b.Finish(nil)
	if len(ix.Fields) != 2 || len(ix.Shapes) != 2 || ix.Keys.Len() != 2 || len(ix.Attributes) != 1 || ix.Sizes[0].Len() != 2 {
		t.Errorf("index %+v", ix)
	}
	// An index that does not fit its rows is not written.
	if _, err := AppendTail(nil, ix, false); err == nil {
		t.Error("an index of two samples without a row was written")
	}
}
