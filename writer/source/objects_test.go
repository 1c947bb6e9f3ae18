package source_test

import (
	"context"
	"crypto/md5"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/storetest"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source"
)

// bucket has objects whose contents are their names where none is given.
func bucket(t testing.TB, names ...string) *mem.Store {
	t.Helper()
	st := mem.New()
	for _, n := range names {
		name, data, ok := strings.Cut(n, "\n")
		if !ok {
			data = "<" + name + ">"
		}
		if _, err := objstore.Put(t.Context(), st, name, []byte(data), objstore.Condition{}); err != nil {
			t.Fatal(err)
		}
	}
	return st
}

func openObjects(t testing.TB, opt source.FilesOptions, stores ...objstore.Store) *source.Files {
	t.Helper()
	f, err := source.NewObjects(t.Context(), stores, opt)
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

// TestObjects: objects give the same samples as files of the same names, for every option.
func TestObjects(t *testing.T) {
	names := []string{"b.json", "b.jpg", "a/x.tar.gz", "a/x", "a/y.v1.txt", "a.d/z.txt", "a!/q.txt", "empty-named", ".hidden", "a/.git/x.txt", "a/e.txt\n"}
	dir := t.TempDir()
	for _, n := range names {
		name, data, ok := strings.Cut(n, "\n")
		if !ok {
			data = "<" + name + ">"
		}
		put(t, dir, name, data)
	}
	st := bucket(t, names...)
	for _, opt := range []source.FilesOptions{
		{}, {Shuffle: true, Seed: 3}, {Include: []string{"*.txt"}}, {Exclude: []string{"a/**"}},
		{Include: []string{"a*/**"}, ClassField: "cls"},
	} {
		files, objects := open(t, opt, dir), openObjects(t, opt, st)
		fromFiles, _ := pack(t, files, packOptions())
		fromObjects, _ := pack(t, objects, packOptions())
		expect(t, fromObjects, lines(fromFiles)...)
		a, n := files.Total()
		if b, m := objects.Total(); a != b || n != m {
			t.Errorf("%+v: %d samples of %d bytes, want %d of %d", opt, b, m, a, n)
		}
		if files.Filtered != objects.Filtered {
			t.Errorf("%+v: left %d, want %d", opt, objects.Filtered, files.Filtered)
		}
	}
}

// TestObjectsOfTwoStores come one store after the other.
func TestObjectsOfTwoStores(t *testing.T) {
	set, _ := pack(t, openObjects(t, source.FilesOptions{}, bucket(t, "b.txt"), bucket(t, "a.txt", "c.txt")), packOptions())
	expect(t, set, "b txt=<b.txt>", "a txt=<a.txt>", "c txt=<c.txt>")
}

// TestKeyPrefix: the names of folders tell samples apart whose keys begin again.
func TestKeyPrefix(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"one.zip/c/0.txt", "two/c/0.txt"} {
		put(t, dir, name, name[:3])
	}
	opt := source.FilesOptions{KeyPrefix: true, ClassField: "cls"}
	folders := []string{filepath.Join(dir, "one.zip"), filepath.Join(dir, "two")}
	set, _ := pack(t, open(t, opt, folders...), packOptions())
	expect(t, set, "one/c/0 cls=0 txt=one @class=c", "two/c/0 cls=0 txt=two @class=c")
	if open(t, opt, folders...).Fingerprint() == open(t, source.FilesOptions{ClassField: "cls"}, folders...).Fingerprint() {
		t.Error("it is not in the fingerprint")
	}
}

// TestObjectReplaced: one that is not the object it was when it was listed is an error of its
// sample, also where its size is the same.
func TestObjectReplaced(t *testing.T) {
	for name, change := range map[string]func(st *mem.Store) error{
		"same size": func(st *mem.Store) error {
			_, err := objstore.Put(t.Context(), st, "b.txt", []byte("<B.txt>"), objstore.Condition{})
			return err
		},
		"longer": func(st *mem.Store) error {
			_, err := objstore.Put(t.Context(), st, "b.txt", []byte("<b.txt> and more"), objstore.Condition{})
			return err
		},
		"shorter": func(st *mem.Store) error {
			_, err := objstore.Put(t.Context(), st, "b.txt", []byte("<"), objstore.Condition{})
			return err
		},
		"gone": func(st *mem.Store) error { return st.Delete(t.Context(), "b.txt") },
	} {
		t.Run(name, func(t *testing.T) {
			st := bucket(t, "a.txt", "b.txt", "c.txt")
			src := openObjects(t, source.FilesOptions{}, st)
			if err := change(st); err != nil {
				t.Fatal(err)
			}
			_, err := writer.Pack(t.Context(), mem.New(), src, packOptions())
			var se *writer.SampleError
			if !errors.As(err, &se) || se.Key != "b" || !strings.HasSuffix(se.Origin, "mem:/b.txt") {
				t.Fatal(err)
			}
			if err := src.Seek(t.Context(), "0"); err != nil {
				t.Fatal(err)
			}
			opt := packOptions()
			opt.Faults.Skip = true
			set, res := pack(t, src, opt)
			if expect(t, set, "a txt=<a.txt>", "c txt=<c.txt>"); res.Skipped != 1 {
				t.Fatal(res)
			}
		})
	}
}

