package inputs_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/cmd/shardtool/internal/inputs"
	"github.com/shardtool/shardtool/objstore/local"
)

func TestLayouts(t *testing.T) {
	long := `{"version":2,"shards":[` + strings.Repeat(`{"raw_data":{"basename":"shard.00000.mds"}},`, 40_000) + `null]}`
	for _, c := range []struct{ file, content, want, found string }{
		{"data.mdb", "", "LMDB", "data.mdb"},
		{".zgroup", `{"zarr_format":2}`, "Zarr", ".zgroup"},
		{".zarray", `{"zarr_format":2}`, "Zarr", ".zarray"},
		{"zarr.json", `{"zarr_format":3}`, "Zarr", "zarr.json"},
		{"zarr.json", `{"a":3}`, "", ""},
		{"dataset_dict.json", `{"splits":["train"]}`, "save_to_disk", "dataset_dict.json"},
		{"state.json", `{"_data_files":[],"_fingerprint":"a"}`, "save_to_disk", "state.json"},
		{"state.json", `{"a":1}`, "", ""},
		{"state.json", ``, "", ""},
		{"index.json", `{"version":2,"shards":[]}`, "MDS", "index.json"},
		{"index.json", long, "MDS", "index.json"}, // longer than what is read
		{"index.json", `{"chunks":[],"config":{}}`, "LitData", "index.json"},
		{"index.json", `{"shards":[]}`, "", ""},
		{"index.json", `[1]`, "", ""},
		{"index.json", `{"version":2,"sha`, "", ""},
		{"train/data.mdb", "", "LMDB", "train/data.mdb"},
		{"a/b/data.mdb", "", "", ""},
		{"a.jpg", "x", "", ""},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, c.file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(c.content), 0o644); err != nil {
			t.Fatal(err)
		}
		want := c.want
		l := inputs.LayoutIn(t.Context(), dir)
		switch {
		case want == "" && l != nil:
			t.Errorf("%s %.40s: %+v, want none", c.file, c.content, l)
		case want != "" && (l == nil || !strings.Contains(l.Name, want)):
			t.Errorf("%s %.40s: %+v, want %s", c.file, c.content, l, want)
		case c.found != "" && l.Found != c.found:
			t.Errorf("%s: found %s, want %s", c.file, l.Found, c.found)
		}
		if strings.Contains(c.file, "/") {
			continue
		}
		store, err := local.New(dir, local.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if of, err := inputs.LayoutOf(t.Context(), store); err != nil || (of == nil) != (l == nil) {
			t.Errorf("%s: in a store %+v, %v", c.file, of, err)
		}
	}
}
