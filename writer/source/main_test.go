package source_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/shardtool/shardtool/internal/testset/readback"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tree makes a folder of files; their contents are their names where none is given.
func tree(t testing.TB, files ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, f := range files {
		put(t, dir, f, "<"+f+">")
	}
	return dir
}

func put(t testing.TB, dir, name, data string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(data), 0o644); err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB, opt source.FilesOptions, folders ...string) *source.Files {
	t.Helper()
	f, err := source.NewFiles(context.Background(), folders, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

func newStore() *mem.Store { return mem.New() }

func packOptions() writer.Options {
	return writer.Options{Plain: true, BlockSize: 16 << 10, ShardSize: 64 << 10, Workers: 3}
}

func pack(t testing.TB, src writer.Source, opt writer.Options) (*readback.Set, *writer.Result) {
	t.Helper()
	st := mem.New()
	res, err := writer.Pack(context.Background(), st, src, opt)
	if err != nil {
		t.Fatal(err)
	}
	set, err := readback.Load(context.Background(), st)
	if err != nil {
		t.Fatal(err)
	}
	return set, res
}

// lines is a data set as text: key, then name=data of each field.
func lines(set *readback.Set) (out []string) {
	for i := range set.Samples {
		s := &set.Samples[i]
		var b strings.Builder
		b.WriteString(s.Key)
		for _, f := range s.Fields {
			b.WriteString(" " + f.Name + "=" + string(f.Data))
		}
		for _, a := range s.Attrs {
			b.WriteString(" @" + a.Name + "=" + a.Label)
		}
		out = append(out, b.String())
	}
	return out
}

func expect(t testing.TB, set *readback.Set, want ...string) {
	t.Helper()
	if got := lines(set); !slices.Equal(got, want) {
		t.Fatalf("packed\n%q, want\n%q", got, want)
	}
}

// sameFiles checks that a data set holds exactly the files of a folder.
func sameFiles(t testing.TB, set *readback.Set, dir string) {
	t.Helper()
	left := map[string][]byte{}
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		left[strings.TrimPrefix(path, dir+"/")] = data
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range set.Samples {
		s := &set.Samples[i]
		for _, f := range s.Fields {
			name := s.Key
			if f.Name != "" {
				name += "." + f.Name
			}
			if data, ok := left[name]; !ok || !bytes.Equal(data, f.Data) {
				t.Fatalf("%q has other bytes, or is no file", name)
			}
			delete(left, name)
		}
	}
	for name := range left {
		t.Fatalf("%q is missing", name)
	}
}
