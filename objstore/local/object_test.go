package local

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/shardtool/shardtool/objstore"
)

func openObject(t *testing.T, store *store, name string) objstore.Object {
	t.Helper()
	object, err := store.Open(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { object.Close() })
	return object
}

// TestCutInPlace truncates a file under an open handle, as a copy over it does.
func TestCutInPlace(t *testing.T) {
	dir := t.TempDir()
	store := newStore(t, dir)
	put(t, store, "x", strings.Repeat("abcd", 5000), objstore.Condition{})
	object := openObject(t, store, "x")
	if err := os.Truncate(filepath.Join(dir, "x"), 9000); err != nil {
		t.Fatal(err)
	}
	p := make([]byte, 4000)
	if err := object.ReadAt(t.Context(), p, 4000); err != nil {
		t.Fatal(err)
	}
	for _, off := range []int64{8000, 9000, 16000} {
		err := object.ReadAt(t.Context(), p, off)
		if !errors.Is(err, objstore.ErrChanged) {
			t.Fatalf("at %d: %v", off, err)
		}
		wantText(t, err, "9000 bytes now, 20000 when it was opened")
	}
	if err := object.ReadAt(t.Context(), p, 18000); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatal(err)
	}
}

// TestInPlaceChangesTag rewrites a file in place and restores its time: the ETag changes all the
// same.
func TestInPlaceChangesTag(t *testing.T) {
	dir := t.TempDir()
	store := newStore(t, dir)
	before := put(t, store, "x", "1234", objstore.Condition{})
	path := filepath.Join(dir, "x")
	if err := os.WriteFile(path, []byte("5678"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, before.ModTime, before.ModTime); err != nil {
		t.Fatal(err)
	}
	_, err := objstore.Put(t.Context(), store, "x", nil, objstore.Condition{IfMatch: before.ETag})
	if !errors.Is(err, objstore.ErrChanged) {
		t.Fatal(err)
	}
	expect(t, store, "x", "5678")
}

func TestReadAtAllocatesNothing(t *testing.T) {
	store := newStore(t, t.TempDir())
	put(t, store, "x", strings.Repeat("x", 100_000), objstore.Condition{})
	object := openObject(t, store, "x")
	ctx, p := t.Context(), make([]byte, 50_000)
	allocs := testing.AllocsPerRun(100, func() {
		if err := object.ReadAt(ctx, p, 33); err != nil {
			t.Error(err)
		}
	})
	if allocs != 0 {
		t.Fatalf("%v allocations a read", allocs)
	}
}

// TestIs: a file that was overwritten in place is another one, even if its size and modification
// time are the old ones.
func TestIs(t *testing.T) {
	dir := t.TempDir()
	store := newStore(t, dir)
	put(t, store, "a", "bytes", objstore.Condition{})
	object := openObject(t, store, "a")
	info, err := object.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	is := func() bool {
		same, err := object.(interface {
			Is(objstore.Info) (bool, error)
		}).Is(info)
		if err != nil {
			t.Fatal(err)
		}
		return same
	}
	if !is() {
		t.Fatal("it is another one at once")
	}
	time.Sleep(20 * time.Millisecond) // a step of the file system's clock
	file := filepath.Join(dir, "a")
	if err := os.WriteFile(file, []byte("other"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(file, info.ModTime, info.ModTime); err != nil {
		t.Fatal(err)
	}
	if is() {
		t.Fatal("it is the same")
	}
}

// TestDirectoryInTheWay puts an object whose name is a directory, and one below another object.
func TestDirectoryInTheWay(t *testing.T) {
	dir := t.TempDir()
	store := newStore(t, dir)
	put(t, store, "a/b", "bytes", objstore.Condition{})
	_, err := objstore.Put(t.Context(), store, "a", nil, objstore.Condition{})
	wantText(t, err, "put a in", "directory of that name")
	_, err = objstore.Put(t.Context(), store, "a/b/c", nil, objstore.Condition{})
	wantText(t, err, "put a/b/c in", "an object is where a directory is needed")
	if found := temps(t, dir); len(found) > 0 {
		t.Fatal(found)
	}
	// Delete removes no directory, not even an empty one.
	if err := os.Mkdir(filepath.Join(dir, "hollow"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := store.Delete(t.Context(), "hollow"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "hollow")); err != nil {
		t.Fatal(err)
	}
}
