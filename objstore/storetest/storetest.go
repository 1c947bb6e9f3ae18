// Package storetest tests implementations of objstore.Store: [Run] for stores that read and write,
// [RunRead] for stores that only read. [Faulty] is a store whose k-th operation fails, for tests of
// code that uses stores.
package storetest

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/shardtool/shardtool/objstore"
)

// Run tests the entire contract of a store. It calls open once for each test. open returns an empty
// store that nothing else writes to, and closes it by t.Cleanup.
func Run(t *testing.T, open func(t *testing.T) objstore.Store) {
	for _, part := range []struct {
		name string
		test func(t *testing.T, store objstore.Store)
	}{
		{"names", testNames},
		{"put", testPut},
		{"upload", testUpload},
		{"abort", testAbort},
		{"big", testBig},
		{"handles", testHandles},
		{"conditions", testConditions},
		{"race/IfNoneMatch", testRaceNew},
		{"race/IfMatch", testRaceReplace},
		{"delete", testDelete},
		{"list", testList},
		{"list/stop", testListStop},
		{"list/writes", testListDuringWrites},
		{"context/ended", testContextEnded},
		{"context/read", testContextRead},
		{"context/commit", testContextCommit},
	} {
		t.Run(part.name, func(t *testing.T) { part.test(t, open(t)) })
	}
	t.Run("read", func(t *testing.T) {
		RunRead(t, func(t *testing.T, objects map[string][]byte) objstore.Store {
			store := open(t)
			for name, data := range objects {
				put(t, store, name, data)
			}
			return store
		})
	})
}

// RunRead tests the part of the contract that needs neither writes nor List. It calls open once for
// each test. open returns a store that contains exactly the given objects.
func RunRead(t *testing.T, open func(t *testing.T, objects map[string][]byte) objstore.Store) {
	for _, part := range []struct {
		name string
		test func(t *testing.T, store objstore.Store, objects map[string][]byte)
	}{
		{"ranges", testRanges},
		{"concurrent", testConcurrentReads},
		{"closed", testClosed},
		{"missing", testMissing},
		{"all", testReadAll},
		{"front", testReadFront},
	} {
		t.Run(part.name, func(t *testing.T) {
			objects := map[string][]byte{
				"empty":              {},
				"one":                {0x2a},
				"dir/sub/plain.bin":  pattern(1, 10_007),
				"two words (1)+%.gz": pattern(2, 300),
				"large":              pattern(3, 3<<20+13),
			}
			part.test(t, open(t, objects), objects)
		})
	}
}

// pattern returns pseudo-random bytes, in which ranges at different offsets differ.
func pattern(seed uint64, size int) []byte {
	data := make([]byte, size)
	source := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	_, _ = source.Read(data)
	return data
}

func put(t *testing.T, store objstore.Store, name string, data []byte) objstore.Info {
	t.Helper()
	info, err := objstore.Put(t.Context(), store, name, data, objstore.Condition{})
	if err != nil {
		t.Fatalf("put %q: %v", name, err)
	}
	if info.Name != name || info.Size != int64(len(data)) || info.ETag == "" {
		t.Fatalf("put %q of %d bytes: info %+v", name, len(data), info)
	}
	return info
}

func open(t *testing.T, store objstore.Store, name string) objstore.Object {
	t.Helper()
	object, err := store.Open(t.Context(), name)
	if err != nil {
		t.Fatalf("open %q: %v", name, err)
	}
	t.Cleanup(func() { object.Close() })
	return object
}

// expect checks that an object exists with these bytes, and that Stat and its handle describe it
// alike.
func expect(t *testing.T, store objstore.Store, name string, want []byte) {
	t.Helper()
	got, info, err := objstore.ReadAll(t.Context(), store, name, 1<<40)
	if err != nil {
		t.Fatalf("read %q: %v", name, err)
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("%q: %d bytes that are not the %d put", name, len(got), len(want))
	}
	stat, err := store.Stat(t.Context(), name)
	if err != nil {
		t.Fatalf("stat %q: %v", name, err)
	}
	if !same(stat, info) || stat.Name != name || stat.Size != int64(len(want)) {
		t.Fatalf("%q: Stat says %+v, the handle %+v, of %d bytes", name, stat, info, len(want))
	}
}

// same ignores the time, which a store may know more precisely in one answer than in another.
func same(a, b objstore.Info) bool { return a.Name == b.Name && a.Size == b.Size && a.ETag == b.ETag }

// absent checks that no method finds an object of that name.
func absent(t *testing.T, store objstore.Store, name string) {
	t.Helper()
	if _, err := store.Stat(t.Context(), name); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("stat of %q, which should be absent: %v", name, err)
	}
	if object, err := store.Open(t.Context(), name); err == nil {
		defer object.Close()
		// A store may postpone the request to the first read.
		if _, err := object.Info(t.Context()); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("open of %q, which should be absent: %v", name, err)
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("open of %q, which should be absent: %v", name, err)
	}
	if slices.Contains(names(t, store, ""), name) {
		t.Fatalf("%q is listed and should be absent", name)
	}
}

func names(t *testing.T, store objstore.Store, prefix string) []string {
	t.Helper()
	var found []string
	for info, err := range store.List(t.Context(), prefix) {
		if err != nil {
			t.Fatalf("list %q: %v", prefix, err)
		}
		found = append(found, info.Name)
	}
	return found
}

// wantError checks that an error wraps target and names the operation and the object.
func wantError(t *testing.T, what string, err, kind error) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Fatalf("%s: %v; want %v", what, err, kind)
	}
	if at, ok := errors.AsType[*objstore.Error](err); !ok || at.Op == "" || at.Store == "" {
		t.Fatalf("%s: %v: no objstore.Error that names operation and store", what, err)
	}
}

// readAt reads a range into a buffer, and checks that the bytes around it are unchanged.
func readAt(ctx context.Context, object objstore.Object, off int64, n int) ([]byte, error) {
	const guard = 16
	buffer := bytes.Repeat([]byte{0xEE}, guard+n+guard)
	err := object.ReadAt(ctx, buffer[guard:guard+n:guard+n], off)
	for _, b := range slices.Concat(buffer[:guard], buffer[guard+n:]) {
		if b != 0xEE {
			return nil, errors.New("the read wrote outside its buffer")
		}
	}
	return buffer[guard : guard+n], err
}
