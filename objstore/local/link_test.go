package local

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/shardtool/shardtool/objstore"
)

func symlink(t *testing.T, target, link string) {
	t.Helper()
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
}

// TestStoreThroughLink opens the store's directory through links, which work like the directory
// itself.
func TestStoreThroughLink(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "disk", "real"), 0o755); err != nil {
		t.Fatal(err)
	}
	symlink(t, "disk/real", filepath.Join(dir, "relative"))
	symlink(t, filepath.Join(dir, "relative"), filepath.Join(dir, "absolute"))
	direct := newStore(t, filepath.Join(dir, "disk", "real"))
	for _, link := range []string{"relative", "absolute"} {
		store := newStore(t, filepath.Join(dir, link))
		put(t, store, "sub/"+link, link, objstore.Condition{IfNoneMatch: true})
		expect(t, direct, "sub/"+link, link)
		_, err := objstore.Put(t.Context(), direct, "sub/"+link, nil, objstore.Condition{IfNoneMatch: true})
		if !errors.Is(err, objstore.ErrExists) {
			t.Fatal(err)
		}
		count := 0
		for _, err := range store.List(t.Context(), "") {
			if err != nil {
				t.Fatal(err)
			}
			count++
		}
		if err := store.Delete(t.Context(), "sub/"+link); err != nil || count != 1 {
			t.Fatal(count, err)
		}
	}
}

// TestLinksOutside creates links that lead out of the store: no target is read, listed, written or
// removed.
func TestLinksOutside(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	secret := filepath.Join(outside, "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	store := newStore(t, dir)
	put(t, store, "plain", "plain", objstore.Condition{})
	symlink(t, secret, filepath.Join(dir, "file"))
	symlink(t, outside, filepath.Join(dir, "absolute"))
	relative, err := filepath.Rel(dir, outside)
	if err != nil {
		t.Fatal(err)
	}
	symlink(t, relative, filepath.Join(dir, "relative"))

	for _, name := range []string{"file", "absolute/secret", "relative/secret"} {
		_, err := store.Open(t.Context(), name)
		wantText(t, err, "symbolic link", "leads out of the store")
		_, err = store.Stat(t.Context(), name)
		wantText(t, err, "symbolic link", "leads out of the store")
	}
	for _, name := range []string{"absolute/new", "relative/new", "relative/sub/new"} {
		_, err := store.Create(t.Context(), name, objstore.Condition{})
		wantText(t, err, "put "+name, "symbolic link", "leads out of the store")
		_ = store.Delete(t.Context(), name)
	}
	if err := store.Delete(t.Context(), "absolute/secret"); err == nil {
		t.Fatal("Delete beyond a link succeeded")
	}
	for _, prefix := range []string{"", "absolute/", "relative/s"} {
		for info, err := range store.List(t.Context(), prefix) {
			if err != nil || info.Name != "plain" {
				t.Fatalf("list %q: %+v, %v", prefix, info, err)
			}
		}
	}
	// The link itself is an object's name: it is occupied, and can be replaced and removed; its
	// target stays.
	_, err = objstore.Put(t.Context(), store, "file", []byte("mine"), objstore.Condition{IfNoneMatch: true})
	if !errors.Is(err, objstore.ErrExists) {
		t.Fatal(err)
	}
	put(t, store, "file", "mine", objstore.Condition{})
	expect(t, store, "file", "mine")
	if err := store.Delete(t.Context(), "absolute"); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(outside)
	if data, readErr := os.ReadFile(secret); err != nil || len(entries) != 1 || string(data) != "secret" {
		t.Fatal(entries, err, string(data), readErr)
	}
}

// TestDirectoryBecomesLink replaces a directory by a link that leads outside during an upload to
// it.
func TestDirectoryBecomesLink(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	store := newStore(t, dir)
	put(t, store, "d/old", "old", objstore.Condition{})
	upload, err := store.Create(t.Context(), "d/new", objstore.Condition{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := upload.Write([]byte("new")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "d"), filepath.Join(dir, "moved")); err != nil {
		t.Fatal(err)
	}
	symlink(t, outside, filepath.Join(dir, "d"))
	if _, err := upload.Commit(t.Context()); err == nil {
		t.Fatal("the commit followed the link")
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) > 0 {
		t.Fatal(entries, err)
	}
	// The temporary file moved away with its directory and is an orphan now.
	if n, err := store.sweep(t.Context(), 0); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	expect(t, store, "moved/old", "old")
}

// TestLinksInside follows links that stay in the store, and lists files but not directories through
// them.
func TestLinksInside(t *testing.T) {
	dir := t.TempDir()
	store := newStore(t, dir)
	put(t, store, "blobs/1", "one", objstore.Condition{})
	symlink(t, "blobs/1", filepath.Join(dir, "link"))
	symlink(t, "blobs", filepath.Join(dir, "linked"))
	symlink(t, ".", filepath.Join(dir, "loop"))
	symlink(t, "nowhere", filepath.Join(dir, "dangling"))
	expect(t, store, "link", "one")
	expect(t, store, "linked/1", "one")
	put(t, store, "linked/2", "two", objstore.Condition{})
	expect(t, store, "blobs/2", "two")
	var names []string
	for info, err := range store.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, info.Name)
	}
	if want := []string{"blobs/1", "blobs/2", "link"}; !slices.Equal(names, want) {
		t.Fatalf("%q, want %q", names, want)
	}
	if _, err := store.Open(t.Context(), "dangling"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
}

// TestNamedPipe checks that opening a named pipe does not wait for its writer.
func TestNamedPipe(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o644); err != nil {
		t.Fatal(err)
	}
	store := newStore(t, dir)
	_, err := store.Open(t.Context(), "pipe")
	wantText(t, err, "not a regular file")
	for info, err := range store.List(t.Context(), "") {
		t.Fatal(info, err)
	}
}

