package lines

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/writer"
)

// TestCells: the fields that rows of CSV become.
func TestCells(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ file, text, want string }{
		"plain":         {"x.csv", "a,b\n1,two\n3,four\n", "a.txt=1 | b.txt=two\n+a.txt=3 | b.txt=four"},
		"no end":        {"x.csv", "a,b\n1,two", "a.txt=1 | b.txt=two"},
		"CRLF, BOM":     {"x.csv", "\xef\xbb\xbfa,b\r\n1,two\r\n\r\n3,\"x\"\r\n", "a.txt=1 | b.txt=two\n+a.txt=3 | b.txt=x"},
		"quotes":        {"x.csv", "a,b\n\"x,\"\"y\"\"\n\r\nz\",\"\"\"\"\n", "a.txt=x,\"y\"\n\r\nz | b.txt=\""},
		"quoted header": {"x.csv", "\"a\nb\",\"c\"\"\"\n1,2\n", "a\nb.txt=1 | c\".txt=2"},
		"empty":         {"x.csv", "a,b\n,1\n\"\",2\n", "b.txt=1\n+a.txt= | b.txt=2"},
		"inner quotes":  {"x.csv", "a,b\n5\" disk,it's \"so\"\n", "a.txt=5\" disk | b.txt=it's \"so\""},
		"spaces":        {"x.csv", "a,b\n x , \"y\"\n", "a.txt= x  | b.txt= \"y\""},
		"blank lines":   {"x.csv", "\n\na\n\n1\n\r\n2\n", "a.txt=1\n+a.txt=2"},
		"tabs":          {"x.tsv", "a\tb\n1,5\t\"x\ty\"\n", "a.txt=1,5 | b.txt=x\ty"},
		"classes":       {"x.csv", "label,target,n\n3,cat,4\n-1,1.5,5\n", "label.cls=3 | n.txt=4 | target.txt=cat\n+label.cls=-1 | n.txt=5 | target.txt=1.5"},
		"names":         {"x.csv", "image.jpg,json,text\nx,{},y\n", "image.jpg=x | json={} | text.txt=y"},
	} {
		var want []string
		for i, w := range strings.Split(c.want, "\n+") {
			want = append(want, fmt.Sprintf("x/%09d | %s", i, w))
		}
		for _, suffix := range []string{"", ".gz", ".ZST"} {
			t.Run(name+suffix, func(t *testing.T) { same(t, all(t, open(t, Options{}, given(t, c.file+suffix, c.text))), want) })
		}
	}
}

// TestBadRows: the error of a bad row names its line, and other rows are not affected.
func TestBadRows(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"ragged": {"a,b\n1\n2,3\n4,5,6\n\"7\n8\"\n9,10\n", []string{
			"! x.csv: line 2: corrupt data: it has 1 cells, and the header names 2 columns", "x/000000001 | a.txt=2 | b.txt=3", "! x.csv: line 4: … it has 3 cells",
			"! x.csv: line 5: … it has 1 cells", "x/000000004 | a.txt=9 | b.txt=10",
		}},
		"text behind a quote": {"a,b\n1,\"x\ny\"z\n2,3\n", []string{
			"! line 2: … the quote that opens a cell in line 2 is closed in line 3, and the cell continues after it", "! line 3: … 1 cells", "x/000000002 | a.txt=2 | b.txt=3",
		}},
		"never closed": {"a,b\n1,\"x\n2,y\n3,\"z\"\n4,5\n", []string{
			"! line 2: … closed in line 4", "x/000000001 | a.txt=2 | b.txt=y", "x/000000002 | a.txt=3 | b.txt=z", "x/000000003 | a.txt=4 | b.txt=5",
		}},
		"not closed to the end": {"a,b\n1,\"x\n2,y\n4,5", []string{
			"! line 2: … the quote that opens a cell in line 2 is not closed in the rest of the file", "x/000000001 | a.txt=2 | b.txt=y", "x/000000002 | a.txt=4 | b.txt=5",
		}},
		"cut in quotes": {"a,b\n1,2\n3,\"fo", []string{"x/000000000 | a.txt=1 | b.txt=2", "! line 3: … not closed"}},
		"all empty":     {"a,b\n,\n1,2\n", []string{"! line 2 … nothing to store", "x/000000001 | a.txt=1 | b.txt=2"}},
		"latin 1":       {"a,b\n\xe9,2\n1,2\n", []string{"! line 2: … it is not UTF-8 … iconv", "x/000000001 | a.txt=1 | b.txt=2"}},
		"CR after":      {"a,b\n1,\"2\"\rx\n1,2\n", []string{"! line 2: … continues after it", "x/000000001 | a.txt=1 | b.txt=2"}},
	} {
		for _, chunk := range []int{1, 5, 1000} {
			t.Run(fmt.Sprint(name, chunk), func(t *testing.T) {
				same(t, all(t, open(t, Options{chunk: chunk}, given(t, "x.csv", c.text))), c.want)
			})
		}
	}
}

