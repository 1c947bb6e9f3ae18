package outside_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/objstore/storetest/s3server"
	"github.com/shardtool/shardtool/open"
)

// TestFilesGo runs the Go program of docs/files.md on a folder of files, on a Parquet file
// and on a bucket.
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
	server := s3server.New(t)
	none := filepath.Join(dir, "none")
	for name, value := range map[string]string{
		"AWS_ENDPOINT_URL_S3": server.URL, "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1",
		"AWS_CONFIG_FILE": none, "AWS_SHARED_CREDENTIALS_FILE": none,
	} {
		t.Setenv(name, value)
	}
	for _, name := range []string{"raw/a.jpg", "raw/a.cls", "raw/b.jpg", "raw/b.cls", "other.txt"} {
		server.Objects[name] = s3server.Stored{Data: []byte("1"), ETag: `"1"`}
	}
	const raw, packed = "s3://bucket/raw", "s3://bucket/packed"
	runMain(t, dir, program, demo, photos, table, rows, raw, packed)
	for name, want := range map[string]uint64{photos: 205, rows: 3, packed: 2} {
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
