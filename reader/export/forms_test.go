package export

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/file"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/internal/format/npy"
	"github.com/shardtool/shardtool/internal/testset"
	"github.com/shardtool/shardtool/internal/testset/programs"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/storetest"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/reader"
)

// array returns a .npy payload.
func array(descr string, shape []int64, data ...byte) []byte {
	return append(npy.AppendHeader(nil, descr, shape...), data...)
}

// typed returns n samples of all types, and options that record these.
func typed(n int) (samples []testset.Sample, o testset.Options) {
	for i := range n {
		s := testset.Sample{Key: fmt.Sprintf("dir/%05d", i), Fields: []testset.Field{
			{Name: "ids.npy", Data: array("<u2", []int64{int64(i % 4)}, bytes.Repeat([]byte{byte(i), 1}, i%4)...)},
			{Name: "label.cls", Data: fmt.Append(nil, i%2)},
			{Name: "meta.json", Data: []byte(`{"a":1}`)},
			{Name: "pic.png", Data: []byte("PNG")},
			{Name: "score.txt", Data: []byte("1.5")},
			{Name: "title.txt", Data: []byte("é")},
		}}
		if i%3 == 1 {
			s.Fields[3].Name = "pic.jpg"
			slices.SortFunc(s.Fields, func(a, b testset.Field) int { return strings.Compare(a.Name, b.Name) })
		}
		if i%5 == 2 {
			s.Fields = s.Fields[:5] // without title
		}
		samples = append(samples, s)
	}
	o = packings["zstd"]
	o.Edit = func(m *metadata.Manifest) {
		m.Meta = format.Metadata{
			"types":   `{"ids.npy":"npy","label.cls":"int","meta.json":"json","score.txt":"float","title.txt":"txt"}`,
			"classes": `["cat","dog"]`,
		}
	}
	return samples, o
}

// TestFormsAgain: an export that was interrupted at any operation can be repeated, with the same
// result; the list is written last, and forms share a place.
func TestFormsAgain(t *testing.T) {
	samples, o := typed(60)
	d := open(t, build(t, samples, o))
	all := mem.New()
	for _, form := range forms {
		whole := mem.New()
		res, err := Run(t.Context(), d, whole, Options{Form: form})
		if err != nil || res.Samples != 60 {
			t.Fatalf("%s: %+v, %v", form, res, err)
		}
		want := objects(t, whole)
		for k := 0; ; k += 1 + k/9 {
			to := mem.New()
			_, err := Run(t.Context(), d, storetest.NewFaulty(to, storetest.Fault{At: k, After: k%2 == 1, Kill: k%3 == 0}), Options{Form: form})
			if err == nil {
				break
			}
			if there := objects(t, to); there[listName(form)] != "" && len(there) != len(want) {
				t.Fatalf("%s: operation %d failed, and the list is there", form, k)
			}
			if _, err := Run(t.Context(), d, to, Options{Form: form, Parallel: 2}); err != nil || !maps.Equal(objects(t, to), want) {
				t.Fatalf("%s after a failure of operation %d: %v", form, k, err)
			}
		}
		for range 2 {
			if _, err := Run(t.Context(), d, all, Options{Form: form}); err != nil {
				t.Errorf("%s: %v", form, err)
			}
		}
		for name := range want { // loaders that read all files of a folder skip a dot in front
			if strings.Contains(name, "export") && !strings.HasPrefix(name, ".") {
				t.Errorf("%s writes %s", form, name)
			}
		}
	}
}

