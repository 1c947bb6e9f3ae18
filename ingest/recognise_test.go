package ingest

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/internal/input/recognise"
	"github.com/shardtool/shardtool/objstore/local"
	"github.com/shardtool/shardtool/writer/source"
)

// inputsTable is what each folder of testdata/inputs is: a kind that is read, with its number of
// files, "files", a kind that is refused, or "mixed".
var inputsTable = map[string]struct {
	is    string
	files int
}{
	"hubclone": {"parquet", 1}, "pq_noext": {"parquet", 2}, "spark": {"parquet", 1}, "img2dataset": {"tar", 2}, "gz_as_jsonl": {"lines", 1},
	"gz_as_tar": {"tar", 1}, "ok_xjsonl": {"lines", 1}, "nanogpt": {"splits", 0},
	"ok_csv": {"files", 0}, "ok_images": {"files", 0}, "ok_json": {"files", 0}, "ok_nii": {"files", 0}, "ok_npy": {"files", 0}, "ok_npz": {"files", 0},
	"ok_text": {"files", 0}, "two_kinds": {"mixed", 0}, "imagefolder": {"mixed", 0},
	"arrayrecord": {"arrayrecord", 0}, "arrow": {"arrow", 1}, "arrow_stream": {"arrow", 1}, "avro": {"avro", 0}, "cifar_bin": {"cifar", 0},
	"cifar_py": {"pickle", 0}, "coco": {"coco", 0}, "delta": {"delta", 0}, "feather": {"arrow", 1}, "hdf5": {"hdf5", 0}, "hdf5_wrong_ext": {"hdf5", 0},
	"json_gz": {"lines", 1}, "json_list": {"lines", 1}, "json_pairs": {"files", 0}, "json_beside": {"parquet", 1}, "jsonl_bz2": {"lines", 1}, "jsonl_xz": {"lines", 1}, "lance": {"lance", 0}, "lfs": {"git-lfs", 0}, "lfs_img": {"git-lfs", 0},
	"litdata": {"litdata", 0}, "lmdb": {"lmdb", 0}, "mds2": {"mds", 0}, "mds_streams": {"mds", 2}, "mds_json": {"mosaicml", 0}, "megatron": {"megatron", 1}, "mnist": {"idx", 0}, "mnist_gz": {"gzip", 0},
	"netcdf3": {"netcdf", 0}, "netcdf4": {"hdf5", 0}, "npz": {"arrays", 2}, "orc": {"orc", 0}, "orc_noext": {"orc", 0}, "recordio": {"recordio", 0},
	"safetensors": {"safetensors", 0}, "saved": {"splits", 0}, "saved_one": {"arrow", 2}, "sqlite": {"sqlite", 0}, "tar_xz": {"tar", 1}, "tfrecord": {"tfrecord", 1},
	"voc": {"voc", 0}, "yolo": {"yolo", 0}, "zarr": {"zarr", 0}, "zarr2": {"zarr", 0}, "zips": {"files", 0}, "zip_csv": {"lines", 1}, "zip_zips": {"usage", 0},
}

// TestRecognise: every folder that its own library wrote is read as its kind or refused by name, in
// a folder and in a store, and As files takes all of them.
func TestRecognise(t *testing.T) {
	t.Parallel()
	const dir = "../testdata/inputs"
	folders, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, e := range folders {
		if !e.IsDir() {
			continue
		}
		name, folder := e.Name(), filepath.Join(dir, e.Name())
		want, ok := inputsTable[name]
		if !ok {
			t.Errorf("%s is not in the table", name)
		}
		seen++
		got, files := verdict(t, folder, Options{})
		if got != want.is || files != want.files {
			t.Errorf("%s: %s of %d files, want %s of %d", name, got, files, want.is, want.files)
		}
		store, err := local.New(folder, local.Options{})
		if err != nil {
			t.Fatal(err)
		}
		r, err := finder(t, Options{}).lookAtFolder(t.Context(), name, prefix{store, ""}, []source.Input{{Store: store}})
		if got, files := verdictOf(t, name, r, err); got != want.is || files != want.files {
			t.Errorf("%s in a store: %s of %d files, want %s of %d", name, got, files, want.is, want.files)
		}
		if got, _ := verdict(t, folder, Options{As: "files"}); got != "files" {
			t.Errorf("%s as files: %s", name, got)
		}
	}
	if seen != len(inputsTable) {
		t.Errorf("%d folders of %d", seen, len(inputsTable))
	}
}

// finder finds with options.
func finder(t *testing.T, o Options) *Found {
	t.Helper()
	f := &Found{Options: o}
	if err := f.parseAs(); err != nil {
		t.Fatal(err)
	}
	return f
}

func verdict(t *testing.T, src string, o Options) (is string, files int) {
	t.Helper()
	r, err := finder(t, o).lookAt(t.Context(), src)
	return verdictOf(t, src, r, err)
}

func verdictOf(t *testing.T, src string, r *recognised, err error) (is string, files int) {
	t.Helper()
	var mixed *recognise.MixedError
	var refused *Error
	var splits *recognise.SplitsError
	switch {
	case errors.As(err, &splits):
		return "splits", 0
	case errors.As(err, &mixed):
		return "mixed", 0
	case errors.As(err, &refused):
		return cmp.Or(refused.Kind, "usage"), 0
	case err != nil:
		t.Fatalf("%s: %v", src, err)
	case r.kind == &filesKind:
		return "files", 0
	}
	return r.kind.of.ID, len(r.files)
}

