package ingest_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/hint"
	"github.com/shardtool/shardtool/ingest"
)

// TestSameErrors: what is wrong in the options of columns has the same words whatever the rows are
// in.
func TestSameErrors(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	key, text, n := "k", "t", int64(1)
	for _, kind := range []string{"csv", "parquet"} {
		content := encode(kind, []row{{key: &key, text: &text, n: &n}}, 1)
		if kind == "csv" { // the same columns
			content = []byte("key,n,text,list\nk,1,t,x\n")
		}
		if err := os.WriteFile(filepath.Join(dir, "a."+kind), content, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	long := strings.Repeat("l", 5000)
	for _, c := range []struct {
		rows ingest.Rows
		want string
	}{
		{ingest.Rows{Columns: []string{"key", "none"}}, `there is no column "none"; there are: key, n, text, list`},
		{ingest.Rows{Columns: []string{"n", "n"}}, `"n" is there twice`},
		{ingest.Rows{Rename: map[string]string{"none": "x"}}, `there is no column "none"; there are: key, n, text, list`},
		{ingest.Rows{Rename: map[string]string{"n": ""}}, `column "n" gets an empty name`},
		{ingest.Rows{Key: "key", Rename: map[string]string{"key": "x"}}, `column "key" becomes no field`},
		{ingest.Rows{Columns: []string{"n"}, Rename: map[string]string{"key": "x"}}, `column "key" becomes no field`},
		{ingest.Rows{Rename: map[string]string{"n": "text.txt", "text": "text.txt"}}, `"n" and "text" would both become the field text.txt: rename one of them`},
		{ingest.Rows{Rename: map[string]string{"n": "a/b"}}, `column "n" cannot be the name of a field`},
		{ingest.Rows{Rename: map[string]string{"n": long}}, `column "n" cannot be the name of a field`},
		{ingest.Rows{Attrs: map[string]string{"a": "none"}}, `there is no column "none"; there are: key, n, text, list`},
		{ingest.Rows{Attrs: map[string]string{"": "n"}}, `column n is given for an attribute without a name`},
		{ingest.Rows{Where: []string{"n > 1 and none = 2"}}, `there is no column "none"; there are: key, n, text, list`},
		{ingest.Rows{Where: []string{"n >"}}, ""},
	} {
		var texts []string
		for _, kind := range []string{"csv", "parquet"} {
			in, err := ingest.Open(t.Context(), []string{filepath.Join(dir, "a."+kind)}, ingest.Options{Rows: c.rows})
			if err == nil {
				in.Close()
				t.Errorf("%+v: %s is opened", c.rows, kind)
				continue
			}
			text := strings.ReplaceAll(err.Error(), "a."+kind, "FILE")
			for _, h := range hint.Of(err) {
				text += " " + h.Option
			}
			texts = append(texts, text)
		}
		if len(texts) == 2 && (texts[0] != texts[1] || !strings.Contains(texts[0], c.want)) {
			t.Errorf("%+v:\n%s\n%s\nwant %s", c.rows, texts[0], texts[1], c.want)
		}
	}
}
