package outside_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/open"
)

// TestFilesGo runs the Go program of docs/files.md on a folder of files and on a Parquet file.
func TestFilesGo(t *testing.T) {
	text, err := os.ReadFile("../../docs/files.md")
	if err != nil {
		t.Fatal(err)
	}
	block := snippet.FindStringSubmatch(string(text))
	if block == nil {
		t.Fatal("files.md shows no Go")
	}
	program := "package main\n\n" + strings.Replace(block[1], "\"context\"\n", "\"context\"\n\t\"os\"\n", 1) +
		"\nfunc main() {\n\tfor i := 1; i < len(os.Args); i += 2 {\n\t\tif err := pack(context.Background(), os.Args[i], os.Args[i+1]); err != nil {\n\t\t\tpanic(err)\n\t\t}\n\t}\n}\n"
	dir := t.TempDir()
	photos, rows := filepath.Join(dir, "photos-packed"), filepath.Join(dir, "rows-packed")
	demo, err := filepath.Abs("../../testdata/demo")
	if err != nil {
		t.Fatal(err)
	}
	table, err := filepath.Abs("../../testdata/inputs/hubclone/data/train-0.parquet")
	if err != nil {
		t.Fatal(err)
	}
	runMain(t, dir, program, demo, photos, table, rows)
	for name, want := range map[string]uint64{photos: 205, rows: 3} {
		ds, err := open.Dataset(t.Context(), name, open.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if ds.NumSamples() != want {
			t.Errorf("%s: %d samples, want %d", name, ds.NumSamples(), want)
		}
		ds.Close()
	}
}