// TestBadHeaders end the source before it begins.
func TestBadHeaders(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                "x.csv: corrupt data: it is empty: its first line has to name the columns",
		"\n\n":                            "it is empty",
		"a,b,a\n1,2,3\n":                  `x.csv: line 1, the header: corrupt data: columns 1 and 3 are both called "a"`,
		"\n\na,\"b\n1,2\n":                "x.csv: line 3: corrupt data: the quote that opens a cell in line 3 is not closed",
		"a,\"b\"c\n1,2\n":                 "line 1: corrupt data: the quote that opens",
		"a,\xe9\n":                        "the header: corrupt data: it is not UTF-8",
		"a,b\r1,2\r3,4\r":                 "lines end with CR alone",
		"\xfe\xff\x00a":                   "it is UTF-16",
		",a\n0,1\n":                       "columns: column 1 has no name (an index, perhaps): rename it, or take the other columns only",
		"a/b,c\n1,2\n":                    `columns: column "a/b" cannot be the name of a field`,
		"a,a.txt\n1,2\n":                  `columns: "a" and "a.txt" would both become the field a.txt`,
		strings.Repeat(",", 1<<16) + "\n": "more than 65536 columns",
	} {
		_, err := New(t.Context(), given(t, "x.csv", text), Options{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want %s", text, err, want)
		}
	}
	for _, c := range []struct{ name, text, delimiter, want string }{
		{"x.csv", "a;b\n\"1;2\";3,4\n", ";", "x/000000000 | a.txt=1;2 | b.txt=3,4"},
		{"x.tsv", "a|b\n1\t2|3\n", "|", "x/000000000 | a.txt=1\t2 | b.txt=3"},
		{"x.csv", "a;b\n1\n", ",", "x/000000000 | a;b.txt=1"},
		{"x.csv", "a b\n1 \"2 3\"\n", " ", "x/000000000 | a.txt=1 | b.txt=2 3"},
	} {
		same(t, all(t, open(t, Options{Delimiter: c.delimiter}, given(t, c.name, c.text))), []string{c.want})
	}
	_, err := New(t.Context(), given(t, "x.csv", "a;b\n1;2\n"), Options{})
	if !errors.Is(err, writer.ErrOptions) || !strings.Contains(err.Error(), `x.csv: line 1, the header: option delimiter: it names one column, "a;b", and cells are divided by ','; if by ';', say so`) {
		t.Error(err)
	}
	for _, d := range []string{"\"", "\n", "\r", "é", ";;", "\xff"} {
		if _, err := New(t.Context(), given(t, "x.csv", "a\n"), Options{Delimiter: d}); !errors.Is(err, writer.ErrOptions) {
			t.Errorf("%q: %v", d, err)
		}
	}
	same(t, all(t, open(t, Options{Columns: []string{"a"}}, given(t, "x.csv", ",a\n0,1\n"))), []string{"x/000000000 | a.txt=1"})
	same(t, all(t, open(t, Options{Rename: map[string]string{"a/b": "ab", "a": "c"}}, given(t, "x.csv", "a/b,a\n0,1\n"))), []string{"x/000000000 | ab.txt=0 | c.txt=1"})
}

