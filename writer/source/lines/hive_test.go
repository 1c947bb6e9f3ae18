package lines

import (
	"strings"
	"testing"
)

// TestHiveWhere: leaving out whole files leaves out no row for which a condition holds.
func TestHiveWhere(t *testing.T) {
	in := given(t, "y=1/a.jsonl", `{"x":1}`, "y=2/b.jsonl", `{"x":2}`, "y=__HIVE_DEFAULT_PARTITION__/c.jsonl", `{"x":3}`, "d.jsonl", `{"x":4,"y":2}`)
	for where, want := range map[string]int{"y = 2": 2, "y != 2": 1, `y = "2"`: 0, `y != "2"`: 3, "y = 0x1p1": 0, "y != 0x1p1": 3, "y != nan": 3, "y < 1.5": 1, "y in (1, 2)": 3,
		"y is null": 1, "not y is null": 3, "y != z": 3} {
		got := all(t, open(t, Options{Columns: []string{"x"}, Where: []string{where}}, in))
		same(t, got, all(t, open(t, Options{Columns: []string{"x"}, Where: []string{"(" + where + ") or no = 1"}}, in))) // which no folder decides
		if len(got) != want {
			t.Errorf("%s: %q, want %d", where, got, want)
		}
	}
}

// TestHive: a member or column that a folder has too is an error of rows with another value that names
// both, unless it is left out.
func TestHive(t *testing.T) {
	read := func(opt Options, files ...string) error {
		src, err := New(t.Context(), given(t, files...), opt)
		if err != nil {
			return err
		}
		defer src.Close()
		_, err = src.Next(t.Context())
		return err
	}
	for _, files := range [][]string{{"lang=de/a.csv", "text,lang\nx,en\n"}, {"lang=de/a.jsonl", `{"text":"x","lang":"DE"}`},
		{"lang=de/a.jsonl", `{"text":"x","lang":["de"]}`}, {"lang=de/a.jsonl", `{"text":"x","lang":null}`}, {"a=1/a.jsonl", "{}", "lang=de/a.jsonl", `{"lang":"e"}`}} {
		opt := Options{Nulls: 1}
		err := read(opt, files...)
		if len(files) > 2 { // the second row
			src, _ := New(t.Context(), given(t, files...), opt)
			_, _ = src.Next(t.Context())
			_, err = src.Next(t.Context())
			src.Close()
		}
		if err == nil || !strings.Contains(err.Error(), `the column "lang" is in the file and in the folder lang=de`) {
			t.Errorf("%q: %v", files, err)
		}
		if err := read(Options{Columns: []string{"text"}, Nulls: 1}, files...); err != nil && len(files) == 2 {
			t.Errorf("%q: %v", files, err)
		}
	}
	same(t, all(t, open(t, Options{Where: []string{"n <= 2"}}, given(t, "n=1/a.csv", "n,t\n1,x\n2,y\n", "n=02/b.jsonl", `{"t":"z","n":2}`, "n=__HIVE_DEFAULT_PARTITION__/c.csv", "n,t\n,u\n", "n=3/d.csv", "n,t\n3,v\n"))),
		[]string{"a/000000000 | n.txt=1 | t.txt=x", `! a.csv: line 3 … is "2" in the file`, "b/000000000 | n.txt=2 | t.txt=z"})
	one, _ := New(t.Context(), given(t, "lang=de/a.csv", "text\nx\n", "lang=en/a.csv", "text\ny\n"), Options{Key: "text"})
	two, _ := New(t.Context(), given(t, "lang=de/a.csv", "text\nx\n", "lang=fr/a.csv", "text\ny\n"), Options{Key: "text"})
	defer one.Close()
	defer two.Close()
	if one.Fingerprint() == two.Fingerprint() {
		t.Error("other folders have the same fingerprint")
	}
}
