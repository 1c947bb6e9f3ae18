package source_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source"
)

// TestGrouping: files that share the path up to the first dot of the base name are a sample;
// samples go by key, fields by name.
func TestGrouping(t *testing.T) {
	dir := tree(t, "b.json", "b.jpg", "a/x.tar.gz", "a/x", "a/y.v1.txt", "a.d/z.txt", "a!/q.txt", "empty-named")
	if err := os.MkdirAll(dir+"/hollow/deep", 0o755); err != nil {
		t.Fatal(err)
	}
	src := open(t, source.FilesOptions{}, dir)
	set, res := pack(t, src, packOptions())
	expect(t, set, "a!/q txt=<a!/q.txt>", "a.d/z txt=<a.d/z.txt>", "a/x =<a/x> tar.gz=<a/x.tar.gz>", "a/y v1.txt=<a/y.v1.txt>",
		"b jpg=<b.jpg> json=<b.json>", "empty-named =<empty-named>")
	if n, size := src.Total(); n != 6 || uint64(size) != res.PayloadBytes {
		t.Fatal(n, size)
	}
	if src.Hidden+src.Filtered > 0 {
		t.Fatal(src.Hidden, src.Filtered)
	}
}

// TestRandomTrees packs trees of many shapes and finds every byte again, in an order that is a
// function of names.
func TestRandomTrees(t *testing.T) {
	for seed := range uint64(6) {
		rng := rand.New(rand.NewPCG(seed, 2))
		dir := t.TempDir()
		for range 150 {
			name := ""
			for range rng.IntN(3) {
				name += fmt.Sprintf("d%d.%d/", rng.IntN(4), rng.IntN(2))
			}
			name += fmt.Sprintf("s%d.%s", rng.IntN(60), []string{"a", "b", "b.c", "0"}[rng.IntN(4)])
			data := make([]byte, rng.IntN(4000)*rng.IntN(2))
			for i := range data {
				data[i] = byte(rng.Uint32())
			}
			put(t, dir, name, string(data))
		}
		set, _ := pack(t, open(t, source.FilesOptions{}, dir), packOptions())
		sameFiles(t, set, dir)
		if !slices.IsSorted(set.Keys()) {
			t.Fatal("keys are not in order")
		}
	}
}

func TestClassField(t *testing.T) {
	dir := tree(t, "cat/1.txt", "cat/sub/2.txt", "dog/1.txt", "ape/x.txt")
	set, _ := pack(t, open(t, source.FilesOptions{ClassField: "cls"}, dir), packOptions())
	expect(t, set, "ape/x cls=0 txt=<ape/x.txt> @class=ape", "cat/1 cls=1 txt=<cat/1.txt> @class=cat",
		"cat/sub/2 cls=1 txt=<cat/sub/2.txt> @class=cat", "dog/1 cls=2 txt=<dog/1.txt> @class=dog")
	if got := set.Manifest.Meta["classes"]; got != `["ape","cat","dog"]` {
		t.Fatal(got)
	}
	// Appending keeps the existing numbers.
	src := open(t, source.FilesOptions{ClassField: "cls", Classes: []string{"zebra", "dog"}}, dir)
	set, _ = pack(t, src, packOptions())
	if got := set.Manifest.Meta["classes"]; got != `["zebra","dog","ape","cat"]` || string(set.ByKey()["ape/x"].Field("cls")) != "2" {
		t.Fatal(got)
	}
	// The fingerprint covers what the bytes depend on.
	prints := map[string]bool{src.Fingerprint(): true}
	for _, opt := range []source.FilesOptions{{}, {ClassField: "cls"}, {ClassField: "label"}, {ClassField: "cls", Classes: []string{"dog"}}} {
		prints[open(t, opt, dir).Fingerprint()] = true
	}
	if len(prints) != 5 {
		t.Fatalf("%d fingerprints of 5 sources", len(prints))
	}
	put(t, dir, "top.txt", "in no folder")
	fails(t, open(t, source.FilesOptions{ClassField: "cls"}, dir), "top.txt", "no class")
	fails(t, open(t, source.FilesOptions{ClassField: "txt", Exclude: []string{"top.txt"}}, dir), "ape/x.txt", "duplicate field")
	if _, err := source.NewFiles(t.Context(), []string{dir}, source.FilesOptions{ClassField: "a/b"}); !errors.Is(err, format.ErrName) {
		t.Fatal(err)
	}
}

