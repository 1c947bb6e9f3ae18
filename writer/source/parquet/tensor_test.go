package parquet_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/ipc"
	"github.com/apache/arrow/go/v17/arrow/memory"
	pq "github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/schema"

	"github.com/shardtool/shardtool/internal/format/npy"
	"github.com/shardtool/shardtool/writer/source/parquet"
)

// extended is a field of an extension type.
func extended(name string, of arrow.DataType, extension, meta string) arrow.Field {
	return arrow.Field{Name: name, Type: of, Nullable: true, Metadata: arrow.NewMetadata([]string{"ARROW:extension:name", "ARROW:extension:metadata"}, []string{extension, meta})}
}

// arrowOf makes a file of records in JSON, and the text of its schema that Parquet files have.
func arrowOf(t *testing.T, rows string, fields ...arrow.Field) (content []byte, schema string) {
	t.Helper()
	of := arrow.NewSchema(fields, nil)
	rec, _, err := array.RecordFromJSON(memory.DefaultAllocator, of, strings.NewReader(rows))
	if err != nil {
		t.Fatal(err)
	}
	var stream, none bytes.Buffer
	w := ipc.NewWriter(&stream, ipc.WithSchema(of))
	if err := w.Write(rec); err != nil {
		t.Fatal(err)
	}
	empty := ipc.NewWriter(&none, ipc.WithSchema(of))
	for _, w := range []*ipc.Writer{w, empty} {
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return stream.Bytes(), base64.StdEncoding.EncodeToString(none.Bytes()[:none.Len()-8])
}

// npyInts is an array of int64 in an npy file.
func npyInts(shape []int, values ...byte) string {
	out := npy.AppendHeader(nil, "<i8", shape...)
	for _, v := range values {
		out = append(out, v, 0, 0, 0, 0, 0, 0, 0)
	}
	return string(out)
}

// TestTensors: an array has the shape that the type of its column states, in Arrow and in Parquet
// with the schema of Arrow. The fingerprint says so, and those of other columns stay.
func TestTensors(t *testing.T) {
	t.Parallel()
	const list = `[{"x":[0,1,2,3,4,5]},{"x":[5,4,3,2,1,0]}]`
	of := arrow.FixedSizeListOf(6, arrow.PrimitiveTypes.Int64)
	for _, c := range []struct {
		extension, meta string
		want            []string
	}{
		{"arrow.fixed_shape_tensor", `{"shape":[2,3]}`, []string{npyInts([]int{2, 3}, 0, 1, 2, 3, 4, 5), npyInts([]int{2, 3}, 5, 4, 3, 2, 1, 0)}},
		{"arrow.fixed_shape_tensor", `{"shape":[2,3],"permutation":[1,0]}`, []string{npyInts([]int{3, 2}, 0, 3, 1, 4, 2, 5), npyInts([]int{3, 2}, 5, 2, 4, 1, 3, 0)}},
		{"ray.data.arrow_tensor_v2", `[3,1,2]`, []string{npyInts([]int{3, 1, 2}, 0, 1, 2, 3, 4, 5), npyInts([]int{3, 1, 2}, 5, 4, 3, 2, 1, 0)}},
		{"other", `[3,1,2]`, []string{npyInts([]int{6}, 0, 1, 2, 3, 4, 5), npyInts([]int{6}, 5, 4, 3, 2, 1, 0)}},
	} {
		content, text := arrowOf(t, list, extended("x", of, c.extension, c.meta))
		src, err := arrowSource(t, content, false, parquet.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if !src.Even {
			t.Errorf("%s: not even", c.extension)
		}
		fromArrow, bad, err := rows(src)
		if err != nil || len(bad) > 0 {
			t.Fatal(err, bad)
		}
		if says := parquet.Forms(src); says != (c.extension != "other") {
			t.Errorf("%s: the fingerprint says that it has another form: %t", c.extension, says)
		}
		element := leafNode("element", pq.Repetitions.Optional, nil, pq.Types.Int64, -1)
		fromParquet := read(t, write(t, table{
			fields: []schema.Node{listOf("x", element)}, meta: map[string]string{"ARROW:schema": text},
			groups: [][]data{{{[]int64{0, 1, 2, 3, 4, 5, 5, 4, 3, 2, 1, 0}, repeat(12, 3), []int16{0, 1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1}}}},
		}), parquet.Options{})
		for i, want := range c.want {
			for from, got := range map[string][]row{"arrow": fromArrow, "parquet": fromParquet} {
				if got[i].fields["x.npy"] != want {
					t.Errorf("%s %s, %s, row %d: %q, want %q", c.extension, c.meta, from, i, got[i].fields, want)
				}
			}
		}
	}
}

// TestTensorSchema: a schema of Arrow in a Parquet file that cannot be read says nothing.
func TestTensorSchema(t *testing.T) {
	t.Parallel()
	_, text := arrowOf(t, `[]`, extended("x", arrow.FixedSizeListOf(2, arrow.PrimitiveTypes.Int64), "arrow.fixed_shape_tensor", `{"shape":[2,1]}`))
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	element := leafNode("element", pq.Repetitions.Optional, nil, pq.Types.Int64, -1)
	for i := range raw {
		for _, b := range [][]byte{raw[:i], append(bytes.Clone(raw[:i]), append([]byte{raw[i] ^ 0xff}, raw[i+1:]...)...)} {
			content := write(t, table{
				fields: []schema.Node{listOf("x", element)}, meta: map[string]string{"ARROW:schema": base64.StdEncoding.EncodeToString(b)},
				groups: [][]data{{{[]int64{1, 2}, repeat(2, 3), []int16{0, 1}}}},
			})
			src, err := parquet.New(t.Context(), inputs(t, store(t, map[string][]byte{"x.parquet": content})), parquet.Options{})
			if err != nil {
				if !strings.Contains(err.Error(), "x.parquet: column x: its type") {
					t.Fatal(i, err)
				}
				continue
			}
			got, _, err := rows(src)
			if err != nil || len(got) > 1 || len(got) == 1 && !strings.HasSuffix(got[0].fields["x.npy"], "\x01\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00") {
				t.Fatal(i, got, err)
			}
			src.Close()
		}
	}
}

// TestListsOfFixedLists: what is no array of numbers stays JSON, also where lists of fixed sizes state
// a shape.
func TestListsOfFixedLists(t *testing.T) {
	t.Parallel()
	for values, of := range map[string]arrow.DataType{
		`[{"x":[["a","b"],["c",null]]},{"x":[]}]`:   arrow.BinaryTypes.String,
		`[{"x":[[{"i":1},{"i":2}]]},{"x":[null]}]`:  arrow.StructOf(arrow.Field{Name: "i", Type: arrow.PrimitiveTypes.Int64}),
		`[{"x":[["1.5","2.5"]]},{"x":[]},{"x":[]}]`: &arrow.Decimal256Type{Precision: 50, Scale: 1},
	} {
		content, _ := arrowOf(t, values, arrow.Field{Name: "x", Type: arrow.ListOf(arrow.FixedSizeListOf(2, of)), Nullable: true})
		src, err := arrowSource(t, content, false, parquet.Options{})
		if err != nil {
			t.Fatal(err)
		}
		got, bad, err := rows(src)
		var all []string
		for _, r := range got {
			all = append(all, fmt.Sprintf(`{"x":%s}`, r.fields["x.json"]))
		}
		if all := "[" + strings.Join(all, ",") + "]"; err != nil || len(bad) > 0 || all != values || parquet.Forms(src) {
			t.Errorf("%v: %s, %v, %v", of, all, bad, err)
		}
	}
}

// TestNestedText: text that is no UTF-8 stays as it is in a field of its own, and is an error of its row
// within JSON, which cannot have it.
func TestNestedText(t *testing.T) {
	t.Parallel()
	content, _ := arrowOf(t, `[{"a":"QQ","l":null,"m":null},{"a":"b","l":["x","QQ"],"m":null},{"a":"c","l":["x"],"m":[{"key":"QQ","value":1}]},{"a":"d","l":["x"],"m":[{"key":"y","value":1}]}]`,
		arrow.Field{Name: "a", Type: arrow.BinaryTypes.String}, arrow.Field{Name: "l", Type: arrow.ListOf(arrow.BinaryTypes.String), Nullable: true},
		arrow.Field{Name: "m", Type: arrow.MapOf(arrow.BinaryTypes.String, arrow.PrimitiveTypes.Int64), Nullable: true})
	src, err := arrowSource(t, bytes.ReplaceAll(content, []byte("QQ"), []byte("\xffQ")), false, parquet.Options{})
	if err != nil {
		t.Fatal(err)
	}
	got, bad, err := rows(src)
	if err != nil || len(got) != 2 || len(bad) != 2 || got[0].fields["a.txt"] != "\xffQ" || got[1].fields["m.json"] != `{"y":1}` {
		t.Fatal(got, bad, err)
	}
	for i, column := range []string{"l", "m"} {
		if text := bad[i].Error(); !strings.Contains(text, "column "+column) || !strings.Contains(text, `its text "\xffQ" is not UTF-8`) {
			t.Error(text)
		}
	}
}

// TestVariableTensors: each row has its own shape, or an error of the row.
func TestVariableTensors(t *testing.T) {
	t.Parallel()
	of := arrow.StructOf(arrow.Field{Name: "data", Type: arrow.ListOf(arrow.PrimitiveTypes.Int64), Nullable: true}, arrow.Field{Name: "shape", Type: arrow.ListOf(arrow.PrimitiveTypes.Int32), Nullable: true})
	content, _ := arrowOf(t, `[{"x":{"data":[1,2,3,4],"shape":[2,2]}},{"x":{"data":[1,2],"shape":[2,1]}},{"x":{"data":[],"shape":[0,5]}},{"x":{"data":[1],"shape":[2,1]}},
		{"x":{"data":[],"shape":[0,-1]}},{"x":{"data":[7],"shape":[1]}},{"x":{"data":[null],"shape":[1,1]}},{"x":{"data":[1],"shape":[65536,65536]}}]`,
		extended("x", of, "arrow.variable_shape_tensor", `{"permutation":[1,0]}`))
	src, err := arrowSource(t, content, false, parquet.Options{})
	if err != nil {
		t.Fatal(err)
	}
	got, bad, err := rows(src)
	if err != nil || src.Even {
		t.Fatal(err, src.Even)
	}
	want := []map[string]string{{"x.npy": npyInts([]int{2, 2}, 1, 3, 2, 4)}, {"x.npy": npyInts([]int{1, 2}, 1, 2)}, {"x.npy": npyInts([]int{5, 0})}, {"x.json": `{"data":[null],"shape":[1,1]}`}}
	if len(got) != len(want) || len(bad) != 4 {
		t.Fatal(got, bad)
	}
	for i := range want {
		sameFields(t, fmt.Sprint("row ", i), got[i].fields, want[i])
	}
}

// repeat is a list of n equal levels.
func repeat(n int, level int16) []int16 {
	out := make([]int16, n)
	for i := range out {
		out[i] = level
	}
	return out
}

// TestMapTwice: a map with a key twice is a list of pairs, also within others, and the log hears of
// it once; other maps are objects.
func TestMapTwice(t *testing.T) {
	t.Parallel()
	of := arrow.MapOf(arrow.BinaryTypes.String, arrow.PrimitiveTypes.Int64)
	content, _ := arrowOf(t, `[{"m":[{"key":"a","value":1},{"key":"b","value":2}],"l":[[{"key":"x","value":1}],[{"key":"x","value":1},{"key":"y","value":null},{"key":"x","value":3}]]},
		{"m":[{"key":"a","value":1},{"key":"a","value":2}],"l":[]},{"m":[],"l":null}]`, arrow.Field{Name: "m", Type: of, Nullable: true},
		arrow.Field{Name: "l", Type: arrow.ListOf(of), Nullable: true})
	var said bytes.Buffer
	src, err := arrowSource(t, content, false, parquet.Options{Log: slog.New(slog.NewTextHandler(&said, nil))})
	if err != nil {
		t.Fatal(err)
	}
	got, bad, err := rows(src)
	want := []map[string]string{
		{"m.json": `{"a":1,"b":2}`, "l.json": `[{"x":1},[["x",1],["y",null],["x",3]]]`},
		{"m.json": `[["a",1],["a",2]]`, "l.json": `[]`}, {"m.json": `{}`},
	}
	if err != nil || len(bad) > 0 || len(got) != len(want) || !parquet.Forms(src) {
		t.Fatal(got, bad, err)
	}
	for i := range want {
		sameFields(t, got[i].key, got[i].fields, want[i])
	}
	if n := strings.Count(said.String(), "key twice"); n != 1 {
		t.Errorf("said %d times: %s", n, &said)
	}
}
