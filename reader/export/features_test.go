package export

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	arrays "github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/ipc"
	"github.com/apache/arrow/go/v17/arrow/memory"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/internal/input/kinds"
	"github.com/shardtool/shardtool/internal/testset"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/local"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source"
	"github.com/shardtool/shardtool/writer/source/parquet"
)

// packTables packs tables, and returns the fields of the samples by their keys.
func packTables(t *testing.T, st objstore.Store, names []string, opt parquet.Options) (*mem.Store, map[string]string) {
	t.Helper()
	var in []source.Input
	for _, name := range names {
		in = append(in, source.Input{Store: st, Name: name})
	}
	src, err := parquet.New(t.Context(), in, opt)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	out := mem.New()
	if _, err := writer.Pack(t.Context(), out, src, writer.Options{Name: "train"}); err != nil {
		t.Fatal(err)
	}
	samples := map[string]string{}
	for s, err := range open(t, out).Samples(t.Context(), reader.Range{}) {
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range s.Fields {
			samples[fmt.Sprintf("%s %s", s.Key, f.Name)] = string(f.Data)
		}
	}
	return out, samples
}

// ofDatasets is a table as save_to_disk leaves it: the features say more than the types of Arrow.
func ofDatasets(t *testing.T) []byte {
	t.Helper()
	const features = `{"info":{"features":{
		"label":{"names":["a","b \"c\""],"_type":"ClassLabel"},
		"pair":{"feature":{"dtype":"float32","id":null,"_type":"Value"},"length":2,"_type":"Sequence"},
		"rows":[{"x":{"dtype":"int8","_type":"Value"},"none":{"dtype":"null","_type":"Value"}}],
		"short":{"dtype":"int16","_type":"Value"},
		"image":{"mode":"RGB","_type":"Image"},
		"odd":{"names":["a"],"_type":"NotKnown"}}}}`
	list := func(of arrow.DataType) arrow.DataType { return arrow.ListOf(of) }
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "label", Type: arrow.PrimitiveTypes.Int64},
		{Name: "pair", Type: arrow.FixedSizeListOf(2, arrow.PrimitiveTypes.Float32)},
		{Name: "rows", Type: list(arrow.StructOf(arrow.Field{Name: "x", Type: arrow.PrimitiveTypes.Int8, Nullable: true}, arrow.Field{Name: "none", Type: arrow.Null, Nullable: true}))},
		{Name: "short", Type: arrow.PrimitiveTypes.Int32}, // the feature would lose bits
		{Name: "image", Type: arrow.StructOf(arrow.Field{Name: "bytes", Type: arrow.BinaryTypes.Binary, Nullable: true}, arrow.Field{Name: "path", Type: arrow.BinaryTypes.String, Nullable: true})},
		{Name: "odd", Type: arrow.BinaryTypes.LargeString},
		{Name: "wait", Type: arrow.FixedWidthTypes.Duration_ms},
	}, metadataOf("huggingface", features))
	b := arrays.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	for i := range 20 {
		if err := b.UnmarshalJSON(fmt.Appendf(nil, `{"label":%d,"pair":[%d,0.25],"rows":[{"x":%d,"none":null},null,{"x":null,"none":null}],"short":%d,
			"image":{"bytes":"UE5H","path":"a/%d.png"},"odd":"é","wait":%d}`, i%2, i, -i, 40000+i, i, i)); err != nil {
			t.Fatal(err)
		}
	}
	rec := b.NewRecord()
	defer rec.Release()
	var out bytes.Buffer
	w := ipc.NewWriter(&out, ipc.WithSchema(schema))
	if err := errors.Join(w.Write(rec), w.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func metadataOf(key, value string) *arrow.Metadata {
	m := arrow.NewMetadata([]string{key}, []string{value})
	return &m
}

// TestFeaturesAgain: what pack records of a table is what it records of the exported one, and all
// fields are the same.
func TestFeaturesAgain(t *testing.T) {
	t.Parallel()
	dir, err := filepath.Abs("../../testdata/parquet")
	if err != nil {
		t.Fatal(err)
	}
	files, err := local.New(dir, local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	arrows := mem.New()
	if _, err := objstore.Put(t.Context(), arrows, "disk.arrow", ofDatasets(t), objstore.Condition{}); err != nil {
		t.Fatal(err)
	}
	for name, st := range map[string]objstore.Store{
		"images.parquet": files, "nested.parquet": files, "scalars.parquet": files, "legacy.parquet": files, "split.parquet": files, "disk.arrow": arrows,
	} {
		first, samples := packTables(t, st, []string{name}, parquet.Options{})
		out := mem.New()
		res, err := Run(t.Context(), open(t, first), out, Options{Form: hf})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var tables []string
		for _, a := range res.Shards {
			tables = append(tables, a.Name)
		}
		second, again := packTables(t, out, tables, parquet.Options{Key: keyColumn})
		for _, key := range slices.Sorted(maps.Keys(samples)) {
			if again[key] != samples[key] {
				t.Errorf("%s: %s: %q, want %q", name, key, again[key], samples[key])
			}
		}
		if len(again) != len(samples) {
			t.Errorf("%s: %d fields of %d", name, len(again), len(samples))
		}
		want := kinds.ParseFeatures(open(t, first).Info().Meta)
		got := kinds.ParseFeatures(open(t, second).Info().Meta)
		for field, feature := range want {
			if !bytes.Equal(got[field], feature) {
				t.Errorf("%s: %s: %s, want %s", name, field, got[field], feature)
			}
		}
		if len(want) < 3 {
			t.Errorf("%s: features %s", name, want)
		}
		if name == "disk.arrow" {
			for field, feature := range map[string]string{
				"label.cls": `{"names":["a","b \"c\""],"_type":"ClassLabel"}`,
				"pair.npy":  `{"feature":{"dtype":"float32","_type":"Value"},"length":2,"_type":"Sequence"}`,
				"rows.json": `{"feature":{"x":{"dtype":"int8","_type":"Value"},"none":{"dtype":"null","_type":"Value"}},"_type":"List"}`,
				"short.txt": `{"dtype":"int32","_type":"Value"}`,
				"image.png": `{"mode":"RGB","_type":"Image"}`,
				"odd.txt":   `{"dtype":"large_string","_type":"Value"}`,
				"wait.txt":  `{"dtype":"duration[ms]","_type":"Value"}`,
			} {
				if string(want[field]) != feature {
					t.Errorf("%s: %s, want %s", field, want[field], feature)
				}
			}
		}
	}
}

// TestFeaturesHostile: features that are not known, too many or nested too deeply are as none.
func TestFeaturesHostile(t *testing.T) {
	t.Parallel()
	deep := func(n int) string {
		return strings.Repeat(`{"_type":"List","feature":`, n) + `{"_type":"Value","dtype":"int8"}` + strings.Repeat("}", n)
	}
	wide := []byte("{")
	for i := range 5000 {
		wide = fmt.Appendf(wide, `"%d":{"_type":"Value","dtype":"int8"},`, i)
	}
	wide = append(wide, `"":{"_type":"Value","dtype":"int8"}}`...)
	many := []byte(`{"x.json":{"_type":"Json"}`)
	for i := range 300_000 {
		many = fmt.Appendf(many, `,"no field %d":{}`, i)
	}
	for name, c := range map[string]struct{ text, want string }{
		"none":         {``, "x"},
		"no JSON":      {`{`, "x"},
		"null":         {`{"x.json":null}`, "x"},
		"deep":         {`{"x.json":` + deep(40) + `}`, "x"},
		"very deep":    {`{"x.json":` + deep(200_000) + `}`, "x"},
		"deep enough":  {`{"x.json":` + deep(3) + `}`, "x.list.element.list.element.list.element"},
		"wide":         {`{"x.json":` + string(wide) + `}`, "x"},
		"many":         {string(append(many, '}')), "x"},
		"a long name":  {`{"x.json":{"` + strings.Repeat("n", 1<<20) + `":{"_type":"Value","dtype":"null"}}}`, "x." + strings.Repeat("n", 1<<20)},
		"of itself":    {`{"x.json":{"_type":"List"}}`, "x"},
		"empty struct": {`{"x.json":{"a":{}}}`, "x"},
		"twice":        {`{"x.json":{"a":{"_type":"Json"},"a":{"_type":"Json"}}}`, "x"},
		"long array":   {`{"x.json":{"_type":"Array2D","shape":[1,2,3],"dtype":"int8"}}`, "x"},
		"languages":    {`{"x.json":{"_type":"Translation","languages":["b","a","b"]}}`, "x.a x.b"},
		"long bytes":   {`{"x.json":{"_type":"Value","dtype":"fixed_size_binary[99999999999999999999]"}}`, "x"},
		"precision":    {`{"x.json":{"_type":"Value","dtype":"decimal128(99, 2)"}}`, "x"},
	} {
		o := testset.Options{Edit: func(m *metadata.Manifest) { m.Meta = format.Metadata{kinds.FeaturesKey: c.text} }}
		d := open(t, build(t, []testset.Sample{{Key: "k", Fields: []testset.Field{{Name: "x.json", Data: []byte("null")}}}}, o))
		columns, err := columnsOf(t.Context(), d)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		tab, err := newTable(columns, func([]byte) error { return nil })
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var got []string
		for i := range tab.w.Schema.NumColumns() - 1 {
			got = append(got, tab.w.Schema.Column(i+1).Path())
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %.200q, want %.200q", name, got, c.want)
		}
	}
}

// TestFeatureValues: payloads of all types, and those that the types cannot hold.
func TestFeatureValues(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ dtype, text, want string }{
		{"int8", "-128", "[-128]"}, {"int8", "128", "out of range"}, {"uint64", "18446744073709551615", "[-1]"}, {"uint32", "4294967295", "[-1]"},
		{"float32", "0.1", "[0.1]"}, {"float16", "1", "[\x00<]"}, {"float64", "-Inf", "[-Inf]"}, {"bool", "true", "[true]"}, {"bool", "yes", "is no bool"},
		{"date32", "1969-12-31", "[-1]"}, {"date64", "12000-02-29", "[3663441]"}, {"date32", "2023-02-29", "is no date"}, {"date32", "-0001-01-01", "[-719893]"},
		{"date32", "1970-01-01T00:00:00Z", "is no date"}, {"date32", "", "is no date"}, {"date32", "99999999-01-01", "is no date"},
		{"time32[s]", "01:02:03", "[3723000]"}, {"time32[s]", "01:02:03.5", "finer"}, {"time64[ns]", "00:00:01.000000002", "[1000000002]"}, {"time64[us]", "24:00:00", "is no time"},
		{"time32[s]", "3723", "[3723000]"}, {"time64[ns]", "86399999999999", "[86399999999999]"}, {"time64[us]", "86400000000", "is no time"}, {"time32[ms]", "-1", "is no time"},
		{"timestamp[s]", "1970-01-01T00:00:01Z", "[1000]"}, {"timestamp[us, tz=UTC]", "1969-12-31T23:59:59.999999Z", "[-1]"}, {"timestamp[ns]", "300000-01-01T00:00:00Z", "farther"},
		{"timestamp[ms]", "1970-01-01", "is no timestamp"}, {"timestamp[us]", "1970-01-01T", "is no timestamp"},
		{"duration[ns]", "-5", "[-5]"}, {"decimal128(4, 2)", "-0.01", "[" + strings.Repeat("\xff", 16) + "]"}, {"decimal128(4, 2)", "100.00", "more digits"},
		{"decimal128(4, 2)", "1.234", "is no decimal"}, {"decimal128(4, 2)", "1e3", "is no decimal"}, {"fixed_size_binary[2]", "ab", "[ab]"}, {"fixed_size_binary[2]", "a", "has 1 bytes"},
		{"string", "\xff", "is not UTF-8"}, {"string", "", "[]"}, {"null", "x", "is not null"},
	} {
		scalar, err := kinds.ParseScalar(c.dtype)
		if err != nil {
			t.Fatal(err)
		}
		l := leaf{Scalar: scalar}
		if err := l.text([]byte(c.text)); err != nil {
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s %q: %v, want %s", c.dtype, c.text, err, c.want)
			}
			continue
		}
		var got any = l.texts
		for _, v := range []any{l.bools, l.i32, l.i64, l.f32, l.f64, l.fixed} {
			if fmt.Sprint(v) != "[]" {
				got = v
			}
		}
		if fmt.Sprint(got) != c.want {
			t.Errorf("%s %q: %q, want %q", c.dtype, c.text, fmt.Sprint(got), c.want)
		}
	}
	for _, c := range []struct{ feature, text, want string }{
		{`{"a":{"_type":"Value","dtype":"binary"}}`, `{"a":"!"}`, "base64"},
		{`{"a":{"_type":"Value","dtype":"int8"}}`, `{"a":1,"b":2}`, "it has 2 members"},
		{`{"a":{"_type":"Value","dtype":"int8"}}`, `[1]`, "cannot unmarshal"},
		{`{"_type":"List","feature":{"_type":"Value","dtype":"int8"}}`, `[1,"x"]`, "is no int8"},
		{`{"_type":"List","feature":{"_type":"Value","dtype":"int8"}}`, string(array("|i1", []int64{2, 1}, 1, 2)), "a column has one type"},
		{`{"_type":"List","feature":{"_type":"Value","dtype":"int8"}}`, "", "<nil>"},
		{`{"_type":"Json"}`, "{", "it is not JSON"},
	} {
		f, err := kinds.ParseFeature([]byte(c.feature))
		if err != nil {
			t.Fatal(err)
		}
		stored, err := f.Storage()
		if err != nil {
			t.Fatal(err)
		}
		col := tableColumn{column: column{name: "x", feature: f, stored: stored, recorded: true}}
		col.root = col.tree(stored, 0, 0)
		if err := col.value(nil, "x", []byte(c.text)); !strings.Contains(fmt.Sprint(err), c.want) {
			t.Errorf("%s of %q: %v, want %s", c.feature, c.text, err, c.want)
		}
	}
}

