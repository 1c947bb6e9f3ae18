package source_test

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source"
)

// meddled is a Files whose payloads have something happen to them before they are read, and after
// their first bytes.
type meddled struct {
	*source.Files
	before func(key string)
	during func(key string)
}

func (m *meddled) Next(ctx context.Context) (writer.Sample, error) {
	s, err := m.Files.Next(ctx)
	for i := range s.Fields {
		if p := s.Fields[i].Payload; p != nil {
			s.Fields[i].Payload = &meddledPayload{p, m, s.Key}
		}
	}
	return s, err
}

type meddledPayload struct {
	writer.Payload
	m   *meddled
	key string
}

func (p *meddledPayload) ReadInto(ctx context.Context, b []byte) error {
	p.m.before(p.key)
	return p.Payload.ReadInto(ctx, b)
}

func (p *meddledPayload) Open(ctx context.Context) (io.ReadCloser, error) {
	p.m.before(p.key)
	r, err := p.Payload.Open(ctx)
	if err != nil {
		return nil, err
	}
	return &meddledReader{ReadCloser: r, then: func() { p.m.during(p.key) }}, nil
}

type meddledReader struct {
	io.ReadCloser
	once sync.Once
	then func()
}

func (r *meddledReader) Read(b []byte) (int, error) {
	n, err := r.ReadCloser.Read(b[:min(len(b), 1<<20)])
	r.once.Do(r.then)
	return n, err
}

func touch(t *testing.T, path string) {
	t.Helper()
	later := time.Now().Add(time.Hour)
	if err := os.Chtimes(path, later, later); err != nil {
		t.Fatal(err)
	}
}

// meddlings are what can happen to a file; why is in the error.
var meddlings = map[string]struct {
	do  func(t *testing.T, path string, data string)
	why string
}{
	"grows": {func(t *testing.T, path, data string) { put(t, filepath.Dir(path), filepath.Base(path), data+"more") }, "changed"},
	"grows and keeps its time": {func(t *testing.T, path, data string) {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		put(t, filepath.Dir(path), filepath.Base(path), data+"more")
		if err := os.Chtimes(path, info.ModTime(), info.ModTime()); err != nil {
			t.Fatal(err)
		}
	}, "changed"},
	"shrinks": {func(t *testing.T, path, data string) {
		if err := os.Truncate(path, int64(len(data)/2)); err != nil {
			t.Fatal(err)
		}
	}, "changed"},
	"is emptied": {func(t *testing.T, path, _ string) { put(t, filepath.Dir(path), filepath.Base(path), "") }, "changed"},
	"is rewritten": {func(t *testing.T, path, data string) {
		put(t, filepath.Dir(path), filepath.Base(path), strings.Repeat("y", len(data)))
		touch(t, path)
	}, "changed"},
	"vanishes": {func(t *testing.T, path, _ string) {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}, "was removed"},
	"is replaced": {func(t *testing.T, path, data string) {
		put(t, filepath.Dir(path), "new", strings.Repeat("z", len(data)))
		if err := os.Rename(filepath.Dir(path)+"/new", path); err != nil {
			t.Fatal(err)
		}
		touch(t, path)
	}, "changed"},
	"becomes a folder": {func(t *testing.T, path, _ string) {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}, "changed"},
	"loses its folder": {func(t *testing.T, path, _ string) {
		if err := os.RemoveAll(filepath.Dir(path)); err != nil {
			t.Fatal(err)
		}
	}, "was removed"},
	"becomes a link out": {func(t *testing.T, path, data string) {
		other := tree(t, "x")
		put(t, other, "x", data)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(other+"/x", path); err != nil {
			t.Fatal(err)
		}
	}, "escapes"},
}

