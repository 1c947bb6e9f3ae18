package cache

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/local"
	"github.com/shardtool/shardtool/objstore/storetest"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
)

// childEnv turns the test binary into a helper process; its value is the key in children.
const childEnv = "SHARDTOOL_CACHE_CHILD"

func TestMain(m *testing.M) {
	if child, ok := children[os.Getenv(childEnv)]; ok {
		if err := child(context.Background(), os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// TestStore runs the suite over both kinds of store, with room for all ranges, with nearly none,
// and with a folder that cannot be used.
func TestStore(t *testing.T) {
	sources := map[string]func(t *testing.T) objstore.Store{
		"mem": func(*testing.T) objstore.Store { return mem.New() },
		"local": func(t *testing.T) objstore.Store {
			store, err := local.New(t.TempDir(), local.Options{NoSync: true})
			if err != nil {
				t.Fatal(err)
			}
			return store
		},
	}
	if testing.Short() {
		delete(sources, "local") // the same goroutines
	}
	caches := map[string]func(t *testing.T) *Cache{
		"large":  func(t *testing.T) *Cache { return newCache(t, t.TempDir(), 1<<30) },
		"tiny":   func(t *testing.T) *Cache { return newCache(t, t.TempDir(), 20_000) },
		"broken": brokenCache,
		"closed": func(t *testing.T) *Cache {
			c := newCache(t, t.TempDir(), 1<<30)
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
			return c
		},
	}
	for sourceName, source := range sources {
		for cacheName, cache := range caches {
			t.Run(sourceName+"/"+cacheName, func(t *testing.T) {
				storetest.Run(t, func(t *testing.T) objstore.Store { return cache(t).Wrap(source(t)) })
			})
		}
	}
}

// brokenCache has a folder in which nothing can be created, because its state file is a directory.
func brokenCache(t *testing.T) *Cache {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, stateName, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	return newCache(t, dir, 1<<30)
}

func newCache(t testing.TB, dir string, size int64) *Cache {
	t.Helper()
	return newCacheWith(t, dir, Options{Size: size, Log: slog.New(slog.DiscardHandler)})
}

func newCacheWith(t testing.TB, dir string, opts Options) *Cache {
	t.Helper()
	c, err := New(dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// counting is a source that counts its requests. Each has a different address.
type counting struct {
	objstore.Store
	address      string
	opens, reads atomic.Int64
	hold         chan struct{} // reads wait for it to close, if set
}

func (s *counting) String() string { return s.address }

func (s *counting) Open(ctx context.Context, name string) (objstore.Object, error) {
	s.opens.Add(1)
	object, err := s.Store.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	return &countingObject{Object: object, store: s}, nil
}

type countingObject struct {
	objstore.Object
	store *counting
}

func (o *countingObject) ReadAt(ctx context.Context, p []byte, off int64) error {
	o.store.reads.Add(1)
	if o.store.hold != nil {
		select {
		case <-o.store.hold:
		case <-ctx.Done():
			return objstore.NewError("get", o.store.address, "held", ctx.Err())
		}
	}
	return o.Object.ReadAt(ctx, p, off)
}

// dataset is a source with one object, whose content depends on the seed.
func dataset(t testing.TB, address string, seed uint64, size int) (*counting, []byte) {
	t.Helper()
	s := &counting{Store: mem.New(), address: address}
	data := pattern(seed, size)
	put(t, s, "shard", data)
	return s, data
}

func put(t testing.TB, s objstore.Store, name string, data []byte) {
	t.Helper()
	if _, err := objstore.Put(t.Context(), s, name, data, objstore.Condition{}); err != nil {
		t.Fatal(err)
	}
}

func pattern(seed uint64, size int) []byte {
	data := make([]byte, size)
	source := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	_, _ = source.Read(data)
	return data
}

func open(t testing.TB, s objstore.Store, name, identity string) objstore.Object {
	t.Helper()
	object, err := objstore.TraitsOf(s).OpenAs(t.Context(), name, identity)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { object.Close() })
	return object
}

func expect(t testing.TB, o objstore.Object, off, n int, data []byte) {
	t.Helper()
	p := make([]byte, n)
	if err := o.ReadAt(t.Context(), p, int64(off)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(p, data[off:off+n]) {
		t.Fatalf("%d bytes at %d are others", n, off)
	}
}

// pieces returns the cached ranges in a folder.
func pieces(t testing.TB, dir string) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil && isPiece(d.Name()) {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// onDisk counts the folder: the sum that Size bounds.
func onDisk(t testing.TB, dir string) (total int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || !d.Type().IsRegular() || strings.HasPrefix(d.Name(), ".") {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return ignoreMissing(err)
		}
		total += charge(fi.Size())
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return total
}

// TestSecondEpoch reads everything twice, in one process and in the next: the second time the
// source gets no request, not even an Open if the identity is known.
func TestSecondEpoch(t *testing.T) {
	source, data := dataset(t, "far:", 1, 1<<20)
	dir := t.TempDir()
	for epoch := range 3 {
		c := newCache(t, dir, 4<<20)
		object := open(t, c.Wrap(source), "shard", "hash")
		for off := 0; off < len(data); off += 64 << 10 {
			expect(t, object, off, 64<<10, data)
		}
		if opens, reads := source.opens.Load(), source.reads.Load(); opens != 1 || reads != 16 {
			t.Fatalf("epoch %d: %d opens, %d reads", epoch, opens, reads)
		}
		if s := c.Stats(); epoch > 0 && (s.Hits != 16 || s.HitBytes != 1<<20 || s.Misses != 0) || s.Errors != 0 {
			t.Fatalf("%+v", s)
		}
		if s, disk := c.Stats(), onDisk(t, dir); s.Used != disk {
			t.Fatalf("%d used, %d there", s.Used, disk)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestReplaced replaces the object: an open handle stays on the old version, and a new one never
// returns its bytes.
func TestReplaced(t *testing.T) {
	source, old := dataset(t, "far:", 1, 300_000)
	store := newCache(t, t.TempDir(), 4<<20).Wrap(source)
	before := open(t, store, "shard", "")
	expect(t, before, 0, 100_000, old)
	fresh := pattern(2, 300_000)
	put(t, source, "shard", fresh)
	after := open(t, store, "shard", "")
	for range 2 {
		for off := 0; off < 300_000; off += 100_000 {
			expect(t, after, off, 100_000, fresh)
			expect(t, before, off, 100_000, old)
		}
	}
}

// TestEqualNames caches two data sets with equal names, sizes and ETags in one folder.
func TestEqualNames(t *testing.T) {
	dir := t.TempDir()
	first, a := dataset(t, "far:a", 1, 100_000)
	second, b := dataset(t, "far:b", 2, 100_000)
	c := newCache(t, dir, 4<<20)
	for range 2 {
		expect(t, open(t, c.Wrap(first), "shard", ""), 0, 100_000, a)
		expect(t, open(t, c.Wrap(second), "shard", ""), 0, 100_000, b)
		expect(t, open(t, c.Wrap(first), "shard", "hash of a"), 0, 100_000, a)
		expect(t, open(t, c.Wrap(second), "shard", "hash of b"), 0, 100_000, b)
	}
	if n := first.reads.Load() + second.reads.Load(); n != 4 || len(pieces(t, dir)) != 4 {
		t.Fatalf("%d reads, %d files", n, len(pieces(t, dir)))
	}
}

// forget drops a range from the cache, as a caller does that finds it damaged.
func forget(ctx context.Context, o objstore.Object, off int64, n int) {
	o.(*object).Forget(ctx, off, n)
}
