package lines

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/shardtool/shardtool/internal/testset/programs"
	"github.com/shardtool/shardtool/objstore/local"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source"
)

// TestPython compares how awkward rows, some of them damaged, are read with Python's json and csv.
func TestPython(t *testing.T) {
	t.Parallel()
	programs.Need(t, "python3")
	dir := t.TempDir()
	python := func(args ...string) {
		t.Helper()
		if out, err := exec.Command("python3", append([]string{"testdata/rows.py"}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	for _, seed := range []string{"1", "2"} {
		python("make", dir, seed)
		store, err := local.New(dir, local.Options{})
		if err != nil {
			t.Fatal(err)
		}
		files, err := filepath.Glob(filepath.Join(dir, "rows*[lv]"))
		if err != nil || len(files) != 9 {
			t.Fatal(files, err)
		}
		for _, name := range files {
			in := []source.Input{{Store: store, Name: filepath.Base(name)}}
			if err := dump(t, open(t, Options{chunk: 3000}, in), name+".out"); err != nil {
				t.Fatal(err)
			}
		}
		python("check", dir)
	}
}

var originLine = regexp.MustCompile(`: line (\d+)$`)

// dump writes the rows for the script.
func dump(t *testing.T, s *lineSource, name string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer f.Close()
	out := json.NewEncoder(f)
	for {
		sample, err := s.Next(t.Context())
		if errors.Is(err, io.EOF) {
			return nil
		}
		origin, row := sample.Origin, map[string]any{}
		var bad *writer.SampleError
		switch {
		case errors.As(err, &bad):
			origin = bad.Origin
			row["error"] = err.Error()
		case err != nil:
			return err
		default:
			fields := map[string][]byte{}
			for _, f := range sample.Fields {
				if f.Data == nil {
					f.Data = []byte{}
				}
				fields[f.Name] = f.Data
			}
			row["fields"] = fields
		}
		if row["line"], err = strconv.Atoi(originLine.FindStringSubmatch(origin)[1]); err != nil {
			return err
		}
		if err := out.Encode(row); err != nil {
			return err
		}
	}
}
