package lines

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/format"
)

// TestList: the elements of a list are rows, however the file is laid out and cut into chunks, from
// any cursor on.
func TestList(t *testing.T) {
	t.Parallel()
	const text = "\xef\xbb\xbf \n[ {\"a\":\"],\\\"}\",\"b\":[1,2]},{\"a\":{\"c\":[{}]}}\n,\n 7 ,\"x\", {\n\"a\":\"long %s\"\n} , {}, null\n]\n\n"
	content := fmt.Sprintf(text, strings.Repeat("é", 200))
	want := []string{
		`x/000000000 | a.txt=],"} | b.npy={'descr': '<i8', 'fortran_order': False, 'shape': (2,), } 01000000000000000200000000000000`,
		`x/000000001 | a.json={"c":[{}]}`, "! x.json: line 4 … a row is one JSON object, and this one begins with '7'", "! line 4 … begins with",
		"x/000000004 | a.txt=long " + strings.Repeat("é", 200), "! line 6 … all columns are null", "! line 6 … begins with 'n'"}
	for _, size := range []int{4, 7, 64, 1 << 18} {
		src := open(t, Options{chunk: size, Workers: 2}, given(t, "x.json", content, "y.json.gz", "[]", "z.json", `{"a":1}`+"\n"+`{"a":2}`))
		var cursors []string
		for range want {
			cursors = append(cursors, src.Cursor())
			if _, err := some(t.Context(), src, 1); err != nil {
				t.Fatal(err)
			}
		}
		for i, cursor := range cursors {
			if err := src.Seek(t.Context(), cursor); err != nil {
				t.Fatal(err)
			}
			same(t, all(t, src), append(append([]string{}, want[i:]...), "z/000000000 | a.txt=1", "z/000000001 | a.txt=2"))
		}
		var parts []string
		for part := range 3 {
			if err := src.Split(part, 3); err != nil {
				t.Fatal(err)
			}
			parts = append(parts, all(t, src)...)
		}
		same(t, parts, append(append([]string{}, want...), "z/000000000 | a.txt=1", "z/000000001 | a.txt=2"))
	}
}

// TestBadList: a list that is cut anywhere, or is none, is an error after the whole elements.
func TestBadList(t *testing.T) {
	t.Parallel()
	const whole = `[{"a":1},{"a":"b"}]`
	for n := range whole {
		if n > 0 && whole[:n] == "{" {
			continue
		}
		if got, err := some(t.Context(), open(t, Options{chunk: 8}, given(t, "x.json", whole[:n])), -1); !errors.Is(err, format.ErrCorrupt) {
			t.Errorf("%s: %q, %v", whole[:n], got, err)
		}
	}
	for content, want := range map[string]string{
		`[{"a":1},]`: "found where element 1 is expected", `[{"a":1} {"a":2}]`: "where a comma or ] is expected", `[]x`: "follows the end of the list",
		`7`: "it begins with '7'", `["a]`: "is not closed", `[{]`: "is not closed", " \n": "it is empty", `[`: "cut off before its first element", "\n[ \n": "cut off before its first element", `[{"a":1}`: "cut off after element 0", `[{"a":1}}`: "where a comma",
	} {
		_, err := some(t.Context(), open(t, Options{}, given(t, "x.json", content)), -1)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "x.json") {
			t.Errorf("%s: %v, want %s", content, err, want)
		}
	}
	if got := all(t, open(t, Options{}, given(t, "x.json", "[[1]]"))); len(got) != 1 || !strings.Contains(got[0], "this one begins with '['") || strings.Contains(got[0], "has to end") {
		t.Errorf("a list of lists: %q", got)
	}
	_, err := some(t.Context(), open(t, Options{MaxLine: 100}, given(t, "x.json", `[{"a":"`+strings.Repeat("b", 200)+`"}]`)), -1)
	if !errors.Is(err, format.ErrTooLarge) {
		t.Error(err)
	}
}

// FuzzList: the rows of a list do not depend on the size of chunks, and nothing panics or hangs.
func FuzzList(f *testing.F) {
	f.Add(`[{"a":1},{"a":"b\\\""} , [1]]`)
	f.Add("[1,,2]")
	f.Fuzz(func(t *testing.T, content string) {
		if len(content) > 1<<16 {
			return
		}
		var first []string
		var failed bool
		for i, size := range []int{chunkSize, 5} {
			src := open(t, Options{chunk: size, Workers: 1}, given(t, "x.json", content))
			got, err := some(t.Context(), src, -1)
			if i == 0 {
				first, failed = got, err != nil
			} else if failed != (err != nil) || !failed && fmt.Sprint(got) != fmt.Sprint(first) {
				t.Errorf("%q: %q and %q, %v", content, first, got, err)
			}
			src.Close()
		}
	})
}