// TestChangedBeforeRead: between listing and reading a file is another one. It is never packed as
// it is now.
func TestChangedBeforeRead(t *testing.T) {
	for _, size := range []int{5000, 17 << 20} {
		for what, c := range meddlings {
			t.Run(what, func(t *testing.T) {
				run := func() writer.Source {
					dir := tree(t, "a.txt", "victims/v.txt", "z.txt")
					data := strings.Repeat("x", size)
					put(t, dir, "victims/v.txt", data)
					var once sync.Once
					return &meddled{Files: open(t, source.FilesOptions{}, dir), before: func(key string) {
						if key == "victims/v" {
							once.Do(func() { c.do(t, filepath.Join(dir, "victims/v.txt"), data) })
						}
					}, during: func(string) {}}
				}
				_, err := writer.Pack(t.Context(), newStore(), run(), packOptions())
				if err == nil || !strings.Contains(err.Error(), "victims/v.txt") || !strings.Contains(err.Error(), c.why) {
					t.Fatalf("want %q: %v", c.why, err)
				}
				opt := packOptions()
				opt.Faults.Skip = true
				set, res := pack(t, run(), opt)
				if res.Skipped != 1 || !slices.Equal(set.Keys(), []string{"a", "z"}) {
					t.Fatalf("%+v %q", res, set.Keys())
				}
			})
		}
	}
}

// TestChangedWhileRead: a file changes while it is streamed.
func TestChangedWhileRead(t *testing.T) {
	const size = 17 << 20
	for _, what := range []string{"grows", "shrinks", "is emptied", "is rewritten"} {
		dir := tree(t, "a.txt", "v.txt")
		data := strings.Repeat("x", size)
		put(t, dir, "v.txt", data)
		src := &meddled{Files: open(t, source.FilesOptions{}, dir), before: func(string) {}, during: func(string) {
			meddlings[what].do(t, filepath.Join(dir, "v.txt"), data)
		}}
		_, err := writer.Pack(t.Context(), newStore(), src, packOptions())
		if err == nil || !strings.Contains(err.Error(), "v.txt") {
			t.Fatalf("%s: %v", what, err)
		}
	}
	// A removed file stays readable for those who have it open.
	dir := tree(t, "a.txt")
	put(t, dir, "v.txt", strings.Repeat("x", size))
	src := &meddled{Files: open(t, source.FilesOptions{}, dir), before: func(string) {}, during: func(string) { _ = os.Remove(dir + "/v.txt") }}
	if set, _ := pack(t, src, packOptions()); len(set.ByKey()["v"].Field("txt")) != size {
		t.Fatal("not all of it")
	}
}

// TestFingerprint changes with what a pack depends on, and with nothing else.
func TestFingerprint(t *testing.T) {
	dir := tree(t, "a.txt", "b/c.txt", ".hidden")
	print := func(opt source.FilesOptions, folders ...string) string { return open(t, opt, folders...).Fingerprint() }
	before := print(source.FilesOptions{}, dir)
	if print(source.FilesOptions{Memory: 1, TempDir: t.TempDir()}, dir+"/") != before {
		t.Fatal("memory or the folder's spelling matters")
	}
	put(t, dir, ".hidden", "changed")
	moved := filepath.Join(t.TempDir(), "moved")
	if err := os.Rename(dir, moved); err != nil {
		t.Fatal(err)
	}
	if print(source.FilesOptions{}, moved) != before {
		t.Fatal("what is left out, or the folder's name, matters")
	}
	seen := map[string]string{before: "before"}
	check := func(what, got string) {
		t.Helper()
		if old, ok := seen[got]; ok {
			t.Fatalf("%s has the fingerprint of %s", what, old)
		}
		seen[got] = what
	}
	check("shuffled", print(source.FilesOptions{Shuffle: true}, moved))
	check("seed", print(source.FilesOptions{Shuffle: true, Seed: 1}, moved))
	check("exclude", print(source.FilesOptions{Exclude: []string{"a.*"}}, moved))
	check("twice", print(source.FilesOptions{}, moved, moved))
	touch(t, moved+"/a.txt")
	check("time", print(source.FilesOptions{}, moved))
	put(t, moved, "a.txt", "another size")
	check("size", print(source.FilesOptions{}, moved))
	put(t, moved, "d.txt", "new")
	check("new file", print(source.FilesOptions{}, moved))
	if err := os.Rename(moved+"/d.txt", moved+"/e.txt"); err != nil {
		t.Fatal(err)
	}
	check("name", print(source.FilesOptions{}, moved))
}

// stopAfter fails after some samples, once shards of them are stored.
type stopAfter struct {
	*source.Files
	left   int
	shards atomic.Int64
}

func (s *stopAfter) Next(ctx context.Context) (writer.Sample, error) {
	if s.left--; s.left < 0 {
		for s.shards.Load() == 0 && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		return writer.Sample{}, os.ErrDeadlineExceeded
	}
	return s.Files.Next(ctx)
}
