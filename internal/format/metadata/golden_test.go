package metadata

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/codec"
	"github.com/shardtool/shardtool/internal/format/names"
	"github.com/shardtool/shardtool/internal/format/samplekey"
)

// update writes golden objects and vectors that are missing. What exists is never written again: it
// is what readers of this version must read for ever.
var update = flag.Bool("update", false, "write golden objects and vectors that do not exist yet")

const goldenDir = "../../../testdata/spec/golden-v1"

// goldenSample is a sample in expect.json: the SHA-256 of each field.
type goldenSample struct {
	Key    string            `json:"key"` // hexadecimal: keys need not be UTF-8
	Fields map[string]string `json:"fields"`
	Attrs  map[string]any    `json:"attributes,omitempty"`
}

func goldenOf(samples []testSample) (out []goldenSample) {
	for _, s := range samples {
		g := goldenSample{Key: hex.EncodeToString([]byte(s.Key)), Fields: map[string]string{}}
		for _, f := range s.Fields {
			sum := sha256.Sum256(f.Data)
			g.Fields[f.Name] = hex.EncodeToString(sum[:])
		}
		for _, a := range s.Attrs {
			if g.Attrs == nil {
				g.Attrs = map[string]any{}
			}
			switch a.Kind {
			case format.AttrLabel:
				g.Attrs[a.Name] = a.Label
			case format.AttrInteger:
				g.Attrs[a.Name] = fmt.Sprint(a.Integer) // as text: JSON numbers lose digits
			default:
				g.Attrs[a.Name] = a.Number
			}
		}
		out = append(out, g)
	}
	return out
}

// goldenShards are the shards of the golden data set, in order.
func goldenShards() []struct {
	name    string
	samples []testSample
	opt     packOptions
} {
	var text, raw, plain []testSample
	for i := range 40 {
		text = append(text, one(fmt.Sprintf("text/%04d", i), "txt", string(words(uint64(i), 50+i*13))))
		raw = append(raw, one(fmt.Sprintf("raw/%04d", i), "bin", string(noise(uint64(i), i*40)), "cls", fmt.Sprint(i%3)))
		plain = append(plain, one(fmt.Sprintf("plain/%04d", i), "txt", string(words(uint64(i)+99, i*7))))
	}
	meta := format.Metadata{"tool": "golden"}
	return []struct {
		name    string
		samples []testSample
		opt     packOptions
	}{
		{"text-000000.tar.zst", text, packOptions{Block: 8 << 10, Meta: meta}},
		{"text-000001.tar.zst", raw, packOptions{Block: 16 << 10, Level: codec.LevelBest, Meta: meta}},
		{"text-000002.tar", plain, packOptions{Block: 8 << 10, Plain: true, Meta: meta}},
		{"text-000003.tar.zst", small(), packOptions{Block: 3000, Frame: 2048, Meta: meta}},
	}
}