// TestRecogniseLongArray: an array of tokens is no field of a sample.
func TestRecogniseLongArray(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	head := "\x93NUMPY\x01\x00\x76\x00{'descr': '<u2', 'fortran_order': False, 'shape': (1048576,), }"
	text := make([]byte, 128+2<<20)
	copy(text, head)
	for i := len(head); i < 127; i++ {
		text[i] = ' '
	}
	text[127] = '\n'
	if err := os.WriteFile(filepath.Join(dir, "a.npy"), text, 0o644); err != nil {
		t.Fatal(err)
	}
	if got, n := verdict(t, dir, Options{}); got != "tokens" || n != 1 {
		t.Errorf("%s of %d files", got, n)
	}
}

// TestRecogniseLongJSON: a JSON object that is longer than what is read of it is a layout by the
// members that were seen.
func TestRecogniseLongJSON(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 2<<20)
	for _, name := range []string{"state.json", "dataset_dict.json", "zarr.json", "index.json", "a.metadata.json", "b.json"} {
		for text, want := range map[string]string{`{"a":"` + long + `"}`: "files", `{"images":["` + long + `"]}`: "coco"} {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			if got, _ := verdict(t, dir, Options{}); got != want {
				t.Errorf("%s of %.10s: %s, want %s", name, text, got, want)
			}
		}
	}
}

// TestRecogniseChoice: Include and Exclude are applied before the kind is decided.
func TestRecogniseChoice(t *testing.T) {
	t.Parallel()
	for globs, want := range map[[2]string]string{{"*.csv", ""}: "lines", {"*.parquet", ""}: "parquet", {"", "*.csv"}: "parquet"} {
		var o Options
		if globs[0] != "" {
			o.Include = globs[:1]
		}
		if globs[1] != "" {
			o.Exclude = globs[1:]
		}
		if got, _ := verdict(t, "../testdata/inputs/two_kinds", o); got != want {
			t.Errorf("%q: %s, want %s", globs, got, want)
		}
	}
}

// TestRecogniseStreams: the shards of all indexes are read, however many there are, once each, and
// without compression where they are there twice.
func TestRecogniseStreams(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	index := `{"shards":[{"format":"mds","version":2,"samples":1,"raw_data":{"basename":"NAME.mds","bytes":9},"zip_data":{"basename":"NAME.mds.gz","bytes":9},` +
		`"column_names":["a"],"column_encodings":["int"],"column_sizes":[8]}],"version":2}`
	put := func(name, text string) {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 40 {
		put(fmt.Sprintf("s%02d/index.json", i), strings.ReplaceAll(index, "NAME", "s"))
		put(fmt.Sprintf("s%02d/s.mds.gz", i), "x")
	}
	put("s07/s.mds", "x")
	put("index.json", strings.ReplaceAll(index, "NAME", "s07/s")) // as merge_index writes it
	put("s08/index.json", `{"images":[]}`)
	r, err := finder(t, Options{}).lookAt(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	raw := 0
	for _, f := range r.files {
		if strings.HasSuffix(f.Name, ".mds") {
			raw++
		}
	}
	if r.kind != &mdsKind || len(r.files) != 39 || raw != 1 || !strings.Contains(r.note, "left out: 2 side files (s08/index.json, s08/s.mds.gz)") {
		t.Errorf("%s of %d files, %d raw, %q", r.kind.of.Many, len(r.files), raw, r.note)
	}
}

// TestExpandObjects: the globs of a store leave out what folders leave out, and refuse splits that
// they do not name.
func TestExpandObjects(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"a/train-0.parquet", "a/test-0.parquet", "a/_test.parquet", "a/.x.parquet", "_temporary/b.parquet", "b/c.parquet"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	store, err := local.New(dir, local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for pattern, want := range map[string]string{
		"a/train*.parquet": "a/train-0.parquet", "**/c.parquet": "b/c.parquet", "a/{train,test}-*.parquet": "a/train-0.parquet a/test-0.parquet",
		"a/_*.parquet": "a/_test.parquet", "_temporary/*": "_temporary/b.parquet",
	} {
		if names, _, err := finder(t, Options{}).expandObjects(t.Context(), prefix{store, ""}, pattern); err != nil || strings.Join(names, " ") != want {
			t.Errorf("%s: %q, %v, want %s", pattern, names, err, want)
		}
	}
	for pattern, want := range map[string]string{
		"a/*.parquet": "matches the splits test, such as", "*/b.parquet": "matches only names such as _temporary/b.parquet", "x*": "check the path",
	} {
		if names, _, err := finder(t, Options{}).expandObjects(t.Context(), prefix{store, ""}, pattern); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q, %v, want %s", pattern, names, err, want)
		}
	}
}

// TestSplitsOf has names that say splits, and names that do not.
func TestSplitsOf(t *testing.T) {
	t.Parallel()
	for names, want := range map[string]string{
		"data/train-0.parquet data/test-0.parquet":   "test train",
		"train/0.tar val2017/0.tar test/0.tar":       "test train validation",
		"imdb_Train.csv imdb_dev.csv":                "train validation",
		"training.csv evaluation.csv":                "test train",
		"a/TRAIN/x.csv a/b/x.csv":                    "train",
		"constrain.csv latest.csv trainer.csv":       "",
		"split=train/a.parquet split=test/a.parquet": "",
		"trains/a.csv tests/a.csv":                   "",
		"train.csv train/test.csv":                   "train",
	} {
		var got []string
		for _, s := range recognise.SplitsOf(strings.Fields(names)) {
			got = append(got, s.Name)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %q, want %s", names, got, want)
		}
	}
}