// fails packs a source with one bad file: the error names the file and the reason.
func fails(t *testing.T, src *source.Files, file, why string) {
	t.Helper()
	_ = failure(t, src, file, why)
}

func failure(t *testing.T, src *source.Files, file, why string) *writer.SampleError {
	t.Helper()
	_, err := writer.Pack(t.Context(), mem.New(), src, packOptions())
	var se *writer.SampleError
	if !errors.As(err, &se) || !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), why) {
		t.Fatalf("want %q for %s: %v", why, file, err)
	}
	return se
}

// skips packs a source with Faults.Skip and wants the given samples left out.
func skips(t *testing.T, src *source.Files, kept []string, left ...string) {
	t.Helper()
	if err := src.Seek(t.Context(), "0"); err != nil {
		t.Fatal(err)
	}
	opt := packOptions()
	opt.Faults.Skip, opt.Workers = true, 1
	var told []string
	opt.Faults.Skipped = func(e *writer.SampleError) { told = append(told, e.Key) }
	set, res := pack(t, src, opt)
	slices.Sort(told)
	if !slices.Equal(told, left) || res.Skipped != int64(len(left)) {
		t.Fatalf("skipped %q, want %q", told, left)
	}
	if got := set.Keys(); !slices.Equal(got, kept) {
		t.Fatalf("packed %q, want %q", got, kept)
	}
}

func TestGlobs(t *testing.T) {
	files := []string{"a.jpg", "a.json", "b.jpg", "sub/c.jpg", "sub/c.txt", "sub/deep/d.jpg", ".hidden", ".git/config", "sub/.cache/e.jpg", "sub/.x.jpg"}
	dir := tree(t, files...)
	for _, c := range []struct {
		include, exclude []string
		want             string
		hidden, filtered int64
	}{
		{nil, nil, "a b sub/c sub/deep/d", 4, 0},
		{[]string{"*.jpg"}, nil, "a b sub/c sub/deep/d", 4, 2},
		{[]string{"*.jpg"}, []string{"sub/**"}, "a b", 4, 4},
		{[]string{"sub/*"}, nil, "sub/c", 4, 4},
		{[]string{"**/*.jpg"}, nil, "a b sub/c sub/deep/d", 4, 2},
		{nil, []string{"c.*", "b.jpg"}, "a sub/deep/d", 4, 3},
		{[]string{"a.*", "c.txt"}, nil, "a sub/c", 4, 3},
		{[]string{"*.{jpg,json}"}, []string{"sub/**/*.jpg"}, "a b", 4, 3},
	} {
		src := open(t, source.FilesOptions{Include: c.include, Exclude: c.exclude}, dir)
		set, _ := pack(t, src, packOptions())
		if got := strings.Join(set.Keys(), " "); got != c.want || src.Hidden != c.hidden || src.Filtered != c.filtered {
			t.Errorf("include %q exclude %q: %s, left out %d and %d; want %s, %d and %d", c.include, c.exclude, got, src.Hidden, src.Filtered, c.want, c.hidden, c.filtered)
		}
	}
	for _, bad := range []string{"[", "a{b", "[]a]"} {
		if _, err := source.NewFiles(t.Context(), []string{dir}, source.FilesOptions{Include: []string{bad}}); err == nil || !strings.Contains(err.Error(), bad) {
			t.Errorf("glob %q: %v", bad, err)
		}
		if _, err := source.NewFiles(t.Context(), []string{dir}, source.FilesOptions{Exclude: []string{bad}}); err == nil {
			t.Errorf("glob %q was taken", bad)
		}
	}
	_, err := writer.Pack(t.Context(), mem.New(), open(t, source.FilesOptions{Include: []string{"*.none"}}, dir), packOptions())
	if !errors.Is(err, writer.ErrEmpty) {
		t.Fatal(err)
	}
}