// writeGolden makes the golden data set.
func writeGolden(t *testing.T) {
	put := func(name string, data []byte) {
		if err := os.WriteFile(filepath.Join(goldenDir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(goldenDir, 0o755); err != nil {
		t.Fatal(err)
	}
	m := &Manifest{Totals: Totals{Generation: 1, Meta: format.Metadata{"tool": "golden"}}}
	totals := map[string]*format.FieldTotal{}
	var keys []samplekey.Entry
	var expect []goldenSample
	for _, g := range goldenShards() {
		s := pack(t, g.samples, g.opt)
		if s.Plain {
			put(g.name, s.Data)
			put(g.name+".shidx", s.Tail)
		} else {
			put(g.name, s.object())
		}
		rows, err := checkRows(s.Index.Rows, nil)
		if err != nil {
			t.Fatal(err)
		}
		e := ShardEntry{Rows: s.Index.Rows, ShardInfo: ShardInfo{Name: g.name, Size: uint64(len(s.Data)), Tail: uint64(len(s.Tail)),
			Samples: rows.Samples, Blocks: rows.Blocks, Rows: uint64(len(s.Index.Rows)), Hash: s.Hash}}
		if !s.Plain {
			e.Size += e.Tail
		}
		for i, smp := range g.samples {
			if i == 0 {
				e.FirstKey, e.LastKey = smp.Key, smp.Key
			}
			e.FirstKey, e.LastKey = min(e.FirstKey, smp.Key), max(e.LastKey, smp.Key)
			keys = append(keys, samplekey.Entry{Hash: samplekey.Hash(smp.Key), Number: uint64(len(keys))})
			for _, f := range smp.Fields {
				n := uint64(len(f.Data))
				if totals[f.Name] == nil {
					totals[f.Name] = &format.FieldTotal{Name: f.Name, Min: n}
				}
				total := totals[f.Name]
				total.Samples, total.Bytes, total.Min, total.Max = total.Samples+1, total.Bytes+n, min(total.Min, n), max(total.Max, n)
			}
		}
		m.Shards = append(m.Shards, e)
		expect = append(expect, goldenOf(g.samples)...)
	}
	for _, name := range slices.Sorted(maps.Keys(totals)) {
		m.Fields = append(m.Fields, *totals[name])
	}
	m.Attributes = []format.Attribute{{Name: "age", Kind: format.AttrInteger}, {Name: "class", Kind: format.AttrLabel}, {Name: "weight", Kind: format.AttrNumber}}
	table := goldenKeys(t, keys)
	m.Keys = format.BlockHash(table)
	put(m.KeysName(), table)
	tables, name, _, err := EncodeTables(m)
	if err != nil {
		t.Fatal(err)
	}
	put(names.Tables(name), tables)
	opened, err := OpenTables(readFrom(tables), int64(len(tables)))
	if err != nil {
		t.Fatal(err)
	}
	put(format.ManifestName, opened.Summary(names.Tables(name)).Encode())
	text, err := json.MarshalIndent(expect, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	put("expect.json", append(text, '\n'))
}

func goldenKeys(t testing.TB, keys []samplekey.Entry) []byte {
	t.Helper()
	keys = slices.Clone(keys)
	slices.SortFunc(keys, samplekey.Entry.Compare)
	return keyTable(t, keys)
}

// TestGolden reads the data set that was written once, and finds every value that was put in.
func TestGolden(t *testing.T) {
	if _, err := os.Stat(filepath.Join(goldenDir, format.ManifestName)); *update && os.IsNotExist(err) {
		writeGolden(t)
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
	if names.Tables(format.BlockHash(tables)) != sum.Tables {
		t.Errorf("%s does not have the hash of its name", sum.Tables)
	}
	opened, err := OpenTables(readFrom(tables), int64(len(tables)))
	if err != nil {
		t.Fatal(err)
	}
	if again := opened.Summary(sum.Tables).Encode(); !bytes.Equal(again, text) {
		t.Errorf("%s is not what the tables say:\n%s", format.ManifestName, again)
	}
	m, err := opened.Load()
	if err != nil {
		t.Fatal(err)
	}
	if d := m.digest(); d != opened.Digest || format.DigestString(d) != sum.Digest {
		t.Errorf("digest %v, tables say %v, manifest %s", d, opened.Digest, sum.Digest)
	}
	var got []goldenSample
	var keys []samplekey.Entry
	for i := range m.Shards {
		s := &m.Shards[i]
		var samples []testSample
		if s.Plain() {
			samples, err = checkSidecar(read(s.Name), read(s.Name+".shidx"))
		} else {
			samples, err = checkShard(read(s.Name))
		}
		if err != nil {
			t.Fatalf("%s: %v", s.Name, err)
		}
		for _, smp := range samples {
			keys = append(keys, samplekey.Entry{Hash: samplekey.Hash(smp.Key), Number: uint64(len(keys))})
		}
		got = append(got, goldenOf(samples)...)
	}
	if table := goldenKeys(t, keys); !bytes.Equal(table, read(m.KeysName())) {
		t.Error("the keys table is not that of the keys")
	}
	again, err := json.MarshalIndent(got, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(append(again, '\n'), read("expect.json")) {
		t.Errorf("samples differ from expect.json:\n%s", again)
	}
}
