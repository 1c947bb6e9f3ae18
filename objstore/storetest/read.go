package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"math/rand/v2"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/shardtool/shardtool/objstore"
)

// testRanges reads around every edge of every object: ranges inside are right, ranges past the end
// fail.
func testRanges(t *testing.T, store objstore.Store, objects map[string][]byte) {
	for name, want := range objects {
		object := open(t, store, name)
		size := int64(len(want))
		edges := []int64{0, 1, 2, size / 2, size - 2, size - 1, size, size + 1, size + 4096, 4095, 4096, 4097}
		for _, from := range edges {
			for _, to := range edges {
				if from < 0 || to < from {
					continue
				}
				got, err := readAt(t.Context(), object, from, int(to-from))
				what := fmt.Sprintf("%q, bytes %d to %d of %d", name, from, to, size)
				switch {
				case to > size:
					wantError(t, what, err, io.ErrUnexpectedEOF)
				case err != nil:
					t.Fatalf("%s: %v", what, err)
				case !bytes.Equal(got, want[from:to]):
					t.Fatalf("%s: other bytes", what)
				}
			}
		}
		for _, off := range []int64{-1, math.MinInt64, math.MaxInt64, math.MaxInt64 - 1} {
			if _, err := readAt(t.Context(), object, off, 2); err == nil {
				t.Fatalf("%q: a read at %d succeeded", name, off)
			}
		}
	}
}

func testConcurrentReads(t *testing.T, store objstore.Store, objects map[string][]byte) {
	want := objects["large"]
	object := open(t, store, "large")
	var group errgroup.Group
	for worker := range 16 {
		group.Go(func() error {
			random := rand.New(rand.NewPCG(1, uint64(worker)))
			for range 20 {
				from := random.IntN(len(want))
				n := random.IntN(min(64<<10, len(want)-from) + 1)
				got, err := readAt(t.Context(), object, int64(from), n)
				if err != nil {
					return err
				}
				if !bytes.Equal(got, want[from:from+n]) {
					return fmt.Errorf("other bytes at %d", from)
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
}

// testClosed closes a handle during reads: each read succeeds or fails, and all later ones fail.
func testClosed(t *testing.T, store objstore.Store, objects map[string][]byte) {
	want := objects["large"]
	object := open(t, store, "large")
	started := make(chan struct{}, 4)
	var group errgroup.Group
	for range 4 {
		group.Go(func() error {
			for i := 0; ; i++ {
				got, err := readAt(t.Context(), object, 77, 100_000)
				if err != nil {
					return nil
				}
				if !bytes.Equal(got, want[77:100_077]) {
					return errors.New("other bytes while the handle was closed")
				}
				if i == 0 {
					started <- struct{}{}
				}
			}
		})
	}
	for range 4 {
		<-started
	}
	if err := object.Close(); err != nil {
		t.Fatal(err)
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{0, 1} {
		if err := object.ReadAt(t.Context(), make([]byte, n), 0); err == nil {
			t.Fatalf("a read of %d bytes after Close succeeded", n)
		}
	}
	if err := object.Close(); err != nil {
		t.Fatalf("second Close: %v", err)
	}
}

func testMissing(t *testing.T, store objstore.Store, _ map[string][]byte) {
	for _, name := range []string{"none", "dir", "dir/sub", "dir/none", "one/below"} {
		_, err := store.Stat(t.Context(), name)
		wantError(t, "stat "+name, err, fs.ErrNotExist)
		object, err := store.Open(t.Context(), name)
		if err == nil {
			// A store may put the request off to the first read.
			err = object.ReadAt(t.Context(), make([]byte, 1), 0)
			object.Close()
		}
		wantError(t, "open "+name, err, fs.ErrNotExist)
	}
	for _, name := range badNames() {
		_, err := store.Stat(t.Context(), name)
		wantError(t, fmt.Sprintf("stat %q", name), err, objstore.ErrName)
		_, err = store.Open(t.Context(), name)
		wantError(t, fmt.Sprintf("open %q", name), err, objstore.ErrName)
	}
}

func testReadAll(t *testing.T, store objstore.Store, objects map[string][]byte) {
	for name, want := range objects {
		var info objstore.Info
		for _, more := range []int64{0, 1, 1 << 40} {
			got, of, err := objstore.ReadAll(t.Context(), store, name, int64(len(want))+more)
			if err != nil || !bytes.Equal(got, want) || of.Size != int64(len(want)) || of.Name != name {
				t.Fatalf("%q: %d bytes, %+v, %v", name, len(got), of, err)
			}
			info = of
		}
		if stat, err := store.Stat(t.Context(), name); err != nil || !same(stat, info) {
			t.Fatalf("%q: Stat says %+v, the handle %+v: %v", name, stat, info, err)
		}
		_, _, err := objstore.ReadAll(t.Context(), store, name, int64(len(want))-1)
		wantError(t, "a limit one short of "+name, err, objstore.ErrTooLarge)
	}
}

// testReadFront reads the first bytes of objects, and then others from the same handle.
func testReadFront(t *testing.T, store objstore.Store, objects map[string][]byte) {
	for name, want := range objects {
		for _, most := range []int{0, 1, len(want) - 1, len(want), len(want) + 1} {
			object, err := store.Open(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			front, info, err := objstore.ReadFront(t.Context(), object, int64(most))
			if err != nil || !bytes.HasPrefix(want, front) || len(front) > max(most, 0) ||
				info.Size != int64(len(want)) || info.Name != name {
				t.Fatalf("%q, %d bytes: %d bytes, %+v, %v", name, most, len(front), info, err)
			}
			rest := make([]byte, len(want)-len(front))
			if err := object.ReadAt(t.Context(), rest, int64(len(front))); err != nil || !bytes.HasSuffix(want, rest) {
				t.Fatalf("%q: the rest: %v", name, err)
			}
			if err := object.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if object, err := store.Open(t.Context(), "none"); err == nil {
		_, _, err = objstore.ReadFront(t.Context(), object, 100)
		wantError(t, "read the front of none", err, fs.ErrNotExist)
		object.Close()
	}
}