// TestHiddenWanted: an include glob that begins with a dot takes hidden files. One whose whole name
// is an extension has no key, and is named.
func TestHiddenWanted(t *testing.T) {
	dir := tree(t, "a.txt", ".git/config", ".git/x/y.txt", "sub/.hid/z.txt", ".gitignore")
	src := open(t, source.FilesOptions{Include: []string{".git/**"}}, dir)
	set, _ := pack(t, src, packOptions())
	expect(t, set, ".git/config =<.git/config>", ".git/x/y txt=<.git/x/y.txt>")
	set, _ = pack(t, open(t, source.FilesOptions{Include: []string{"sub/.hid/*.txt", "a.*"}}, dir), packOptions())
	expect(t, set, "a txt=<a.txt>", "sub/.hid/z txt=<sub/.hid/z.txt>")
	src = open(t, source.FilesOptions{Include: []string{".gitignore", "a.txt"}}, dir)
	fails(t, src, ".gitignore", "dot")
	skips(t, src, []string{"a"}, "")
}

func TestTwoFolders(t *testing.T) {
	a, b := tree(t, "z.txt", "m/1.txt"), tree(t, "a.txt", "m/2.txt")
	set, _ := pack(t, open(t, source.FilesOptions{}, a, b), packOptions())
	expect(t, set, "m/1 txt=<m/1.txt>", "z txt=<z.txt>", "a txt=<a.txt>", "m/2 txt=<m/2.txt>")
	put(t, b, "z.json", "a field of a sample in the other folder")
	_, err := writer.Pack(t.Context(), mem.New(), open(t, source.FilesOptions{}, a, b), packOptions())
	if !errors.Is(err, format.ErrDuplicate) || !strings.Contains(err.Error(), `"z"`) {
		t.Fatal(err)
	}
	if _, err := source.NewFiles(t.Context(), []string{a, a + "/missing"}, source.FilesOptions{}); !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	if _, err := source.NewFiles(t.Context(), []string{a, a + "/z.txt"}, source.FilesOptions{}); err == nil {
		t.Fatal("a file was taken for a folder")
	}
}

// TestNoSamples: empty folders are no data set.
func TestNoSamples(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(dir+"/a/b/c", 0o755); err != nil {
		t.Fatal(err)
	}
	st := mem.New()
	if _, err := writer.Pack(t.Context(), st, open(t, source.FilesOptions{}, dir), packOptions()); !errors.Is(err, writer.ErrEmpty) {
		t.Fatal(err)
	}
}

// TestSeek goes to every sample, forwards and back.
func TestSeek(t *testing.T) {
	dir := tree(t, "a.1", "a.2", "b.1", "c.1", "c.2", "c.3", "d.1")
	src := open(t, source.FilesOptions{}, dir)
	var keys, cursors []string
	for {
		cursors = append(cursors, src.Cursor())
		s, err := src.Next(t.Context())
		if err != nil {
			break
		}
		keys = append(keys, s.Key)
	}
	if len(keys) != 4 {
		t.Fatal(keys)
	}
	for _, i := range []int{2, 0, 3, 3, 1, 4, 0} {
		if err := src.Seek(t.Context(), cursors[i]); err != nil {
			t.Fatal(err)
		}
		for _, want := range keys[i:] {
			if s, err := src.Next(t.Context()); err != nil || s.Key != want {
				t.Fatalf("after seeking %d: %q, want %q, %v", i, s.Key, want, err)
			}
		}
	}
	for _, bad := range []string{"", "x", "-1", "5", "99999999999999999999"} {
		if err := src.Seek(t.Context(), bad); err == nil {
			t.Errorf("cursor %q was taken", bad)
		}
	}
}