// TestLongRows: a row that is too long is an error, and reading continues after it.
func TestLongRows(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 5000)
	for _, chunk := range []int{1, 100, 4096, 100_000} {
		opt := Options{MaxLine: 1000, chunk: chunk}
		got := all(t, open(t, opt, given(t, "x.jsonl", `{"a":1}`+"\n"+`{"a":"`+long+`"}`+"\n"+`{"a":2}`+"\n"+`{"a":"`+long)))
		same(t, got, []string{"x/000000000 | a.txt=1", "! line 2: … it is longer than 1000 bytes", "x/000000002 | a.txt=2", "! line 4: … longer than 1000 bytes"})
		got = all(t, open(t, opt, given(t, "x.csv", "a,b\n1,"+long+"\n2,\"\n"+strings.Repeat("y,z\n", 500)+"\"\n3,4")))
		if len(got) != 504 || !strings.Contains(got[0], "line 2: ") || !strings.Contains(got[1], "line 3: ") || !strings.Contains(got[1], "longer than 1000 bytes") {
			t.Fatalf("%d: %.200q", len(got), got)
		}
		if got[2] != "x/000000002 | a.txt=y | b.txt=z" || got[503] != "x/000000503 | a.txt=3 | b.txt=4" || !strings.Contains(got[502], "line 504: ") {
			t.Errorf("%q, %q, %q", got[2], got[502], got[503])
		}
	}
}

// TestManyQuotes: quotes that lead each row to the end of the file do not take a time that grows
// with its square.
func TestManyQuotes(t *testing.T) {
	t.Parallel()
	text := "a,b,c\n" + strings.Repeat("a\",b,\"\n", 1<<20)
	_, err := some(t.Context(), open(t, Options{MaxLine: 1 << 16}, given(t, "x.csv", text)), -1)
	if err == nil || !strings.Contains(err.Error(), "too many quotes are not closed") {
		t.Error(err)
	}
}

// FuzzCSV holds rows against encoding/csv, where both take them; and a file in small chunks against
// one in large ones.
func FuzzCSV(f *testing.F) {
	for _, text := range []string{"a,b\n1,2\n", "\"a\n\",\"b\"\"\"\r\n,\"\"\n", "a,\"b\n", "a\"b,c\n", "\"a\"b,c\nd,e\n", "\"\n\n\",\n\n\n1,2", "a,b\r\n\"c\",\"d\"\r\n"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		cut := func(size int) (out [][]string, bad bool) {
			u := newCutter(bytes.NewReader(text), ',', 1<<20, place{off: 1, line: 1})
			u.size = size
			var c chunk
			line, end := int64(1), int64(1)
			for u.next(&c) == nil {
				for _, s := range c.spans {
					if s.line < line || c.off+int64(s.begin) < end {
						t.Fatalf("%q: line %d at %d behind line %d at %d", text, s.line, c.off+int64(s.begin), line, end)
					}
					line, end = s.line+s.lines, c.off+int64(s.end)
					var row []string
					r := cells{b: trimEnd(c.buf[s.begin:s.end]), comma: ','}
					for s.bad == nil && !r.over {
						cell, _, _ := r.next(nil)
						row = append(row, string(cell))
					}
					bad = bad || s.bad != nil
					out = append(out, row)
				}
			}
			return out, bad
		}
		got, bad := cut(1 << 16)
		if small, _ := cut(1); fmt.Sprintf("%q", small) != fmt.Sprintf("%q", got) {
			t.Fatalf("%q: %q in small chunks, %q in large ones", text, small, got)
		}
		r := csv.NewReader(bytes.NewReader(text))
		r.FieldsPerRecord = -1
		want, err := r.ReadAll()
		if err != nil || bytes.Contains(text, []byte("\r")) { // which it takes out of cells, too
			return
		}
		if bad || fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
			t.Fatalf("%q: %q, want %q", text, got, want)
		}
	})
}