// TestMode checks the permission bits: 0644 minus the umask, and other users may lock.
func TestMode(t *testing.T) {
	dir := t.TempDir()
	store := newStore(t, dir)
	for _, umask := range []int{0, 0o022, 0o077} {
		before := syscall.Umask(umask)
		_, err := objstore.Put(t.Context(), store, "x", nil, objstore.Condition{})
		syscall.Umask(before)
		if err != nil {
			t.Fatal(err)
		}
		fi, err := os.Stat(filepath.Join(dir, "x"))
		if want := fs.FileMode(0o644 &^ umask); err != nil || fi.Mode().Perm() != want {
			t.Fatalf("umask %o: %v, %v", umask, fi.Mode(), err)
		}
	}
}

// TestSweep checks that Sweep keeps files that are in use or recent.
func TestSweep(t *testing.T) {
	dir := t.TempDir()
	store := newStore(t, dir)
	live, err := store.Create(t.Context(), "a/live", objstore.Condition{})
	if err != nil {
		t.Fatal(err)
	}
	put(t, store, "object", "bytes", objstore.Condition{})
	old := time.Now().Add(-time.Hour)
	for name, age := range map[string]time.Time{".tmp-old": old, "a/.tmp-old": old, ".tmp-young": time.Now()} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("left"), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, age, age); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := store.sweep(t.Context(), time.Minute); n != 2 || err != nil {
		t.Fatal(n, err)
	}
	if n, err := store.sweep(t.Context(), 0); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if found := temps(t, dir); len(found) != 1 {
		t.Fatalf("the live upload should have its file: %q", found)
	}
	if _, err := live.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	expect(t, store, "a/live", "")
	expect(t, store, "object", "bytes")
}

// TestSweepRaces sweeps continuously while objects are put: no upload loses its file.
func TestSweepRaces(t *testing.T) {
	store, err := open(t.TempDir(), Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		for range 300 {
			if _, err := objstore.Put(t.Context(), store, "x", []byte("bytes"), objstore.Condition{}); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for {
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			return
		default:
			if _, err := store.sweep(t.Context(), 0); err != nil {
				t.Fatal(err)
			}
		}
	}
}
