package lines

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source"
)

const (
	people = `{"id":"a","age":7,"score":1.5,"ok":true,"tags":[1],"name":"Zoë"}
{"id":"b/c","age":30,"score":2,"ok":false,"name":"Bob"}
{"id":12,"age":null,"name":"10"}
{"age":-1,"name":"","id":null}
`
	peopleCSV = "id,age,score,name,zip\na,7,1.5,Zoë,007\nb/c,30,2,Bob,10115\n12,,,10,x\n,-1,3,\"\",\n"
)

// TestOptions: keys, columns, names, attributes and filters.
func TestOptions(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		file, text string
		opt        Options
		want       []string
	}{
		"key": {"x.jsonl", people, Options{Key: "id", Columns: []string{"name"}}, []string{
			"a | name.txt=Zoë", "b/c | name.txt=Bob", "12 | name.txt=10", "! line 4: the key, column \"id\", is null: leave such rows out by the condition 'id is not null'",
		}},
		"key and column": {"x.jsonl", people, Options{Key: "id", Columns: []string{"id"}, Rename: map[string]string{"id": "txt"}, Where: []string{"id is not null"}}, []string{
			"a | txt=a", "b/c | txt=b/c", "12 | txt=12",
		}},
		"bad keys": {"x.jsonl", `{"a":1}` + "\n" + `{"k":1.5}` + "\n" + `{"k":true}` + "\n" + `{"k":["a"]}` + "\n" + `{"k":""}` + "\n" + `{"k":"x.y"}` + "\n" + `{"k":"../a"}`, Options{Key: "k"}, []string{
			"! line 1: the key, column \"k\", is missing", "! is a number: a key is a string or an integer", "! is a truth value", "! is a list", "! is empty: leave such rows out by the condition 'k!='",
			"! has a dot in its last element", "! path element \"..\"",
		}},
		"CSV key": {"x.csv", peopleCSV, Options{Key: "id", Columns: []string{"name"}}, []string{
			"a | name.txt=Zoë", "b/c | name.txt=Bob", "12 | name.txt=10", "! line 5: the key, column \"id\", is null",
		}},
		"key alone": {"x.csv", "k\n1\n", Options{Key: "k"}, []string{"! line 2 … nothing to store"}},
		"attributes": {"x.jsonl", people, Options{Columns: []string{"name"}, Attrs: map[string]string{"n": "age", "s": "score", "ok": "ok", "l": "name"}}, []string{
			`x/000000000 | name.txt=Zoë | @l="Zoë" | @n=7 | @ok=1 | @s=1.5.`, `x/000000001 | name.txt=Bob | @l="Bob" | @n=30 | @ok=0 | @s=2.`,
			`x/000000002 | name.txt=10 | @l="10"`, `x/000000003 | name.txt= | @l="" | @n=-1`,
		}},
		"CSV attributes": {"x.csv", peopleCSV, Options{Columns: []string{"name"}, Attrs: map[string]string{"n": "age", "s": "score", "z": "zip"}}, []string{
			`x/000000000 | name.txt=Zoë | @n=7 | @s=1.5. | @z="007"`, `x/000000001 | name.txt=Bob | @n=30 | @s=2. | @z="10115"`,
			`x/000000002 | name.txt=10 | @z="x"`, `x/000000003 | name.txt= | @n=-1 | @s=3.`,
		}},
		"filters":       {"x.jsonl", people, Options{Columns: []string{"id"}, Where: []string{"age>=7", "score<2"}}, []string{"x/000000000 | id.txt=a"}},
		"expression":    {"x.jsonl", people, Options{Columns: []string{"id"}, Where: []string{"not (age<7 or score>=2) or ok=false"}}, []string{"x/000000000 | id.txt=a", "x/000000001 | id.txt=b/c"}},
		"equal numbers": {"x.jsonl", people, Options{Columns: []string{"id"}, Where: []string{"score=2.0"}}, []string{"x/000000001 | id.txt=b/c"}},
		"opposites": {"x.jsonl", `{"a":"t"}` + "\n" + `{"a":7}` + "\n" + `{"a":null}` + "\n" + `{"a":1}`, Options{Columns: []string{"a"}, Where: []string{"a!=t and not a<5"}}, []string{
			"x/000000001 | a.txt=7",
		}},
		"strings":       {"x.jsonl", people, Options{Columns: []string{"id"}, Where: []string{"name<B", "name!="}}, []string{"x/000000002 | id.txt=12"}},
		"truth":         {"x.jsonl", people, Options{Columns: []string{"id"}, Where: []string{"ok=false"}}, []string{"x/000000001 | id.txt=b/c"}},
		"null":          {"x.jsonl", people, Options{Columns: []string{"age"}, Where: []string{"score is null", "age is not null"}}, []string{"x/000000003 | age.txt=-1"}},
		"other types":   {"x.jsonl", people, Options{Columns: []string{"age"}, Where: []string{"tags!=1", "age!=x"}}, []string{"x/000000000 | age.txt=7"}},
		"CSV numbers":   {"x.csv", peopleCSV, Options{Columns: []string{"id"}, Where: []string{"age>8"}}, []string{"x/000000001 | id.txt=b/c"}},
		"CSV as number": {"x.csv", peopleCSV, Options{Columns: []string{"id"}, Where: []string{"zip=7"}}, []string{"x/000000000 | id.txt=a"}},
		"CSV as text":   {"x.csv", peopleCSV, Options{Columns: []string{"id"}, Where: []string{"zip='7'"}}, nil},
		"CSV null":      {"x.csv", peopleCSV, Options{Columns: []string{"age"}, Where: []string{"zip is null"}}, []string{"x/000000003 | age.txt=-1"}},
		"late float":    {"x.jsonl", "{\"a\":1}\n{\"a\":1.5}\n", Options{Attrs: map[string]string{"n": "a"}}, []string{"x/000000000 | a.txt=1 | @n=1.", "x/000000001 | a.txt=1.5 | @n=1.5."}},
		"no columns":    {"x.jsonl", people, Options{Columns: []string{"nme"}, Where: []string{"name=Bob"}}, []string{`! the row has no value in the columns nme: it has "id", "age", "score", "ok", "name"`}},
		"nulls": {"x.jsonl", `{"a":null,"label":null}` + "\n" + `{"a":1}` + "\n{}\n", Options{Nulls: source.NullsEmpty}, []string{
			"x/000000000 | a.txt= | label.txt=", "x/000000001 | a.txt=1", "! line 3 … all columns are null: there is nothing to store", // no condition names the columns
		}},
		"nulls of columns": {"x.jsonl", `{"b":null}` + "\n{}\n", Options{Nulls: source.NullsEmpty, Columns: []string{"b", "a"}, Rename: map[string]string{"a": "txt"}}, []string{
			"x/000000000 | b.txt= | txt=", "x/000000001 | b.txt= | txt=",
		}},
		"CSV nulls":     {"x.csv", "k,a,cls\n1,,\n2,x,\n", Options{Nulls: source.NullsEmpty, Key: "k"}, []string{"1 | a.txt= | cls=", "2 | a.txt=x"}},
		"no name":       {"x.jsonl", `{"":1,"a":2}`, Options{}, []string{`! column "" cannot be the name of a field`}},
		"renamed":       {"x.jsonl", `{"":1,"a":2}`, Options{Rename: map[string]string{"": "b"}}, []string{"x/000000000 | a.txt=2 | b.txt=1"}},
		"CSV renamed":   {"x.csv", ",a\n1,2\n", Options{Rename: map[string]string{"": "b"}}, []string{"x/000000000 | a.txt=2 | b.txt=1"}},
		"two of a name": {"x.jsonl", `{"a":1,"a.txt":2}`, Options{}, []string{"x/000000000 | a.txt=1 | a.txt=2"}}, // the writer refuses it
	} {
		t.Run(name, func(t *testing.T) { same(t, all(t, open(t, c.opt, given(t, c.file, c.text))), c.want) })
	}
	// The first rows decide for all.
	text := strings.Repeat("{\"a\":1"+strings.Repeat(" ", 200)+"}\n", 10_000) + "{\"a\":1.5}\n"
	got := all(t, open(t, Options{Attrs: map[string]string{"n": "a"}}, given(t, "x.jsonl", text)))
	same(t, got[10_000:], []string{"! attribute n, column a: 1.5 is not an integer, as in the first rows"})
	same(t, got[:1], []string{"x/000000000 | a.txt=1 | @n=1"})
}

