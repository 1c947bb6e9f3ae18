package parquet_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	pq "github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/schema"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source"
	"github.com/shardtool/shardtool/writer/source/parquet"
)

// people is a file with a column of each class that filters and attributes take, in row groups of
// 10.
func people(t testing.TB) []byte {
	str := schema.StringLogicalType{}
	tab := table{fields: schema.FieldList{
		leafNode("id", pq.Repetitions.Required, nil, pq.Types.Int64, 0),
		leafNode("name", pq.Repetitions.Optional, str, pq.Types.ByteArray, 0),
		leafNode("score", pq.Repetitions.Required, nil, pq.Types.Double, 0),
		leafNode("ok", pq.Repetitions.Required, nil, pq.Types.Boolean, 0),
		leafNode("day", pq.Repetitions.Required, schema.DateLogicalType{}, pq.Types.Int32, 0),
		leafNode("price", pq.Repetitions.Required, schema.NewDecimalLogicalType(9, 2), pq.Types.Int32, 0),
		leafNode("big", pq.Repetitions.Required, schema.NewIntLogicalType(64, false), pq.Types.Int64, 0),
		listOf("list", leafNode("element", pq.Repetitions.Required, nil, pq.Types.Int32, 0)),
	}}
	for g := range 3 {
		var ids, big []int64
		var names []string
		var scores []float64
		var ok []bool
		var days, prices, lists []int32
		var defs, listDefs, reps []int16
		for k := range 10 {
			i := g*10 + k
			ids, big = append(ids, int64(i)), append(big, int64(-i))
			d := int16(1)
			if i%5 == 4 {
				d = 0
			} else {
				names = append(names, fmt.Sprintf("name %02d", i))
			}
			defs = append(defs, d)
			score := float64(i) / 10
			if i == 7 {
				score = math.NaN()
			}
			scores, ok = append(scores, score), append(ok, i%2 == 0)
			days, prices = append(days, int32(i)), append(prices, int32(100*i+50))
			lists, listDefs, reps = append(lists, int32(i)), append(listDefs, 2), append(reps, 0)
		}
		tab.groups = append(tab.groups, []data{{values: ids}, {values: names, defs: defs}, {values: scores}, {values: ok}, {values: days},
			{values: prices}, {values: big}, {values: lists, defs: listDefs, reps: reps}})
	}
	return write(t, tab)
}

