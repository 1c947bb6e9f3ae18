package parquet_test

import (
	"testing"

	pq "github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/schema"

	"github.com/shardtool/shardtool/internal/format/npy"
	"github.com/shardtool/shardtool/writer/source/parquet"
)

// lists makes the levels of lists of some lengths, whose values count from 1.
func lists(lengths ...int) data {
	var d data
	values := []int32{}
	for _, n := range lengths {
		for i := range max(n, 1) {
			if n > 0 {
				values = append(values, int32(len(values)+1))
			}
			d.defs = append(d.defs, int16(min(n, 1)+1))
			d.reps = append(d.reps, int16(min(i, 1)))
		}
	}
	d.values = values
	return d
}

// TestEven tells lists of one length from others by the footers alone.
func TestEven(t *testing.T) {
	column := func(name string) schema.Node {
		return listOf(name, leafNode("element", pq.Repetitions.Required, nil, pq.Types.Int32, -1))
	}
	number := leafNode("n", pq.Repetitions.Required, nil, pq.Types.Int32, -1)
	for name, c := range map[string]struct {
		table
		want bool
	}{
		"one group":          {table{fields: schema.FieldList{column("a")}, groups: [][]data{{lists(2, 2)}}}, true},
		"two groups":         {table{fields: schema.FieldList{column("a")}, groups: [][]data{{lists(2, 2)}, {lists(2)}}}, true},
		"two columns":        {table{fields: schema.FieldList{column("a"), column("b")}, groups: [][]data{{lists(2, 2), lists(1, 1)}}}, true},
		"a group of no rows": {table{fields: schema.FieldList{column("a")}, groups: [][]data{{lists()}, {lists(2)}}}, true},
		"other lengths":      {table{fields: schema.FieldList{column("a")}, groups: [][]data{{lists(2, 3)}}}, false},
		"another group":      {table{fields: schema.FieldList{column("a")}, groups: [][]data{{lists(2)}, {lists(3)}}}, false},
		"one column of them": {table{fields: schema.FieldList{column("a"), column("b")}, groups: [][]data{{lists(2, 2), lists(1, 2)}}}, false},
		"a number beside":    {table{fields: schema.FieldList{column("a"), number}, groups: [][]data{{lists(2), {values: []int32{1}}}}}, false},
		"by the mean of two": {table{fields: schema.FieldList{column("a")}, groups: [][]data{{lists(1, 3)}}}, true}, // footers do not tell
	} {
		files := map[string][]byte{"a.parquet": write(t, c.table)}
		src, err := parquet.New(t.Context(), inputs(t, store(t, files), "a.parquet"), parquet.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if src.Even != c.want {
			t.Errorf("%s: even %v", name, src.Even)
		}
		src.Close()
	}
	two := table{fields: schema.FieldList{column("a")}, groups: [][]data{{lists(2)}}}
	three := table{fields: schema.FieldList{column("a")}, groups: [][]data{{lists(3)}}}
	src, err := parquet.New(t.Context(), inputs(t, store(t, map[string][]byte{"a.parquet": write(t, two), "b.parquet": write(t, three)}), "a.parquet", "b.parquet"), parquet.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	if src.Even {
		t.Error("files with lists of different lengths are even")
	}
}

// TestArrays stores numbers as arrays without a dimension.
func TestArrays(t *testing.T) {
	tab := table{
		fields: schema.FieldList{
			leafNode("n", pq.Repetitions.Optional, nil, pq.Types.Int32, -1), leafNode("t", pq.Repetitions.Required, schema.StringLogicalType{}, pq.Types.ByteArray, -1),
			leafNode("f", pq.Repetitions.Required, nil, pq.Types.Double, -1), leafNode("b", pq.Repetitions.Required, nil, pq.Types.Boolean, -1),
		},
		groups: [][]data{{
			{values: []int32{-2}, defs: []int16{1, 0}}, {values: []string{"x", "y"}}, {values: []float64{1.5, 2}}, {values: []bool{true, false}},
		}},
	}
	array := func(dtype, raw string) string { return string(npy.AppendHeader[int](nil, dtype)) + raw }
	got := read(t, write(t, tab), parquet.Options{Arrays: true})
	sameFields(t, "row 0", got[0].fields, map[string]string{
		"n.npy": array("<i4", "\xfe\xff\xff\xff"), "n.mask.npy": array("|b1", "\x01"), "t.txt": "x", "f.npy": array("<f8", "\x00\x00\x00\x00\x00\x00\xf8?"), "b.npy": array("|b1", "\x01"),
	})
	sameFields(t, "row 1", got[1].fields, map[string]string{
		"n.npy": array("<i4", "\x00\x00\x00\x00"), "n.mask.npy": array("|b1", "\x00"), "t.txt": "y", "f.npy": array("<f8", "\x00\x00\x00\x00\x00\x00\x00@"), "b.npy": array("|b1", "\x00"),
	})
}