// TestBadOptions: bad options are refused before anything is read.
func TestBadOptions(t *testing.T) {
	t.Parallel()
	for want, opt := range map[string]Options{
		"option columns: there is no column \"b\"; there are: a":           {Columns: []string{"b"}},
		"columns: \"a\" is there twice":                                    {Columns: []string{"a", "a"}},
		"rename: there is no column \"b\"":                                 {Rename: map[string]string{"b": "c"}},
		"rename: column \"a\" gets an empty name":                          {Rename: map[string]string{"a": ""}},
		"rename: column \"a\" becomes no field":                            {Key: "a", Rename: map[string]string{"a": "c"}},
		"x.csv: option key: the file has no column \"b\"; it has: a":       {Key: "b"},
		"attr n: there is no column \"b\"":                                 {Attrs: map[string]string{"n": "b"}},
		"where \"b=1\": at character 1, \"b=1\": there is no column \"b\"": {Where: []string{"b=1"}},
		"where \"a~1\": at character 4, the end: write a column, one of":   {Where: []string{"a~1"}},
		"give positive numbers":                                            {MaxLine: -1},
	} {
		_, err := New(t.Context(), given(t, "x.csv", "a\n1\n"), opt)
		if !errors.Is(err, writer.ErrOptions) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	for want, in := range map[string][]source.Input{
		"inputs: there are none": nil,
		"inputs: x.text: give files that end in .jsonl, .ndjson, .json, .csv": given(t, "x.text", "{}"),
		"is given twice": append(given(t, "x.csv", "a"), given(t, "x.csv", "a")...),
	} {
		if _, err := New(t.Context(), in, Options{}); !errors.Is(err, writer.ErrOptions) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if _, err := New(t.Context(), []source.Input{{Store: mem.New(), Name: "x.csv", Path: "dir/x.csv"}}, Options{}); err == nil || !strings.Contains(err.Error(), "dir/x.csv") {
		t.Error(err)
	}
	for _, name := range []string{"a.jsonl", "a.NDJSON", "a.b.csv", "a.tsv.gz", "a.JSONL.ZST", "a.csv.zstd", "a.csv.bz2", "a.csv.xz", "a.csv.lz4"} {
		if _, _, _, ok := kindOf(name); !ok {
			t.Errorf("%s is not taken", name)
		}
	}
	for _, name := range []string{"a.jso", "jsonl", ".jsonl", "a.csv.br", "a.gz", "a.txt", ".csv.gz"} {
		if _, _, _, ok := kindOf(name); ok {
			t.Errorf("%s is taken", name)
		}
	}
}

// TestFiles: files that differ in columns, in extension, or in folder.
func TestFiles(t *testing.T) {
	t.Parallel()
	in := given(t, "d/a.csv", "x,y\n1,2\n", "e/a.csv", "y,z\n3,4\n", "e/b.JSONL", "{\"x\":5}")
	whole := open(t, Options{Columns: []string{"x", "y"}}, in)
	same(t, all(t, whole), []string{"d/a/000000000 | x.txt=1 | y.txt=2", "e/a/000000000 | y.txt=3", "e/b/000000000 | x.txt=5"})
	if n, size := whole.Total(); n != 0 || size != 8+8+7 {
		t.Error(n, size)
	}
	got := all(t, open(t, Options{}, given(t, "a.csv", "x\n1\n", "a.jsonl", "{\"x\":2}", "a.jsonl.gz", "{\"x\":3}")))
	same(t, got, []string{"a.csv/000000000 | x.txt=1", "a.jsonl/000000000 | x.txt=2", "a.jsonl.gz/000000000 | x.txt=3"})

	// What may change the samples changes the fingerprint.
	seen := map[string]string{whole.Fingerprint(): "first"}
	for name, s := range map[string]*lineSource{
		"options": open(t, Options{Columns: []string{"x"}}, in),
		"order":   open(t, Options{Columns: []string{"x", "y"}}, []source.Input{in[1], in[0], in[2]}),
		"fewer":   open(t, Options{Columns: []string{"x", "y"}}, in[:2]),
	} {
		if other := seen[s.Fingerprint()]; other != "" {
			t.Errorf("%s has the fingerprint of %s", name, other)
		}
		seen[s.Fingerprint()] = name
	}
	if _, err := objstore.Put(t.Context(), in[0].Store, "d/a.csv", []byte("x,y\n1,3\n"), objstore.Condition{}); err != nil {
		t.Fatal(err)
	}
	if same := open(t, Options{Columns: []string{"x", "y"}}, in); same.Fingerprint() == whole.Fingerprint() {
		t.Error("another file has the same fingerprint")
	}
}

// TestNullsSkipped: rows without a value are marked to be left out if the options ask for it.
func TestNullsSkipped(t *testing.T) {
	t.Parallel()
	for _, nulls := range []source.Nulls{source.NullsFail, source.NullsSkip} {
		for name, text := range map[string]string{"x.jsonl": `{"a":null}` + "\n" + `{"a":}`, "x.csv": "a,b\n,\n1\n"} {
			src := open(t, Options{Nulls: nulls}, given(t, name, text))
			var se *writer.SampleError
			_, err := src.Next(t.Context())
			if !errors.As(err, &se) || !errors.Is(err, source.ErrNulls) || se.LeaveOut != (nulls == source.NullsSkip) {
				t.Errorf("%s: %v", name, err)
			}
			_, err = src.Next(t.Context())
			if !errors.As(err, &se) || se.LeaveOut || errors.Is(err, source.ErrNulls) { // bad, not null
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// TestBomb: a row that is much longer than the stored bytes of its file is too long, from a file
// and from a stream. It takes no more memory than other rows, and those after it are read.
func TestBomb(t *testing.T) {
	t.Parallel()
	text := "{\"k\":\"a\"}\n{\"k\":\"" + strings.Repeat("x", plausible) + "\"}\n{\"k\":\"b\"}\n"
	stored := pack(t, "x.jsonl.zst", text)
	store := mem.New()
	put(t, store, "x.jsonl.zst", stored)
	stream, err := source.ReaderInput(t.Context(), bytes.NewReader(stored), "x.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	for _, in := range []source.Input{{Store: store, Name: "x.jsonl.zst"}, stream} {
		got := all(t, open(t, Options{}, []source.Input{in}))
		if len(got) != 3 || !strings.Contains(got[1], "line 2: ") || !strings.Contains(got[1], "longer than 67108864 bytes") || !strings.HasSuffix(got[2], "k.txt=b") {
			t.Errorf("%.200q", got)
		}
	}
}
