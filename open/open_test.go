package open_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/local"
	"github.com/shardtool/shardtool/open"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reshard/curate"
	"github.com/shardtool/shardtool/writer"
)

// documents packs n samples with their number as an attribute, and gives those below 10 a view.
func documents(ctx context.Context, dir string, n int, view string) {
	store, err := local.New(dir, local.Options{})
	if err != nil {
		log.Fatal(err)
	}
	w, err := writer.New(ctx, store, writer.Options{})
	if err != nil {
		log.Fatal(err)
	}
	for i := range n {
		number := format.AttrValue{Attribute: format.Attribute{Name: "n", Kind: format.AttrInteger}, Integer: int64(i)}
		s := writer.Sample{Key: fmt.Sprint(i), Fields: []writer.Field{{Name: "txt", Data: []byte("text")}}, Attrs: []format.AttrValue{number}}
		if err := w.Write(ctx, s); err != nil {
			log.Fatal(err)
		}
	}
	if _, err := w.Close(ctx); err != nil {
		log.Fatal(err)
	}
	if view == "" {
		return
	}
	ds, err := open.Dataset(ctx, dir, open.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer ds.Close()
	v, r, err := curate.Make(ctx, ds, curate.Spec{Where: []string{"n < 10"}})
	if err == nil {
		err = writer.PutView(ctx, store, v, writer.ViewName{Name: view, Tables: ds.Info().Tables, Samples: r.Samples})
	}
	if err != nil {
		log.Fatal(err)
	}
}

// samples counts the samples that a run over a name reads.
func samples(t *testing.T, name string, o open.Options) uint64 {
	t.Helper()
	sources, err := open.Sources(t.Context(), name, nil, o)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	defer sources.Close()
	run, err := sources.Resolve(t.Context(), reader.Spec{}, nil, reader.Change{}, reader.Planning{})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	defer run.Close()
	n, err := run.Length(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestNames opens a data set by each form of its name.
func TestNames(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	set, odd := filepath.Join(dir, "set"), filepath.Join(dir, "a#b@c")
	documents(t.Context(), set, 30, "low")
	documents(t.Context(), odd, 20, "low")
	ds, err := open.Dataset(t.Context(), set, open.Options{})
	if err != nil {
		t.Fatal(err)
	}
	generation := strings.TrimSuffix(strings.TrimPrefix(ds.Info().Tables, "manifest-"), ".bin")
	ds.Close()
	keys := filepath.Join(dir, "keys")
	if err := os.WriteFile(keys, []byte("3\n15\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		o    open.Options
		want uint64
	}{
		set: {want: 30}, set + "#low": {want: 10}, set + "@" + generation: {want: 30}, set + "@" + generation + "#low": {want: 10},
		odd: {want: 20}, odd + "#low": {want: 10},
		set + "/":       {open.Options{Where: []string{"n >= 25"}}, 5},
		set + "//":      {open.Options{Where: []string{"n >= 5"}, Keys: keys}, 1},
		set + "/#low":   {open.Options{Where: []string{"n >= 5"}}, 5},
		set + "/../set": {open.Options{Keys: keys}, 2},
	} {
		if n := samples(t, name, c.o); n != c.want {
			t.Errorf("%s with %+v: %d samples, want %d", name, c.o, n, c.want)
		}
	}
}

// TestMix opens a mix file, whose sources have layers and conditions of their own.
func TestMix(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	set := filepath.Join(dir, "set")
	documents(t.Context(), set, 30, "low")
	name := filepath.Join(dir, "mix.yaml")
	text := fmt.Sprintf("sources:\n  a: {data: %q, weight: 1}\n  b: {data: %q, weight: 1, where: 'n >= 8'}\n", set, set+"#low")
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	wrapped := 0
	sources, err := open.Sources(t.Context(), name, nil, open.Options{Wrap: func(s objstore.Store) objstore.Store {
		wrapped++
		return s
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer sources.Close()
	got := map[string]uint64{}
	for source, ds := range sources.All() {
		if got[source] = ds.NumSamples(); ds.Selection().View() != nil {
			got[source] = ds.Selection().Len()
		}
	}
	if got["a"] != 30 || got["b"] != 2 || wrapped != 2 {
		t.Error(got, wrapped)
	}
	for _, o := range []open.Options{{Where: []string{"n > 1"}}, {Keys: "x"}, {Layers: []string{"captions"}}} {
		var wrong *open.NameError
		if _, err := open.Sources(t.Context(), name, nil, o); !errors.As(err, &wrong) {
			t.Errorf("%+v for a mix: %v", o, err)
		}
	}
}

// TestWrongNames: names that are of no data set are told apart from data sets that are not there.
func TestWrongNames(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	set, file, mix := filepath.Join(dir, "set"), filepath.Join(dir, "a.parquet"), filepath.Join(dir, "a.yaml")
	documents(t.Context(), set, 3, "")
	for name, text := range map[string]string{file: "PAR1", mix: "sources: [", filepath.Join(dir, "none.txt"): "x"} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{
		"-": "name its folder", file: "pack " + file, filepath.Join(dir, "none.txt"): "pack DIR", mix: "is a mix", filepath.Join(set, "manifest.json"): "name the folder",
		"https://huggingface.co/datasets/a/b": "hf://datasets/a/b", "nope://x": "unsupported scheme", "": "address is empty",
	} {
		_, err := open.Dataset(t.Context(), name, open.Options{})
		if wrong, ok := errors.AsType[*open.NameError](err); !ok || !strings.Contains(wrong.Error(), want) {
			t.Errorf("%q: %v does not say %q", name, err, want)
		}
	}
	for name, want := range map[string]string{
		filepath.Join(dir, "gone"): "gone", set + "@12": "is not a generation", set + "@0123456789abcdef": "0123456789abcdef", set + "#gone": "gone",
		filepath.Join(dir, "gone.yaml"): "no mix file",
	} {
		_, err := open.Sources(t.Context(), name, nil, open.Options{})
		if wrong := new(open.NameError); errors.As(err, &wrong) || !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v does not say %q", name, err, want)
		}
	}
	var spec *reader.SpecError
	if _, err := open.Sources(t.Context(), mix, nil, open.Options{}); !errors.As(err, &spec) {
		t.Error(err)
	}
	if _, err := open.Dataset(t.Context(), set, open.Options{Where: []string{"n >"}}); !errors.Is(err, curate.ErrSpec) {
		t.Error(err)
	}
	if _, _, err := open.Store(t.Context(), set+"#some", open.Options{}); err == nil {
		t.Error("the store of a view")
	}
}

// TestMixPaths: a path in a mix file begins at the folder of the file, and at the current folder
// where only that has it.
func TestMixPaths(t *testing.T) {
	dir := t.TempDir()
	documents(t.Context(), filepath.Join(dir, "jobs", "set"), 30, "low")
	documents(t.Context(), filepath.Join(dir, "both"), 10, "low")
	documents(t.Context(), filepath.Join(dir, "jobs", "both"), 20, "low")
	documents(t.Context(), filepath.Join(dir, "here"), 40, "low")
	text := "sources:\n  a: {data: set, weight: 1}\n  b: {data: both, weight: 1}\n  c: {data: here, weight: 1}\n" +
		"  d: {data: '../both#low', weight: 1}\n  e: {data: ./set, keys: keys.txt, weight: 1}\n"
	for name, content := range map[string]string{"mix.yaml": text, "keys.txt": ""} {
		if err := os.WriteFile(filepath.Join(dir, "jobs", name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	for _, name := range []string{"jobs/mix.yaml", filepath.Join(dir, "jobs", "mix.yaml")} {
		spec, err := open.Spec(name, open.Options{})
		if err != nil {
			t.Fatal(err)
		}
		folder := filepath.Dir(name)
		for i, want := range []string{
			filepath.Join(folder, "set"), filepath.Join(folder, "both"), "here", filepath.Join(folder, "../both#low"), filepath.Join(folder, "set"),
		} {
			if got := spec.Sources[i].Data; got != want {
				t.Errorf("%s: source %d: %s, want %s", name, i, got, want)
			}
		}
		if got, want := spec.Sources[4].Keys, filepath.Join(folder, "keys.txt"); got != want {
			t.Errorf("%s: keys: %s, want %s", name, got, want)
		}
	}
	if err := os.WriteFile("jobs/gone.yaml", []byte("sources:\n  a: {data: s3://bucket/x, weight: 1}\n  b: {data: gone, weight: 1}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	spec, err := open.Spec("jobs/gone.yaml", open.Options{})
	if err != nil || spec.Sources[0].Data != "s3://bucket/x" || spec.Sources[1].Data != filepath.Join("jobs", "gone") {
		t.Error(spec, err)
	}
}

// TestLayers opens a data set with a layer by name, by address, and with one that is gone.
func TestLayers(t *testing.T) {
	t.Parallel()
	set := filepath.Join(t.TempDir(), "set")
	documents(t.Context(), set, 3, "")
	for layer, want := range map[string]string{"captions": set + "/layers/captions", "./mine": "mine", "captions@0123456789abcdef": set + "/layers/captions"} {
		all, err := open.Layers(t.Context(), set+"#v", []string{layer}, nil, open.Options{})
		if err != nil || len(all) != 1 || !strings.HasSuffix(all[0].Store.String(), want) || (all[0].Generation != "") != strings.Contains(layer, "@") {
			t.Errorf("%s: %+v, %v", layer, all, err)
		}
	}
	if _, err := open.Dataset(t.Context(), set, open.Options{Layers: []string{"a b"}}); !errors.As(err, new(*open.NameError)) {
		t.Error(err)
	}
	var log bytes.Buffer
	saved := map[string]string{"captions": "manifest-0123456789abcdef.bin"}
	all, err := open.Layers(t.Context(), set, []string{"captions"}, saved, open.Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil || all[0].Generation != "" || !strings.Contains(log.String(), "is gone") {
		t.Errorf("%+v, %v, %s", all, err, &log)
	}
}

// TestSecrets: nothing that is said of a name has the query of its address, in which a signature
// may be.
func TestSecrets(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	at := strings.Replace(server.URL, "http://", "http://user:marked-password@", 1) + "/set?sig=marked-signature"
	var log bytes.Buffer
	o := open.Options{Log: slog.New(slog.NewTextHandler(&log, nil))}
	set := filepath.Join(t.TempDir(), "set")
	documents(t.Context(), set, 3, "")
	layers, err := open.Layers(t.Context(), set, []string{at}, map[string]string{strings.Replace(at, "user:marked-password@", "", 1)[:len(server.URL)+4]: "manifest-0123456789abcdef.bin"}, o)
	if err != nil || !strings.Contains(log.String(), "is gone") {
		t.Errorf("%v, %s", err, &log)
	}
	fmt.Fprintln(&log, open.Whole(at+"#view"))
	for _, name := range []string{at, at + "#view", at + "@0123456789abcdef", strings.Replace(at, "http:", "ftp:", 1), strings.Replace(at, "://", ":/", 1),
		"https://huggingface.co/datasets/a/b?token=marked-token", "file://user:marked-password@host/x?sig=marked-signature"} {
		_, err := open.Dataset(t.Context(), name, o)
		fmt.Fprintf(&log, "%v %+v %#v\n", err, err, err)
		_, _, err = open.Store(t.Context(), name, o)
		fmt.Fprintln(&log, err)
		_, err = open.Sources(t.Context(), name, nil, o)
		fmt.Fprintln(&log, err)
	}
	ds, err := reader.Open(t.Context(), layers[0].Store, reader.Options{Layers: layers})
	fmt.Fprintln(&log, ds, err)
	if i := strings.Index(log.String(), "marked"); i >= 0 {
		t.Errorf("%q", log.String()[max(0, i-200):min(log.Len(), i+100)])
	}
}
