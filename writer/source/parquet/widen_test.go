package parquet_test

import (
	"encoding/binary"
	"math"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	pq "github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/schema"

	"github.com/shardtool/shardtool/hint"
	"github.com/shardtool/shardtool/internal/format/npy"
	"github.com/shardtool/shardtool/writer/source/parquet"
)

// TestWiden: a column of integers in one file and of floats in another is refused with a hint, or
// is of floats; an integer that is no float is an error of its row.
func TestWiden(t *testing.T) {
	t.Parallel()
	first, _ := arrowOf(t, `[{"x":1,"l":[3]},{"x":0,"l":[1]}]`, arrow.Field{Name: "x", Type: arrow.PrimitiveTypes.Int64},
		arrow.Field{Name: "l", Type: arrow.ListOf(arrow.PrimitiveTypes.Uint64)})
	second, _ := arrowOf(t, `[{"x":0.5,"l":[0.25]}]`, arrow.Field{Name: "x", Type: arrow.PrimitiveTypes.Float64}, arrow.Field{Name: "l", Type: arrow.ListOf(arrow.PrimitiveTypes.Float32)})
	in := inputs(t, store(t, map[string][]byte{"a.arrow": first, "b.arrow": second}))
	_, err := parquet.New(t.Context(), in, parquet.Options{})
	if hints := hint.Of(err); err == nil || len(hints) != 1 || hints[0].Option != "widen" {
		t.Errorf("%v, hints %v", err, hints)
	}
	if _, err = parquet.New(t.Context(), in, parquet.Options{Columns: []string{"l"}}); len(hint.Of(err)) != 1 {
		t.Error(err)
	}
	src, err := parquet.New(t.Context(), in, parquet.Options{Widen: true, Where: []string{"x >= 0.5"}})
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	got, bad, err := rows(src)
	if err != nil || len(bad) > 0 || len(got) != 2 || len(src.Widened) != 2 {
		t.Fatal(got, bad, err, src.Widened)
	}
	for i, want := range []map[string]string{{"x.txt": "1", "l.npy": npyFloat(3)}, {"x.txt": "0.5", "l.npy": npyFloat(0.25)}} {
		sameFields(t, got[i].key, got[i].fields, want)
	}
	if types := src.Meta()["kinds"]; !strings.Contains(types, `"x.txt":"float"`) {
		t.Error(types)
	}
	file := func(physical pq.Type, values any) []byte {
		return write(t, table{fields: []schema.Node{leafNode("x", pq.Repetitions.Required, nil, physical, -1)}, groups: [][]data{{{values: values}}}})
	}
	in = inputs(t, store(t, map[string][]byte{"a.parquet": file(pq.Types.Int64, []int64{1 << 53, 1<<53 + 1, -3}), "b.parquet": file(pq.Types.Double, []float64{0.5})}))
	exact, err := parquet.New(t.Context(), in, parquet.Options{Widen: true, Where: []string{"x != 0.5"}})
	if err != nil {
		t.Fatal(err)
	}
	defer exact.Close()
	got, bad, err = rows(exact)
	if err != nil || len(bad) != 1 || !strings.Contains(bad[0].Error(), "column x: 9007199254740993 is no float") || len(got) != 2 || got[1].fields["x.txt"] != "-3" {
		t.Error(got, bad, err)
	}
}

// npyFloat is an array of one float64 in an npy file.
func npyFloat(f float64) string {
	return string(binary.LittleEndian.AppendUint64(npy.AppendHeader(nil, "<f8", 1), math.Float64bits(f)))
}

