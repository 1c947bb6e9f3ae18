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

// TestUnmet names the columns to be renamed that no row had, once the rows were read.
func TestUnmet(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "r.jsonl")
	if err := os.WriteFile(name, []byte("{\"a\":1}\n{\"b\":2}\n{\"b\":3,\"c\":4}\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	var o ingest.Options
	o.Rows.Rename = map[string]string{"c": "x", "caption": "y", "A": "z"}
	in, err := ingest.Open(t.Context(), []string{name}, o)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if got := in.Unmet(); !slices.Equal(got, []string{"A", "c", "caption"}) {
		t.Errorf("before: %q", got)
	}
	to, err := local.New(filepath.Join(dir, "out"), local.Options{})
	if err == nil {
		_, err = writer.Pack(t.Context(), to, in.Source, writer.Options{})
	}
	if got := in.Unmet(); err != nil || !slices.Equal(got, []string{"A", "caption"}) {
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