func TestWhere(t *testing.T) {
	content := people(t)
	numbers := func(match func(i int) bool) (out []string) {
		for i := range 30 {
			if match(i) {
				out = append(out, fmt.Sprint(i))
			}
		}
		return out
	}
	null := func(i int) bool { return i%5 == 4 }
	for _, c := range []struct {
		where []string
		match func(i int) bool
	}{
		{[]string{"id=7"}, func(i int) bool { return i == 7 }},
		{[]string{"id!=7"}, func(i int) bool { return i != 7 }},
		{[]string{"id<10"}, func(i int) bool { return i < 10 }},
		{[]string{"id <= 10"}, func(i int) bool { return i <= 10 }},
		{[]string{"id>9.5"}, func(i int) bool { return i > 9 }},
		{[]string{"id>=20", "id<25"}, func(i int) bool { return i >= 20 && i < 25 }},
		{[]string{"id>100"}, func(int) bool { return false }},
		{[]string{"id<18446744073709551615"}, func(int) bool { return true }},
		{[]string{"name=name 03"}, func(i int) bool { return i == 3 }},
		{[]string{"name='name 03'"}, func(i int) bool { return i == 3 }},
		{[]string{"name!=name 03"}, func(i int) bool { return i != 3 && !null(i) }},
		{[]string{"name>=name 20"}, func(i int) bool { return i >= 20 && !null(i) }},
		{[]string{"name is null"}, null},
		{[]string{"name IS NOT NULL", "id>=5"}, func(i int) bool { return !null(i) && i >= 5 }},
		{[]string{"list is null"}, func(int) bool { return false }},
		{[]string{"list is not null"}, func(int) bool { return true }},
		{[]string{"score>=1"}, func(i int) bool { return i >= 10 }},
		{[]string{"score!=0.3"}, func(i int) bool { return i != 3 }},
		{[]string{"score<1"}, func(i int) bool { return i < 10 && i != 7 }},
		{[]string{"not score<1"}, func(i int) bool { return i >= 10 || i == 7 }}, // NaN, which no statistics show
		{[]string{"score not between 0 and 1"}, func(i int) bool { return i > 10 || i == 7 }},
		{[]string{"not id<10"}, func(i int) bool { return i >= 10 }},
		{[]string{"ok=true"}, func(i int) bool { return i%2 == 0 }},
		{[]string{"ok!=true"}, func(i int) bool { return i%2 == 1 }},
		{[]string{"day<1970-01-11"}, func(i int) bool { return i < 10 }},
		{[]string{"price=7.5"}, func(i int) bool { return i == 7 }},
		{[]string{"price>28"}, func(i int) bool { return i >= 28 }},
		{[]string{"big=0"}, func(i int) bool { return i == 0 }},
		{[]string{"big>18446744073709551605"}, func(i int) bool { return i > 0 && i <= 10 }},
		{[]string{"big>=18446744073709551616"}, func(int) bool { return false }},
		{[]string{"big>-1"}, func(int) bool { return true }},
		{[]string{"id in (3, 5) or id between 20 and 22"}, func(i int) bool { return i == 3 || i == 5 || i >= 20 && i <= 22 }},
		{[]string{"not (id<10 or name is null)", "ok==true"}, func(i int) bool { return i >= 10 && !null(i) && i%2 == 0 }},
		{[]string{"not name in ('name 03', 'name 04')"}, func(i int) bool { return i != 3 && i != 4 && !null(i) }},
		{[]string{"id<3 and id>30 or id=12"}, func(i int) bool { return i == 12 }},
	} {
		var got []string
		for _, r := range read(t, content, parquet.Options{Where: c.where, Columns: []string{"id"}}) {
			got = append(got, r.fields["id.txt"])
		}
		if want := numbers(c.match); !slices.Equal(got, want) {
			t.Errorf("%q: rows %v, want %v", c.where, got, want)
		}
	}
}

