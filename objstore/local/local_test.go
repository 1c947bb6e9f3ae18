package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/storetest"
)

// childEnv turns the test binary into a helper process; its value is the key in children.
const childEnv = "SHARDTOOL_LOCAL_CHILD"

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

func TestStore(t *testing.T) {
	for name, opts := range map[string]Options{"sync": {}, "NoSync": {NoSync: true}} {
		t.Run(name, func(t *testing.T) {
			storetest.Run(t, func(t *testing.T) objstore.Store {
				store, err := open(t.TempDir(), opts)
				if err != nil {
					t.Fatal(err)
				}
				return store
			})
		})
	}
}

// open is New with the type of this package.
func open(dir string, opts Options) (*store, error) {
	s, err := New(dir, opts)
	if err != nil {
		return nil, err
	}
	return s.(*store), nil
}

func newStore(t testing.TB, dir string) *store {
	t.Helper()
	store, err := open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func put(t *testing.T, store *store, name, data string, cond objstore.Condition) objstore.Info {
	t.Helper()
	info, err := objstore.Put(t.Context(), store, name, []byte(data), cond)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func expect(t *testing.T, store *store, name, want string) {
	t.Helper()
	got, _, err := objstore.ReadAll(t.Context(), store, name, 1<<30)
	if err != nil || string(got) != want {
		t.Fatalf("%s: %.40q (%d bytes), %v; want %.40q (%d)", name, got, len(got), err, want, len(want))
	}
}

// temps lists the temporary files below dir.
func temps(t *testing.T, dir string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && strings.HasPrefix(entry.Name(), tempPrefix) {
			found = append(found, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func wantText(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error; want one with %q", parts)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Fatalf("error %q lacks %q", err, part)
		}
	}
}

func TestNew(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "x.tar")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := New(file, Options{})
	wantText(t, err, file, "not a directory", "give the directory")
	_, err = New("", Options{})
	wantText(t, err, "give a directory")

	// A missing directory reads as an empty store. The first object creates it.
	store := newStore(t, filepath.Join(dir, "a", "b"))
	_, err = store.Stat(t.Context(), "x")
	wantText(t, err, "stat x in "+store.String(), "no such directory")
	if !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	for info, err := range store.List(t.Context(), "") {
		t.Fatal(info, err)
	}
	if err := store.Delete(t.Context(), "x"); err != nil {
		t.Fatal(err)
	}
	if n, err := store.sweep(t.Context(), 0); n != 0 || err != nil {
		t.Fatal(n, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "a")); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("reading made the directory: %v", err)
	}
	put(t, store, "c/d/x", "bytes", objstore.Condition{})
	expect(t, store, "c/d/x", "bytes")

	// The directory may be removed and made again during the life of the store.
	if err := os.RemoveAll(filepath.Join(dir, "a")); err != nil {
		t.Fatal(err)
	}
	put(t, store, "x", "again", objstore.Condition{IfNoneMatch: true})
	expect(t, store, "x", "again")
}

// TestRelative changes the working directory under a store that was opened by a relative path.
func TestRelative(t *testing.T) {
	t.Chdir(t.TempDir())
	store := newStore(t, "out")
	t.Chdir(t.TempDir())
	put(t, store, "x", "bytes", objstore.Condition{})
	expect(t, store, "x", "bytes")
	if store.String() != "out" {
		t.Fatal(store.String())
	}
	if entries, err := os.ReadDir("."); err != nil || len(entries) > 0 {
		t.Fatal(entries, err)
	}
}

func TestReservedNames(t *testing.T) {
	dir := t.TempDir()
	store := newStore(t, dir)
	for _, name := range []string{".tmp-x", "a/.tmp-", ".tmp-d/a", ".shardtool.lock", "a/.shardtool.lock", ".shardtool.users"} {
		_, err := store.Create(t.Context(), name, objstore.Condition{})
		wantText(t, err, "reserved")
		if _, statErr := store.Stat(t.Context(), name); !errors.Is(err, objstore.ErrName) || !errors.Is(statErr, objstore.ErrName) {
			t.Fatal(err, statErr)
		}
	}
	_, err := store.Create(t.Context(), "d/"+strings.Repeat("é", 128), objstore.Condition{})
	wantText(t, err, "256 bytes", "at most 255")

	// Other files beside the objects are not listed.
	for _, name := range []string{"object", ".tmp-1", `back\slash`, ".shardtool.lock", ".shardtool.users"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(dir, ".tmp-dir", "x"), 0o755); err != nil {
		t.Fatal(err)
	}
	var names []string
	for info, err := range store.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, info.Name)
	}
	if !slices.Equal(names, []string{"object"}) {
		t.Fatal(names)
	}
}

// TestTagsNeverRepeat puts the same few bytes as fast as it can: inode numbers repeat, and the
// kernel's clock ticks more slowly than that.
func TestTagsNeverRepeat(t *testing.T) {
	store, err := open(t.TempDir(), Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for i := range 1500 {
		info := put(t, store, "x", "same", objstore.Condition{})
		if before, ok := seen[info.ETag]; ok {
			t.Fatalf("puts %d and %d have the tag %s", before, i, info.ETag)
		}
		seen[info.ETag] = i
		if i%3 == 0 {
			if err := store.Delete(t.Context(), "x"); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestTimeMovesOn replaces an object whose time is in the future: the new one gets a later time, so
// the ETags differ.
func TestTimeMovesOn(t *testing.T) {
	dir := t.TempDir()
	store := newStore(t, dir)
	first := put(t, store, "x", "1", objstore.Condition{})
	future := first.ModTime.AddDate(30, 0, 0)
	if err := os.Chtimes(filepath.Join(dir, "x"), future, future); err != nil {
		t.Fatal(err)
	}
	if second := put(t, store, "x", "2", objstore.Condition{}); !second.ModTime.After(future) {
		t.Fatalf("%v is not after %v", second.ModTime, future)
	}
}

// TestUndo checks that a rename is reverted if its directory could not be synced, unless it
// replaced an object.
func TestUndo(t *testing.T) {
	store := newStore(t, t.TempDir())
	cause := errors.New("no sync")
	for _, replaced := range []bool{false, true} {
		made, err := store.create(t.Context(), "x", objstore.Condition{})
		if err != nil {
			t.Fatal(err)
		}
		old, err := made.check()
		if err != nil || (old != nil) != replaced {
			t.Fatal(old, err)
		}
		if err := made.root.Rename(made.temp, "x"); err != nil {
			t.Fatal(err)
		}
		if err := made.undo(old, cause); !errors.Is(err, cause) {
			t.Fatal(err)
		}
		if err := made.Abort(); err != nil {
			t.Fatal(err)
		}
		if _, err := store.Stat(t.Context(), "x"); errors.Is(err, fs.ErrNotExist) == replaced {
			t.Fatalf("replaced=%v: %v", replaced, err)
		}
		put(t, store, "x", "", objstore.Condition{})
	}
}