// TestUnits: times and durations of different units are not one column. Durations of which one file
// states no unit are integers.
func TestUnits(t *testing.T) {
	t.Parallel()
	file := func(of arrow.DataType) []byte {
		content, _ := arrowOf(t, `[{"x":1}]`, arrow.Field{Name: "x", Type: of})
		return content
	}
	for _, c := range []struct {
		a, b arrow.DataType
		want string
	}{
		{arrow.FixedWidthTypes.Time32ms, arrow.FixedWidthTypes.Time64us, "column x is time64[us] here and time32[ms] in"},
		{arrow.FixedWidthTypes.Duration_s, arrow.FixedWidthTypes.Duration_ns, "column x is duration[ns] here and duration[s] in"},
		{arrow.FixedWidthTypes.Duration_s, arrow.PrimitiveTypes.Int64, ""},
		{arrow.FixedWidthTypes.Timestamp_s, arrow.FixedWidthTypes.Timestamp_us, ""},
	} {
		src, err := parquet.New(t.Context(), inputs(t, store(t, map[string][]byte{"a.arrow": file(c.a), "b.arrow": file(c.b)})), parquet.Options{})
		if (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v and %v: %v", c.a, c.b, err)
		}
		if err == nil {
			if meta := src.Meta()["features"]; meta != "" {
				t.Errorf("%v and %v: %s", c.a, c.b, meta)
			}
			src.Close()
		}
	}
}

// TestMasks: numbers with nulls have a mask, those without have none, and a name that is taken is
// refused.
func TestMasks(t *testing.T) {
	t.Parallel()
	number := arrow.Field{Name: "x", Type: arrow.PrimitiveTypes.Int16, Nullable: true}
	half := arrow.Field{Name: "y", Type: arrow.FixedWidthTypes.Float16, Nullable: true}
	whole, _ := arrowOf(t, `[{"x":1,"y":1},{"x":2,"y":2}]`, number, half)
	nulls, _ := arrowOf(t, `[{"x":null,"y":0.5},{"x":2,"y":null}]`, number, half)
	open := func(opt parquet.Options, files ...[]byte) (*parquet.Rows, error) {
		all := map[string][]byte{}
		for i, content := range files {
			all[string(rune('a'+i))+".arrow"] = content
		}
		opt.Arrays = true
		return parquet.New(t.Context(), inputs(t, store(t, all)), opt)
	}
	mask := func(there byte) string { return string(append(npy.AppendHeader[int](nil, "|b1"), there)) }
	int16s := func(v ...byte) string { return string(append(npy.AppendHeader[int](nil, "<i2"), v...)) }
	src, err := open(parquet.Options{Columns: []string{"x"}}, whole)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	if got, bad, err := rows(src); err != nil || len(bad) > 0 || len(got) != 2 || len(got[0].fields) != 1 {
		t.Error(got, bad, err)
	}
	both, err := open(parquet.Options{Columns: []string{"x", "y"}}, whole, nulls)
	if err != nil {
		t.Fatal(err)
	}
	defer both.Close()
	got, bad, err := rows(both)
	if err != nil || len(bad) > 0 || len(got) != 4 {
		t.Fatal(got, bad, err)
	}
	sameFields(t, "there", got[0].fields, map[string]string{"x.npy": int16s(1, 0), "x.mask.npy": mask(1), "y.npy": string(append(npy.AppendHeader[int](nil, "<f2"), 0, 0x3c)), "y.mask.npy": mask(1)})
	sameFields(t, "null", got[2].fields, map[string]string{"x.npy": int16s(0, 0), "x.mask.npy": mask(0), "y.npy": string(append(npy.AppendHeader[int](nil, "<f2"), 0, 0x38)), "y.mask.npy": mask(1)})
	if meta := both.Meta(); !strings.Contains(meta["features"], `"x.mask.npy":{"dtype":"bool","_type":"Value"}`) {
		t.Error(meta)
	}
	if src.Fingerprint() == both.Fingerprint() {
		t.Error("one fingerprint")
	}
	taken, _ := arrowOf(t, `[{"x":null,"x.mask.npy":1}]`, number, arrow.Field{Name: "x.mask.npy", Type: arrow.PrimitiveTypes.Int16})
	if _, err := open(parquet.Options{}, taken); err == nil || !strings.Contains(err.Error(), `"x" and "x.mask.npy" would both become the field x.mask.npy`) {
		t.Error(err)
	}
}