// TestObjectHuge reads an object that is larger than a block in pieces.
func TestObjectHuge(t *testing.T) {
	data := make([]byte, 40<<20+5)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(data)
	st := bucket(t, "a.txt", "c.txt")
	if _, err := objstore.Put(t.Context(), st, "b.bin", data, objstore.Condition{}); err != nil {
		t.Fatal(err)
	}
	set, _ := pack(t, openObjects(t, source.FilesOptions{}, st), packOptions())
	if len(set.Samples) != 3 || string(set.Samples[1].Fields[0].Data) != string(data) {
		t.Fatal("other bytes")
	}
}

// TestObjectsFaults: every operation of the store fails once; the pack then fails with what
// happened, or is whole.
func TestObjectsFaults(t *testing.T) {
	st := bucket(t, "a.txt", "b.txt", "b.json", "c/d.txt\n")
	n := storetest.EachFault(t, func(*testing.T) objstore.Store { return st.Clone() }, storetest.Fault{}, func(t *testing.T, faulty *storetest.Faulty) {
		err := func() error {
			src, err := source.NewObjects(t.Context(), []objstore.Store{faulty}, source.FilesOptions{})
			if err != nil {
				return err
			}
			defer src.Close()
			_, err = writer.Pack(t.Context(), mem.New(), src, packOptions())
			return err
		}()
		if faulty.Fired() != errors.Is(err, storetest.ErrInjected) {
			t.Fatalf("fired %v: %v", faulty.Fired(), err)
		}
	})
	if n < 8 {
		t.Fatalf("%d operations", n)
	}
}

// TestObjectsCancelled ends listing and reading.
func TestObjectsCancelled(t *testing.T) {
	var names []string
	for i := range 100 {
		names = append(names, fmt.Sprintf("%03d.txt", i))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := source.NewObjects(ctx, []objstore.Store{bucket(t, names...)}, source.FilesOptions{}); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

// summing is a store that keeps the MD5 of its objects. Its first reads flip one bit.
type summing struct {
	*mem.Store
	wrong *atomic.Int64
}

type summingObject struct {
	objstore.Object
	of   summing
	name string
}

func (s summing) Open(ctx context.Context, name string) (objstore.Object, error) {
	o, err := s.Store.Open(ctx, name)
	return &summingObject{o, s, name}, err
}

func (o *summingObject) ReadAt(ctx context.Context, p []byte, off int64) error {
	err := o.Object.ReadAt(ctx, p, off)
	if err == nil && o.of.wrong.Add(-1) >= 0 {
		p[len(p)/2] ^= 4
	}
	return err
}

func (o *summingObject) Sum(ctx context.Context) (*objstore.Sum, error) {
	data, _, err := objstore.ReadAll(ctx, o.of.Store, o.name, 1<<30)
	sum := md5.Sum(data)
	return &objstore.Sum{Name: "MD5", Want: sum[:], New: md5.New}, err
}

// TestObjectsCompared: bytes that do not match the store's checksum are read once more; then they
// are an error, as they are at once where they were handed out before the end.
func TestObjectsCompared(t *testing.T) {
	for _, test := range []struct {
		size, wrong int64
		fails       bool
	}{{100, 0, false}, {100, 1, false}, {100, 2, true}, {0, 9, false}, {20 << 20, 0, false}, {20 << 20, 1, true}} {
		st := summing{bucket(t, "a.bin\n"+strings.Repeat("x", int(test.size))), new(atomic.Int64)}
		st.wrong.Store(test.wrong)
		src := openObjects(t, source.FilesOptions{}, st)
		_, err := writer.Pack(t.Context(), mem.New(), src, packOptions())
		if test.fails != errors.Is(err, format.ErrCorrupt) || test.fails != errors.Is(err, objstore.ErrChecksum) || !test.fails && err != nil {
			t.Errorf("%+v: %v", test, err)
		}
		if test.fails && !strings.Contains(err.Error(), "a.bin") {
			t.Errorf("%+v: %v", test, err)
		}
	}
}