// TestPruned: row groups that statistics rule out are not read, damaged or not.
func TestPruned(t *testing.T) {
	content := people(t)
	for i := range 40 {
		content[4+i] ^= 0xff // in the first column chunk
	}
	if got := read(t, content, parquet.Options{Where: []string{"id>=10"}}); len(got) != 20 || got[0].key != "x/000000010" {
		t.Fatalf("%d rows", len(got))
	}
	src, err := parquet.New(t.Context(), inputs(t, store(t, map[string][]byte{"x": content})), parquet.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	got, skipped, err := rows(src)
	if err != nil || len(got) != 20 || len(skipped) != 10 || !errors.Is(skipped[0], format.ErrCorrupt) {
		t.Fatalf("%d rows, %d skipped, %v", len(got), len(skipped), err)
	}
	if text := skipped[0].Error(); !strings.HasPrefix(text, "x: row group 0, row 0: row group 0, column id, row 0: corrupt data: page 0") {
		t.Error(text)
	}
}

func TestAttrs(t *testing.T) {
	got := read(t, people(t), parquet.Options{Columns: []string{"day"}, Key: "id",
		Attrs: map[string]string{"label": "name", "n": "id", "score": "score", "ok": "ok"}})
	for i, r := range got {
		if len(r.fields) != 1 || r.key != fmt.Sprint(i) {
			t.Errorf("row %d: %q, %q", i, r.key, r.fields)
		}
		if a, ok := r.attrs["label"]; ok != (i%5 != 4) || ok && (a.Kind != format.AttrLabel || a.Label != fmt.Sprintf("name %02d", i)) {
			t.Errorf("row %d: label %+v", i, a)
		}
		if a := r.attrs["n"]; a.Kind != format.AttrInteger || a.Integer != int64(i) {
			t.Errorf("row %d: n %+v", i, a)
		}
		if a := r.attrs["score"]; a.Kind != format.AttrNumber || a.Number != float64(i)/10 && i != 7 {
			t.Errorf("row %d: score %+v", i, a)
		}
		if a := r.attrs["ok"]; a.Kind != format.AttrInteger || a.Integer != int64(1-i%2) {
			t.Errorf("row %d: ok %+v", i, a)
		}
	}
}

// TestOptionErrors: each error names the option, and what there is instead.
func TestOptionErrors(t *testing.T) {
	st := store(t, map[string][]byte{"x.parquet": people(t)})
	for want, opt := range map[string]parquet.Options{
		`key: there is no column "no"; there are: id, name, score`:                  {Key: "no"},
		"key: column score is of type float64":                                      {Key: "score"},
		`columns: there is no column "no"`:                                          {Columns: []string{"id", "no"}},
		`columns: "id" is there twice`:                                              {Columns: []string{"id", "id"}},
		`rename: there is no column "no"`:                                           {Rename: map[string]string{"no": "x"}},
		`rename: column "ok" becomes no field`:                                      {Columns: []string{"id"}, Rename: map[string]string{"ok": "x"}},
		`would both become the field x.txt`:                                         {Rename: map[string]string{"id": "x", "score": "x"}},
		`cannot be the name of a field`:                                             {Rename: map[string]string{"id": "a/b"}},
		`attr a: there is no column "no"`:                                           {Attrs: map[string]string{"a": "no"}},
		`attr a: column day is of type date`:                                        {Attrs: map[string]string{"a": "day"}},
		`attr a: column list is of type list<int32>`:                                {Attrs: map[string]string{"a": "list"}},
		`where "no=1": at character 1, "no=1": there is no column "no"`:             {Where: []string{"no=1"}},
		`where "id": at character 3, the end: write a column`:                       {Where: []string{"id"}},
		`where "=3": at character 1, "=3": write a column`:                          {Where: []string{"=3"}},
		`where "id=x": at character 4, "x": column id is of type int64: compare it`: {Where: []string{"id=x"}},
		`where "ok>true": at character 4, "true": column ok is of type bool`:        {Where: []string{"ok>true"}},
		`where "day=x": at character 5, "x": column day is of type date`:            {Where: []string{"day=x"}},
		`where "list=1": at character 6, "1": column list is of type list<int32>`:   {Where: []string{"list=1"}},
	} {
		if _, err := parquet.New(t.Context(), inputs(t, st), opt); !errors.Is(err, writer.ErrOptions) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if _, err := parquet.New(t.Context(), nil, parquet.Options{}); !errors.Is(err, writer.ErrOptions) {
		t.Error(err)
	}
	if _, err := parquet.New(t.Context(), inputs(t, st, "x.parquet", "x.parquet"), parquet.Options{}); err == nil || !strings.Contains(err.Error(), "x.parquet is given twice") {
		t.Error(err)
	}
}

// one is a file with one column of strings or integers.
func one(t testing.TB, name string, values any, logical schema.LogicalType, physical pq.Type) []byte {
	return write(t, table{fields: schema.FieldList{leafNode(name, pq.Repetitions.Required, logical, physical, 0)}, groups: [][]data{{{values: values}}}})
}

// TestKeys: a row with an invalid key is an error with its position; the others are not affected.
func TestKeys(t *testing.T) {
	src, err := parquet.New(t.Context(), inputs(t, store(t, map[string][]byte{
		"x.parquet": one(t, "id", []string{"good", "", "a.jpg", "/abs", "dir.d/ok", strings.Repeat("k", 5000)}, schema.StringLogicalType{}, pq.Types.ByteArray),
	})), parquet.Options{Key: "id", Columns: []string{"id"}})
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	got, skipped, err := rows(src)
	if err != nil || len(got) != 2 || got[0].key != "good" || got[1].key != "dir.d/ok" || len(skipped) != 4 {
		t.Fatalf("%v, %v, %v", got, skipped, err)
	}
	for i, want := range []string{
		"x.parquet: row group 0, row 1: the key, column \"id\", is empty: leave such rows out by the condition 'id!='",
		`x.parquet: row group 0, row 2: the key, column "id": invalid sample name: key "a.jpg" has a dot in its last element`,
		`x.parquet: row group 0, row 3: the key, column "id": invalid sample name: key "/abs" is an absolute path`,
		"is longer than 4096",
	} {
		if !strings.Contains(skipped[i].Error(), want) {
			t.Errorf("%v, want %q", skipped[i], want)
		}
	}
}

// TestManyFiles: stems tell files apart, and columns of all of them make one set.
func TestManyFiles(t *testing.T) {
	files := map[string][]byte{
		"a/train.parquet": one(t, "n", []int32{1}, nil, pq.Types.Int32),
		"b/train.parquet": one(t, "n", []int64{2}, nil, pq.Types.Int64),
		"b/v1.2.parquet":  one(t, "text", []string{"three"}, schema.StringLogicalType{}, pq.Types.ByteArray),
		"none.parquet":    write(t, table{fields: schema.FieldList{leafNode("n", pq.Repetitions.Required, nil, pq.Types.Int32, 0)}}),
		"empty.parquet":   one(t, "n", []int32{}, nil, pq.Types.Int32),
	}
	src, err := parquet.New(t.Context(), inputs(t, store(t, files)), parquet.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	got, skipped, err := rows(src)
	if err != nil || len(got) != 3 || len(skipped) > 0 {
		t.Fatal(got, skipped, err)
	}
	for i, want := range []string{"a/train/000000000 map[n.txt:1]", "b/train/000000000 map[n.txt:2]", "b/v1.2/000000000 map[text.txt:three]"} {
		if have := fmt.Sprint(got[i].key, " ", got[i].fields); have != want {
			t.Errorf("%s, want %s", have, want)
		}
	}
	if n, _ := src.Total(); n != 3 {
		t.Errorf("%d rows in all", n)
	}
	files["c.parquet"] = one(t, "n", []string{"x"}, schema.StringLogicalType{}, pq.Types.ByteArray)
	_, err = parquet.New(t.Context(), inputs(t, store(t, files)), parquet.Options{})
	if err == nil || !strings.Contains(err.Error(), "c.parquet: column n is string here and int32 in a/train.parquet: take the other columns only") {
		t.Error(err)
	}
	src, err = parquet.New(t.Context(), inputs(t, store(t, files)), parquet.Options{Columns: []string{"text"}, Where: []string{"text is not null"}})
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	if got, _, err := rows(src); err != nil || len(got) != 1 {
		t.Error(got, err)
	}
	_, err = parquet.New(t.Context(), inputs(t, store(t, files), "a/train.parquet", "b/v1.2.parquet"), parquet.Options{Key: "n"})
	if !errors.Is(err, writer.ErrOptions) || !strings.Contains(err.Error(), `b/v1.2.parquet: option key: the file has no column "n"; it has: text`) {
		t.Error(err)
	}
}

// TestNulls: a row of nulls fails, is left out, or has fields of no bytes: one for each column,
// absent ones among them.
func TestNulls(t *testing.T) {
	defs := []int16{0, 1}
	content := write(t, table{
		fields: schema.FieldList{
			leafNode("n", pq.Repetitions.Optional, nil, pq.Types.Int32, 0),
			leafNode("label", pq.Repetitions.Optional, nil, pq.Types.Int32, 0),
			leafNode("jpg", pq.Repetitions.Optional, nil, pq.Types.ByteArray, 0),
			leafNode("none", pq.Repetitions.Optional, schema.NullLogicalType{}, pq.Types.Int32, 0),
			listOf("list", leafNode("element", pq.Repetitions.Required, nil, pq.Types.Int32, 0)),
		},
		groups: [][]data{{{[]int32{1}, defs, nil}, {[]int32{2}, defs, nil}, {[]string{"x"}, defs, nil}, {[]int32{}, []int16{0, 0}, nil}, {[]int32{3}, []int16{0, 2}, []int16{0, 0}}}},
	})
	full := map[string]string{"n.txt": "1", "label.cls": "2", "jpg": "x", "list.npy": numpy("<i4", "(1,)", int32(3))}
	for _, c := range []struct {
		opt      parquet.Options
		rows     []map[string]string
		left     bool
		leftText string
	}{
		{parquet.Options{}, []map[string]string{full}, false, "row group 0, row 0 (sample \"x/000000000\"): all columns are null: there is nothing to store"},
		{parquet.Options{Nulls: source.NullsSkip}, []map[string]string{full}, true, "all columns are null"},
		{parquet.Options{Nulls: source.NullsEmpty}, []map[string]string{{"n.txt": "", "label.cls": "", "jpg": "", "none.txt": "", "list.npy": ""}, full}, false, ""},
		{parquet.Options{Nulls: source.NullsEmpty, Columns: []string{"n", "none"}, Rename: map[string]string{"none": "b"}}, []map[string]string{{"n.txt": "", "b.txt": ""}, {"n.txt": "1"}}, false, ""},
	} {
		src, err := parquet.New(t.Context(), inputs(t, store(t, map[string][]byte{"x": content})), c.opt)
		if err != nil {
			t.Fatal(err)
		}
		defer src.Close()
		got, skipped, err := rows(src)
		if err != nil || len(got) != len(c.rows) || len(got)+len(skipped) != 2 {
			t.Fatal(got, skipped, err)
		}
		for i, want := range c.rows {
			sameFields(t, fmt.Sprint(c.opt.Nulls, " ", i), got[i].fields, want)
		}
		var se *writer.SampleError
		for _, err := range skipped {
			if !errors.As(err, &se) || !errors.Is(err, source.ErrNulls) || se.LeaveOut != c.left || !strings.Contains(err.Error(), c.leftText) {
				t.Errorf("%v: %v", c.opt.Nulls, err)
			}
		}
	}
}

// TestRaggedBeside: ragged rows of a column npy are not taken for those of a column json.
func TestRaggedBeside(t *testing.T) {
	list := func(name string) schema.Node {
		return listOf(name, listOf("element", leafNode("element", pq.Repetitions.Required, nil, pq.Types.Int32, 0)))
	}
	defs, reps := []int16{4, 4, 4, 4, 4}, []int16{0, 1, 0, 2, 1} // [[1], [2]], and [[3, 4], [5]]
	lists := data{values: []int32{1, 2, 3, 4, 5}, defs: defs, reps: reps}
	content := write(t, table{
		fields: schema.FieldList{leafNode("json", pq.Repetitions.Required, schema.JSONLogicalType{}, pq.Types.ByteArray, 0), list("npy"), list("x.npy"),
			leafNode("x.json", pq.Repetitions.Required, schema.JSONLogicalType{}, pq.Types.ByteArray, 0)},
		groups: [][]data{{{values: []string{"{}", "[]"}}, lists, lists, {values: []string{"1", "2"}}}},
	})
	got := read(t, content, parquet.Options{})
	square := numpy("<i4", "(2, 1)", int32(1), int32(2))
	sameFields(t, "square", got[0].fields, map[string]string{"json": "{}", "npy": square, "x.npy": square, "x.json": "1"})
	sameFields(t, "ragged", got[1].fields, map[string]string{"json": "[]", "npy.json": "[[3,4],[5]]", "x.npy.json": "[[3,4],[5]]", "x.json": "2"})
}

// TestFolderTwice: a column that files have and their folders too, as some writers leave it, is that of
// the files; a row with another value than the folder is an error.
func TestFolderTwice(t *testing.T) {
	t.Parallel()
	files := map[string][]byte{}
	for name, text := range map[string]string{
		"n=1/a.arrow": `[{"n":1,"t":"x"},{"n":2,"t":"y"},{"n":null,"t":"z"}]`, "n=02/b.arrow": `[{"n":2,"t":"u"}]`,
		"n=__HIVE_DEFAULT_PARTITION__/c.arrow": `[{"n":null,"t":"v"},{"n":3,"t":"w"}]`,
	} {
		files[name], _ = arrowOf(t, text, arrow.Field{Name: "n", Type: arrow.PrimitiveTypes.Int16, Nullable: true}, arrow.Field{Name: "t", Type: arrow.BinaryTypes.String})
	}
	in := inputs(t, store(t, files))
	src, err := parquet.New(t.Context(), in, parquet.Options{})
	if err != nil {
		t.Fatal(err)
	}
	got, bad, err := rows(src)
	var all []string
	for _, r := range got {
		all = append(all, r.fields["t.txt"]+r.fields["n.txt"])
	}
	if slices.Sort(all); err != nil || strings.Join(all, " ") != "u2 v x1" || len(bad) != 3 {
		t.Errorf("%q, %v, %v", all, bad, err)
	}
	src.Close()
	for where, want := range map[string]int{"n = 1": 1, "n is null": 1, "n > 1": 1} {
		if src, err = parquet.New(t.Context(), in, parquet.Options{Columns: []string{"t"}, Where: []string{where}}); err != nil {
			t.Fatal(err)
		}
		if got, _, err := rows(src); err != nil || len(got) != want {
			t.Errorf("%s: %v, %v", where, got, err)
		}
		src.Close()
	}
}