// TestFeaturesCovered: what the base records of a field is not said of the field of a layer in its
// place.
func TestFeaturesCovered(t *testing.T) {
	t.Parallel()
	base, over := mem.New(), mem.New()
	of := func(text string) []testset.Field { return []testset.Field{{Name: "x", Data: []byte(text)}} }
	set, err := testset.Build(t.Context(), base, slices.Values([]testset.Sample{{Key: "k", Fields: of("1")}}), testset.Options{
		Edit: func(m *metadata.Manifest) {
			m.Meta = format.Metadata{"types": `{"x":"int"}`, kinds.FeaturesKey: `{"x":{"_type":"Value","dtype":"int8"}}`}
		}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := testset.Layer(t.Context(), over, set, []string{"x"}, func(string) []testset.Field { return of("\xff") }, testset.Options{}); err != nil {
		t.Fatal(err)
	}
	for want, layers := range map[string][]reader.Layer{"int8": nil, "binary": {{Name: "over", Store: over}}} {
		d, err := reader.Open(t.Context(), base, reader.Options{Layers: layers})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		columns, err := columnsOf(t.Context(), d)
		if err != nil || len(columns) != 2 || !strings.Contains(string(columns[1].feature.AppendJSON(nil)), want) {
			t.Errorf("%s: %+v, %v", want, columns, err)
		}
	}
}

// TestLists: a list of files is one field of the data set and one column of its table, and is
// packed from the table again as it was.
func TestLists(t *testing.T) {
	t.Parallel()
	of := arrow.StructOf(arrow.Field{Name: "bytes", Type: arrow.BinaryTypes.Binary, Nullable: true}, arrow.Field{Name: "path", Type: arrow.BinaryTypes.String, Nullable: true})
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "q", Type: arrow.PrimitiveTypes.Int64}, {Name: "sounds", Type: arrow.ListOf(of), Nullable: true},
		{Name: "mixed", Type: arrow.ListOf(of), Nullable: true}, {Name: "none", Type: arrow.ListOf(of), Nullable: true},
	}, nil)
	rec, _, err := arrays.RecordFromJSON(memory.DefaultAllocator, schema, strings.NewReader(`[
		{"q":1,"sounds":[{"bytes":"AAAA","path":"a.wav"},null,{"bytes":"AAAB","path":"b.MP3"}],"mixed":[{"bytes":"AAAC","path":"c.png"}],"none":[]},
		{"q":2,"sounds":[],"mixed":[{"bytes":"AAAD","path":"d.wav"},{"bytes":"","path":null}],"none":null},
		{"q":3,"sounds":null,"mixed":null,"none":null}]`))
	if err != nil {
		t.Fatal(err)
	}
	var content bytes.Buffer
	w := ipc.NewWriter(&content, ipc.WithSchema(schema))
	if err := errors.Join(w.Write(rec), w.Close()); err != nil {
		t.Fatal(err)
	}
	st := mem.New()
	if _, err := objstore.Put(t.Context(), st, "rows.arrow", content.Bytes(), objstore.Condition{}); err != nil {
		t.Fatal(err)
	}
	first, samples := packTables(t, st, []string{"rows.arrow"}, parquet.Options{})
	want := map[string]string{
		"rows/000000000 q.txt": "1", "rows/000000001 q.txt": "2", "rows/000000002 q.txt": "3",
		"rows/000000000 sounds.0.wav": "\x00\x00\x00", "rows/000000000 sounds.1.bin": "", "rows/000000000 sounds.2.mp3": "\x00\x00\x01",
		"rows/000000000 mixed.0.png": "\x00\x00\x02", "rows/000000001 mixed.0.wav": "\x00\x00\x03", "rows/000000001 mixed.1.bin": "",
	}
	if !maps.Equal(samples, want) {
		t.Errorf("%q", samples)
	}
	d := open(t, first)
	if lists := d.Lists(); !slices.Equal(lists, []string{"mixed", "none", "sounds"}) {
		t.Errorf("lists %q", lists)
	}
	if _, err := reader.Open(t.Context(), first, reader.Options{Fields: []string{"sound"}}); err == nil ||
		!strings.HasSuffix(err.Error(), `no field "sound"; it has mixed, none, q.txt, sounds`) {
		t.Errorf("an unknown field: %v", err)
	}
	features := kinds.ParseFeatures(d.Info().Meta)
	files := string(kinds.Files().AppendJSON(nil))
	for name, is := range map[string]string{"sounds": `{"feature":{"_type":"Audio"},"_type":"Sequence"}`, "mixed": files, "none": files} {
		if string(features[name]) != is {
			t.Errorf("%s: %s, want %s", name, features[name], is)
		}
	}
	out := mem.New()
	res, err := Run(t.Context(), d, out, Options{Form: hf})
	if err != nil {
		t.Fatal(err)
	}
	second, again := packTables(t, out, []string{res.Shards[0].Name}, parquet.Options{Key: keyColumn})
	if !maps.Equal(again, want) || !slices.Equal(open(t, second).Lists(), d.Lists()) {
		t.Errorf("again: %q, %q", again, open(t, second).Lists())
	}
	for _, fields := range [][]string{{"sounds"}, {"sounds?", "q"}, {"none"}} {
		some, err := reader.Open(t.Context(), first, reader.Options{Fields: fields})
		if err != nil {
			t.Fatal(fields, err)
		}
		s, err := some.Get(t.Context(), 0)
		if err != nil || fields[0] != "none" && len(s.Fields) != len(fields)+2 {
			t.Errorf("%s: %d fields, %v", fields, len(s.Fields), err)
		}
		if err := some.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := d.Field(t.Context(), 0, "sounds", io.Discard); err == nil || !strings.Contains(err.Error(), "sounds.0.png") {
		t.Error(err)
	}
}
