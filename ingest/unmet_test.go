package ingest_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/ingest"
	"github.com/shardtool/shardtool/objstore/local"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source/tokens"
)

// TestUnmet names the columns of options that no row had, once the rows were read: rows of JSON need
// not have all members.
func TestUnmet(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "r.jsonl")
	if err := os.WriteFile(name, []byte("{\"a\":1,\"d\":null}\n{\"b\":2}\n{\"b\":3,\"c\":4}\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	var o ingest.Options
	o.Rows.Columns = []string{"a", "b", "c", "lable", "caption"}
	o.Rows.Rename = map[string]string{"c": "x", "caption": "y"}
	o.Rows.Attrs = map[string]string{"late": "d", "none": "e"}
	in, err := ingest.Open(t.Context(), []string{name}, o)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	to, err := local.New(filepath.Join(dir, "out"), local.Options{})
	if err == nil {
		_, err = writer.Pack(t.Context(), to, in.Source, writer.Options{})
	}
	var got []string
	for _, bad := range in.Unmet() {
		got = append(got, bad.Text("--"+bad.Option))
	}
	want := []string{
		`--columns: no row that was read has a column "lable": it became no field; a row has: a, d`,
		`--columns: no row that was read has a column "caption": it became no field; a row has: a, d`,
		`--attr none: no row that was read has a column "e": no sample has the attribute; a row has: a, d`,
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v", got, err)
	}
}

// TestRawOfArrays refuses a type for arrays that have one.
func TestRawOfArrays(t *testing.T) {
	var o ingest.Options
	o.Tokens.Raw = tokens.Uint16
	_, err := ingest.Open(t.Context(), []string{"../testdata/tokens/version2.npy"}, o)
	if err == nil || !strings.Contains(err.Error(), "for token ids in files without a header, and those of source") {
		t.Error(err)
	}
}