// TestHeader: files without a header, and those that look like it.
func TestHeader(t *testing.T) {
	t.Parallel()
	named := Options{ColumnsAre: []string{"id", "x"}}
	for _, c := range []struct {
		text, want string
		opt        Options
	}{
		{"2019,2020\n1,-2\n", "x/000000000 | 2019.txt=1 | 2020.txt=-2", Options{}},
		{"a,-1.5\n1,2\n", "x/000000000 | -1.5=2 | a.txt=1", Options{}},
		{"1.2.3,-1\n1,2\n", "x/000000000 | -1.txt=2 | 1.2.3=1", Options{}},
		{"-1,\"2,5\"\n1,2\n", "x/000000000 | -1.txt=1 | 2,5.txt=2", Options{}},
		{"-1,5\n1,2\n", "! line 1: option header: the first line, \"-1,5\", has numbers as data have", Options{}},
		{"\n\n3,\"0.5\"\r\n1,2\n", "! line 3: option header: the first line", Options{}},
		{"7,1e3\n1,2\n", "! option header", Options{}},
		{"-1,5\n1,2\n", "x/000000000 | -1.txt=1 | 5.txt=2", Options{Header: HeaderYes}},
		{"-1,5\n1,2\n", "x/000000000 | column1.txt=-1 | column2.txt=5\n+x/000000001 | column1.txt=1 | column2.txt=2", Options{Header: HeaderNo}},
		{"\xef\xbb\xbfa,\"b\n\"\r\n\nc,d", "x/000000000 | id.txt=a | x.txt=b\n\n+x/000000001 | id.txt=c | x.txt=d", named},
		{"a\n", "! line 1: option columns-are: the row has 1 cells, and there are 2 names: id, x", named},
		{"a,b\nc\n", "x/000000000 | id.txt=a | x.txt=b\n+! line 2: … it has 1 cells, and the first row has 2", named},
		{"a,b\n1,2\na,b\n3,4\n", "x/000000000 | a.txt=1 | b.txt=2\n+! x.csv: line 3: corrupt data: it is the header once more\n+x/000000002 | a.txt=3 | b.txt=4", Options{}},
		{"a\na\n", "x/000000000 | a.txt=a", Options{}},
		{"1,2\n1,2\n", "x/000000000 | 1.txt=1 | 2.txt=2", Options{}},
		{"a,b\na,b\n", "x/000000000 | column1.txt=a | column2.txt=b\n+x/000000001 | column1.txt=a | column2.txt=b", Options{Header: HeaderNo}},
		{"", "", named},
		{"a,b\n", "! option columns-are", Options{Header: HeaderYes, ColumnsAre: []string{"a", "b"}}},
		{"a,b\n", "! \"a\" is there twice", Options{ColumnsAre: []string{"a", "a"}}},
		{"a,b\nc,d\n", "a | x.txt=b\n+c | x.txt=d", Options{ColumnsAre: []string{"id", "x"}, Key: "id"}},
	} {
		var want []string
		if c.want != "" {
			want = strings.Split(c.want, "\n+")
		}
		src, err := New(t.Context(), given(t, "x.csv", c.text), c.opt)
		if err != nil {
			same(t, []string{"! " + err.Error()}, want)
			continue
		}
		same(t, all(t, src), want)
		src.Close()
	}
}

// TestUnquoted: quotes may be text, and a row is then a line.
func TestUnquoted(t *testing.T) {
	t.Parallel()
	text := "a\t\"b\"\n\"5\tx\"\"\r\n\"\"\t\n\"open\tend"
	want := []string{`x/000000000 | "b".txt=x"" | a.txt="5`, `x/000000001 | a.txt=""`, `x/000000002 | "b".txt=end | a.txt="open`}
	for _, chunk := range []int{1, 5, 1000} {
		same(t, all(t, open(t, Options{Unquoted: true, chunk: chunk}, given(t, "x.tsv", text))), want)
	}
	same(t, all(t, open(t, Options{Unquoted: true, MaxLine: 8, chunk: 1}, given(t, "x.csv", "a\n\"\n"+strings.Repeat("\"", 40)+"\nb\n"))),
		[]string{"x/000000000 | a.txt=\"", "! line 3: … longer than 8 bytes", "x/000000002 | a.txt=b"})
}