// TestFormsChanged: a file with other bytes is an error and stays.
func TestFormsChanged(t *testing.T) {
	samples, o := typed(60)
	d := open(t, build(t, samples, o))
	for form, name := range map[Form]string{hf: "data/train-000001.parquet", megatron: "train.idx", croissant: "croissant.json"} {
		for _, change := range []func(p []byte) []byte{
			func(p []byte) []byte { p[len(p)/2] ^= 1; return p },
			func(p []byte) []byte { return p[:len(p)-1] },
			func(p []byte) []byte { return append(p, 0) },
		} {
			to := mem.New()
			if _, err := Run(t.Context(), d, to, Options{Form: form}); err != nil {
				t.Fatal(err)
			}
			data := get(t, to, name)
			up, err := to.Create(t.Context(), name, objstore.Condition{})
			if err == nil {
				_, err = up.Write(change(data))
			}
			if err == nil {
				_, err = up.Commit(t.Context())
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, err := Run(t.Context(), d, to, Options{Form: form}); !errors.Is(err, ErrExists) || !strings.Contains(err.Error(), name) {
				t.Errorf("%s: %v", form, err)
			}
		}
	}
}

// TestTable: the rows of a Parquet file are the samples.
func TestTable(t *testing.T) {
	samples, o := typed(60)
	d, to := open(t, build(t, samples, o)), mem.New()
	res, err := Run(t.Context(), d, to, Options{Form: hf})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, a := range res.Shards {
		r := parquetFile(t, get(t, to, a.Name))
		if r.NumRows() != int64(a.Samples) {
			t.Fatalf("%s: %d rows of %d", a.Name, r.NumRows(), a.Samples)
		}
		var names []string
		for i := range r.MetaData().Schema.NumColumns() {
			names = append(names, r.MetaData().Schema.Column(i).Path())
		}
		if got := strings.Join(names, " "); got != "__key__ ids.list.element label meta pic.bytes pic.path score title" {
			t.Fatal(got)
		}
		for i, key := range texts(t, r, 0) {
			if key != samples[n+i].Key {
				t.Errorf("row %d of %s: key %q", i, a.Name, key)
			}
		}
		for i, name := range texts(t, r, 5) {
			if want := samples[n+i].Key + "." + samples[n+i].Fields[3].Name; n+i > 0 && (n+i)%3 != 1 && name != want {
				t.Errorf("%s, not %s", name, want)
			}
		}
		for i, title := range texts(t, r, 7) {
			if want := map[bool]string{true: "<null>", false: "é"}[(n+i)%5 == 2]; title != want {
				t.Errorf("sample %d: title %s", n+i, title)
			}
		}
		n += int(a.Samples)
	}
	if n != 60 {
		t.Error(n)
	}
	card := string(get(t, to, "README.md"))
	for _, line := range []string{
		`path: "data/*.parquet"`, `- split: train`, `{"name":"ids","sequence":"uint16"}`, `{"name":"label","dtype":{"class_label":{"names":{"0":"cat","1":"dog"}}}}`,
		`{"name":"meta","dtype":"json"}`, `{"name":"pic","dtype":"image"}`, `{"name":"score","dtype":"float64"}`, `{"name":"title","dtype":"string"}`,
	} {
		if !strings.Contains(card, line) {
			t.Errorf("the card has no %s:\n%s", line, card)
		}
	}
}

func parquetFile(t *testing.T, data []byte) *file.Reader {
	t.Helper()
	r, err := file.NewParquetReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// texts returns the values of a column of texts.
func texts(t *testing.T, r *file.Reader, column int) (out []string) {
	t.Helper()
	for g := range r.NumRowGroups() {
		chunk, err := r.RowGroup(g).Column(column)
		if err != nil {
			t.Fatal(err)
		}
		in := chunk.(*file.ByteArrayColumnChunkReader)
		values, defs := make([]parquet.ByteArray, 1), make([]int16, 1)
		for in.HasNext() {
			_, n, err := in.ReadBatch(1, values, defs, nil)
			if err != nil {
				t.Fatal(err)
			}
			if n == 0 {
				out = append(out, "<null>")
			} else {
				out = append(out, string(values[0]))
			}
		}
	}
	return out
}

// TestArrays: arrays of any type, order and shape become lists in lists.
func TestArrays(t *testing.T) {
	for _, c := range []struct {
		descr string
		shape []int64
		data  []byte
		want  string // levels of repetition, of definition, and values
	}{
		{"<i4", []int64{3}, []byte{1, 0, 0, 0, 2, 0, 0, 0, 255, 255, 255, 255}, "[0 1 1] [3 3 3] [1 2 -1]"},
		{">i2", []int64{2, 2}, []byte{0, 1, 0, 2, 0, 3, 255, 255}, "[0 2 1 2] [5 5 5 5] [1 2 3 -1]"},
		{"|u1", []int64{2, 1, 2}, []byte{1, 2, 3, 255}, "[0 3 1 3] [7 7 7 7] [1 2 3 255]"},
		{"|b1", []int64{2}, []byte{0, 1}, "[0 1] [3 3] [false true]"},
		{"<f4", []int64{}, []byte{0, 0, 128, 63}, "[] [1] [1]"},
		{"<f2", []int64{1}, []byte{0, 60}, "[0] [3] [\x00<]"},
		{"<u8", []int64{1}, []byte{255, 255, 255, 255, 255, 255, 255, 255}, "[0] [3] [-1]"},
		{"<f8", []int64{0}, nil, "[0] [1] []"},
		{"<f8", []int64{2, 0}, nil, "[0 1] [3 3] []"},
		{"<f8", []int64{0, 2}, nil, "[0] [1] []"},
		{"<f8", []int64{2, 3, 0, 7}, nil, "[0 2 2 1 2 2] [5 5 5 5 5 5] []"},
	} {
		data := array(c.descr, c.shape, c.data...)
		h, _, err := parseArray(data)
		if err != nil {
			t.Fatal(err)
		}
		col := tableColumn{column: arrayColumn(t, &h)}
		col.root = col.tree(col.stored, 0, 0)
		if err := col.value(nil, "x", data); err != nil {
			t.Fatal(err)
		}
		l := col.leaves[0]
		var values any
		for _, v := range []any{l.bools, l.i32, l.i64, l.f32, l.f64, l.fixed} {
			if fmt.Sprint(v) != "[]" || values == nil {
				values = v
			}
		}
		if got := fmt.Sprint(l.reps, l.defs, values); got != c.want {
			t.Errorf("%s of %v: %s, want %s", c.descr, c.shape, got, c.want)
		}
	}
	fortran := npy.Header{Shape: []int64{2, 3}, Fortran: true}
	at := places(&fortran)
	var got []int64
	for i := range int64(6) {
		got = append(got, at(i))
	}
	if fmt.Sprint(got) != "[0 2 4 1 3 5]" {
		t.Error(got)
	}
}

// arrayColumn returns the column x of arrays like this one.
func arrayColumn(t *testing.T, h *npy.Header) column {
	t.Helper()
	feature, err := arrayFeature(h)
	if err != nil {
		t.Fatal(err)
	}
	stored, err := feature.Storage()
	if err != nil {
		t.Fatal(err)
	}
	return column{name: "x", fields: []string{"x"}, feature: feature, stored: stored}
}

// TestCannotHold: what a form cannot hold is an error that names sample and field, and no list is
// written.
func TestCannotHold(t *testing.T) {
	one := func(name string, values ...[]byte) (out []testset.Sample) {
		for i, v := range values {
			out = append(out, testset.Sample{Key: fmt.Sprint("k", i), Fields: []testset.Field{{Name: name, Data: v}}})
		}
		return out
	}
	for name, c := range map[string]struct {
		form    Form
		samples []testset.Sample
		want    string
	}{
		"another type":  {hf, one("x.npy", array("<i4", []int64{0}), array("<i8", []int64{0})), `sample "k1": field "x.npy"`},
		"another shape": {hf, one("x.npy", array("<i4", []int64{0}), array("<i4", []int64{0, 1})), `sample "k1": field "x.npy"`},
		"complex":       {hf, one("x.npy", array("<c8", []int64{0})), `sample "k0": field "x.npy"`},
		"objects":       {hf, one("x.npy", array("|O", []int64{0})), `sample "k0": field "x.npy"`},
		"no array":      {hf, one("x.npy", []byte("text")), "it is not an .npy file"},
		"short array":   {hf, one("x.npy", array("<i4", []int64{5}, 1, 2)), "an array of shape [5]"},
		"odd size":      {hf, one("x.npy", array("<i3", []int64{0})), `field "x.npy"`},
		"dimensions":    {hf, one("x.npy", array("<i4", make([]int64, 70))), `field "x.npy"`},
		"long shape":    {hf, one("x.npy", array("<i4", []int64{1 << 40, 1 << 40})), "an array of shape"},
		"empty lists":   {hf, one("x.npy", array("<i4", []int64{1 << 40, 0})), "too many empty lists"},
		"no number":     {hf, one("x.cls", []byte("many")), `"many" is no int`},
		"no text":       {hf, one("x.txt", []byte{255}), "is not UTF-8"},
		"no JSON":       {hf, one("x.json", []byte("{")), "it is not JSON"},
		"two media": {hf, []testset.Sample{{Key: "a", Fields: []testset.Field{{Name: "y.txt"}}}, {Key: "b", Fields: []testset.Field{{Name: "x.jpg"}, {Name: "x.png"}}}},
			`sample "b" has the fields "x.jpg" and "x.png"`},
		"no tokens":       {megatron, one("x.txt", nil), "0 fields of arrays"},
		"floats":          {megatron, one("x.npy", array("<f4", []int64{0})), "tokens are integers"},
		"matrix":          {megatron, one("x.npy", array("<i4", []int64{0, 1})), "a document has one dimension"},
		"another dtype":   {megatron, one("x.npy", array("<i4", []int64{0}), array("<i8", []int64{0})), `sample "k1": field "x.npy"`},
		"missing":         {megatron, append(one("x.npy", array("<i4", []int64{0})), testset.Sample{Key: "m", Fields: []testset.Field{{Name: "y.txt"}}}), `sample "m" has no field "x.npy"`},
		"not UTF-8":       {energon, []testset.Sample{{Key: "a\xff", Fields: []testset.Field{{Name: "txt"}}}}, "is not UTF-8"},
		"skipped folder":  {energon, []testset.Sample{{Key: "__a__/b", Fields: []testset.Field{{Name: "txt"}}}}, "Energon skips"},
		"no field's name": {energon, []testset.Sample{{Key: "a", Fields: []testset.Field{{Name: ""}}}}, "without a name"},
	} {
		d, to := open(t, build(t, c.samples, testset.Options{})), mem.New()
		_, err := Run(t.Context(), d, to, Options{Form: c.form})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
		if objects(t, to)[listName(c.form)] != "" {
			t.Errorf("%s: the list is there", name)
		}
	}
}

// TestTokens: Megatron's files, read as its IndexedDataset does.
func TestTokens(t *testing.T) {
	for descr, want := range map[string]struct {
		code byte
		size int
	}{"<u2": {8, 2}, ">u2": {8, 2}, "<i4": {4, 4}, "<u4": {5, 8}, ">i8": {5, 8}, "|u1": {1, 1}} {
		var samples []testset.Sample
		width := int(descr[2] - '0')
		var all []uint64
		for i := range 300 {
			var data []byte
			for k := range i % 7 {
				v := binary.BigEndian.AppendUint64(nil, uint64(i+k)&(1<<(8*width)-1))[8-width:]
				if width == 8 {
					v = binary.BigEndian.AppendUint64(nil, uint64(i+k))
				}
				if descr[0] != '>' {
					slices.Reverse(v)
				}
				data = append(data, v...)
				all = append(all, uint64(i+k)&0xff|uint64(i+k)&^0xff*uint64(min(1, width-1)))
			}
			samples = append(samples, testset.Sample{Key: fmt.Sprintf("%03d", i), Fields: []testset.Field{{Name: "tokens.npy", Data: array(descr, []int64{int64(i % 7)}, data...)}}})
		}
		d, to := open(t, build(t, samples, packings["zstd"])), mem.New()
		if _, err := Run(t.Context(), d, to, Options{Form: megatron, Parallel: 3}); err != nil {
			t.Fatal(err)
		}
		bin, idx := get(t, to, "train.bin"), get(t, to, "train.idx")
		head := string(idx[:9]) + fmt.Sprint(idx[17], binary.LittleEndian.Uint64(idx[9:]), binary.LittleEndian.Uint64(idx[18:]), binary.LittleEndian.Uint64(idx[26:]))
		if head != "MMIDIDX\x00\x00"+fmt.Sprint(want.code, uint64(1), uint64(300), uint64(301)) || len(idx) != 34+300*12+301*8 {
			t.Fatalf("%s: %q, %d bytes", descr, head, len(idx))
		}
		at := 0
		for i := range 300 {
			n, off, doc := binary.LittleEndian.Uint32(idx[34+4*i:]), binary.LittleEndian.Uint64(idx[34+1200+8*i:]), binary.LittleEndian.Uint64(idx[34+3600+8*i:])
			if int(n) != i%7 || int(off) != at*want.size || int(doc) != i {
				t.Fatalf("%s: document %d: %d tokens at %d, bound %d", descr, i, n, off, doc)
			}
			for range n {
				v := make([]byte, 8)
				copy(v, bin[at*want.size:][:want.size])
				if binary.LittleEndian.Uint64(v) != all[at] {
					t.Fatalf("%s: token %d: %v, want %d", descr, at, v, all[at])
				}
				at++
			}
		}
		if at*want.size != len(bin) {
			t.Errorf("%s: %d bytes for %d tokens", descr, len(bin), at)
		}
	}
}

// TestColumns: each column has a name of its own, and names are text; a field that has none can be
// left out.
func TestColumns(t *testing.T) {
	for fields, want := range map[string]string{
		"a.jpg a.txt a.jpg.json":               "__key__ a.jpg a.txt a.jpg.json",
		"a.b a.c a.b.x a.b.x.y a.b.x.y.z":      "__key__ a.b a.c a.b.x a.b.x.y a.b.x.y.z",
		"a a.txt a.txt.json":                   "__key__ a a.txt a.txt.json",
		"a.txt.json b.jpg":                     "__key__ a.txt b",
		"__key__.txt":                          "__key__ __key__.txt",
		"\u023a x.\u023a y.\u0130\u0130 Z.JPG": "__key__ Z x y \u023a",
		"a.jpg __key__":                        `column "__key__"`,
		"a.jpg b.\xff":                         "is not UTF-8",
		"a.jpg \xff\xfe":                       "is not UTF-8",
	} {
		s := testset.Sample{Key: "k"}
		for _, name := range strings.Fields(fields) {
			s.Fields = append(s.Fields, testset.Field{Name: name, Data: []byte("1")})
		}
		slices.SortFunc(s.Fields, func(a, b testset.Field) int { return strings.Compare(a.Name, b.Name) })
		store, to, o := build(t, []testset.Sample{s}, testset.Options{}), mem.New(), reader.Options{}
		if !strings.HasPrefix(want, keyColumn) {
			if _, err := Run(t.Context(), open(t, store), to, Options{Form: hf}); !errors.Is(err, ErrName) || !strings.Contains(err.Error(), want) || len(objects(t, to)) > 0 {
				t.Errorf("%q: %v", fields, err)
			}
			o.Fields, want = []string{"a.jpg"}, "__key__ a"
		}
		d, err := reader.Open(t.Context(), store, o)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		if _, err := Run(t.Context(), d, to, Options{Form: hf}); err != nil {
			t.Errorf("%q: %v", fields, err)
			continue
		}
		root := parquetFile(t, get(t, to, "data/train-000000.parquet")).MetaData().Schema.Root()
		var got []string
		for i := range root.NumFields() {
			got = append(got, root.Field(i).Name())
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q: columns %q", fields, got)
		}
	}
}

// TestCard: the card names the files of shards that are in folders.
func TestCard(t *testing.T) {
	for _, c := range []struct{ shard, folder, suffix, want string }{
		{"a.tar", "", ".tar", `path: "*.tar"`},
		{"train/a.tar", "", ".tar", `path: "**/*.tar"`},
		{"data/a.parquet", "data/", ".parquet", `path: "data/*.parquet"`},
		{"data/train/a.parquet", "data/", ".parquet", `path: "data/**/*.parquet"`},
	} {
		e := &exporter{res: &Result{Shards: []Archive{{Name: c.folder + "b" + c.suffix}, {Name: c.shard}}}}
		if got := e.cardHead(c.folder, c.suffix); !strings.Contains(got, c.want) {
			t.Errorf("%s: %s", c.shard, got)
		}
	}
}

// TestCroissant: the description lists the shards with their hashes; samples that are left out
// cannot be described.
func TestCroissant(t *testing.T) {
	samples, o := typed(60)
	store := build(t, samples, o)
	to := mem.New()
	if _, err := Run(t.Context(), open(t, store), to, Options{Form: croissant}); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Distribution []struct {
			Type        string `json:"@type"`
			Name        string
			ContentSize string
			ContentURL  string `json:"contentUrl"`
			SHA256      string
		}
		RecordSet []struct{ Name string }
	}
	if err := json.Unmarshal(get(t, to, "croissant.json"), &got); err != nil {
		t.Fatal(err)
	}
	shards, urls := 0, map[string]bool{}
	for _, f := range got.Distribution {
		if f.Type != "cr:FileObject" {
			continue
		}
		// The path is the shard's, and its text the content's: readers keep what they unpack by it.
		if shards++; path.Base(f.ContentURL) != f.Name || urls[strings.TrimSuffix(f.ContentURL, f.Name)] {
			t.Errorf("%q", f.ContentURL)
		}
		urls[strings.TrimSuffix(f.ContentURL, f.Name)] = true
		if data := get(t, store, f.Name); f.SHA256 != shaOf(data) || f.ContentSize != fmt.Sprint(len(data), " B") {
			t.Errorf("%+v", f)
		}
	}
	if len(got.RecordSet) != 7 || shards != open(t, store).NumShards() {
		t.Errorf("%+v", got)
	}
	o.Edit = func(m *metadata.Manifest) { m.Meta = format.Metadata{"types": "{"} }
	if _, err := Run(t.Context(), open(t, build(t, samples, o)), mem.New(), Options{Form: croissant}); !errors.Is(err, format.ErrCorrupt) {
		t.Errorf("types that are no JSON: %v", err)
	}
	d, err := reader.Open(t.Context(), store, reader.Options{Removed: []uint64{1}})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if _, err := Run(t.Context(), d, mem.New(), Options{Form: croissant}); !errors.Is(err, ErrForm) {
		t.Error(err)
	}
}

// TestCroissantFields: the files of a field are those of no other field, whatever their names, and
// each thing has an identifier of its own.
func TestCroissantFields(t *testing.T) {
	programs.Need(t, "python3")
	keys := []string{"ask", "dir.d/k", "k", "mask", "x/jpg"}
	fields := []string{
		"jpg", "mask.jpg", "a.mask.jpg", "k.jpg", "mask.png", "a b", "a_b", "a+b", "a%20b", "sc:a", "files", "key", "[1]", "x.[1]", "*", "x.*", "?", "x?",
		"q", "].q", "-.q", "^.q", "!.q", "[.q", `\.q`, "é.q", "(.+", `\d`,
	}
	slices.Sort(fields)
	var samples []testset.Sample
	for _, key := range keys {
		s := testset.Sample{Key: key}
		for _, name := range fields {
			s.Fields = append(s.Fields, testset.Field{Name: name})
		}
		samples = append(samples, s)
	}
	to := mem.New()
	if _, err := Run(t.Context(), open(t, build(t, samples, testset.Options{Plain: true})), to, Options{Form: croissant}); err != nil {
		t.Fatal(err)
	}
	const program = `
import fnmatch, json, re, sys
description, keys, fields = json.load(sys.stdin)
sets = {f["@id"]: f["includes"] for f in description["distribution"] if f["@type"] == "cr:FileSet"}
ids = [f["@id"] for f in description["distribution"]]
for record in description["recordSet"]:
    ids += [record["@id"]] + [f["@id"] for f in record["field"]]
    found = set()
    for key in keys:
        for field in fields:
            path = key + "." + field
            if any(fnmatch.fnmatchcase(path, glob) for glob in sets[record["@id"] + "/files"]):
                found.add((key, field))
                assert re.match(record["field"][0]["source"]["transform"]["regex"], path).group(1) == key, path
    assert found == {(key, record["name"]) for key in keys}, (record["name"], found)
assert len(set(ids)) == len(ids), ids
print(len(sets), len(description["recordSet"]))
`
	in, err := json.Marshal([]any{json.RawMessage(get(t, to, "croissant.json")), keys, fields})
	if err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), "python3", "-W", "ignore", "-c", program)
	c.Stdin = bytes.NewReader(in)
	text, err := c.CombinedOutput()
	if want := fmt.Sprint(len(fields), len(fields)); err != nil || strings.TrimSpace(string(text)) != want {
		t.Errorf("%v: %s", err, text)
	}
}

func shaOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// FuzzArray: no payload makes the writer of tables panic, or gives it more levels than bytes
// justify.
func FuzzArray(f *testing.F) {
	f.Add(array("<i4", []int64{2}, 1, 0, 0, 0, 2, 0, 0, 0))
	f.Add(array(">f2", []int64{1, 2}, 1, 0, 0, 0))
	f.Add(array("<f8", []int64{3, 0}))
	f.Fuzz(func(t *testing.T, data []byte) {
		h, _, err := parseArray(data)
		if err != nil {
			return
		}
		if _, err := dtypeOf(&h); err != nil {
			return
		}
		tab, err := newTable([]column{arrayColumn(t, &h)}, func([]byte) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		s := reader.Sample{Key: []byte("k"), Fields: []format.FieldView{{Name: []byte("x"), Data: data}}}
		if err := tab.add(&s); err != nil {
			return
		}
		if n := len(tab.columns[0].leaves[0].defs); n > len(data)+groupRows*64 {
			t.Errorf("%d levels of %d bytes", n, len(data))
		}
		if err := tab.close(); err != nil {
			t.Error(err)
		}
	})
}
