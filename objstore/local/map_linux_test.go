package local

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shardtool/shardtool/objstore"
)

// mapped maps an object once its file has not changed for a moment.
func mapped(t *testing.T, object objstore.Object) (objstore.Mapper, []byte, objstore.Version) {
	t.Helper()
	m := object.(objstore.Mapper)
	for end := time.Now().Add(time.Minute); ; time.Sleep(settled) {
		mem, v, err := m.Map()
		if errors.Is(err, errors.ErrUnsupported) {
			t.Skip("the file system of temporary files is none that files are mapped of: ", err)
		}
		if err == nil {
			return m, mem, v
		}
		if !errors.Is(err, objstore.ErrChanged) || time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// TestMap compares the mapping with the object, and the version after each kind of change.
func TestMap(t *testing.T) {
	dir := t.TempDir()
	store := newStore(t, dir)
	text := strings.Repeat("mapped ", 30_000)
	put(t, store, "x", text, objstore.Condition{})
	path := filepath.Join(dir, "x")
	object := openObject(t, store, "x")
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := object.(objstore.Mapper).Map(); !errors.Is(err, objstore.ErrChanged) && !errors.Is(err, errors.ErrUnsupported) {
		t.Fatalf("a file that changed this moment was mapped: %v", err)
	}
	m, mem, before := mapped(t, object)
	if string(mem) != text {
		t.Fatalf("%d bytes that differ", len(mem))
	}
	if again, v, err := m.Map(); err != nil || &again[0] != &mem[0] || v != before {
		t.Fatalf("mapped twice: %v", err)
	}
	if !m.Cached(0, len(text)) || !m.Cached(100, 1) || m.Cached(0, len(text)+1) || m.Cached(0, 0) {
		t.Error("what was written is not in the page cache, or what is not there is")
	}
	for _, change := range []struct {
		name string
		make func() error
	}{
		{"write", func() error {
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err == nil {
				_, err = f.WriteAt([]byte("M"), 7)
			}
			return errors.Join(err, f.Close())
		}},
		{"times set back", func() error { return os.Chtimes(path, time.Unix(0, before.Modified), time.Unix(0, before.Modified)) }},
		{"mode", func() error { return os.Chmod(path, 0o644) }},
		{"link", func() error { return os.Link(path, path+"2") }},
		{"cut", func() error { return os.Truncate(path, 9) }},
	} {
		_, _, last := mapped(t, object)
		if err := change.make(); err != nil {
			t.Fatal(err)
		}
		if now, err := m.Version(); err != nil || now == last {
			t.Errorf("%s: the version is the same, %v", change.name, err)
		}
	}
	if _, _, err := m.Map(); !errors.Is(err, objstore.ErrChanged) {
		t.Errorf("a file that was cut: %v", err)
	}
	if err := object.Close(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := m.Map(); !errors.Is(err, fs.ErrClosed) {
		t.Error(err)
	}
	if _, err := m.Version(); err == nil {
		t.Error("a closed object has a version")
	}
	if m.Cached(0, 1) {
		t.Error("bytes of a closed object are cached")
	}
}

// TestNotMappedWhileWritten: a write sets the times of a file when it begins, and may take long. While a
// program has the file open for writing, or mapped, no version is that of one content.
func TestNotMappedWhileWritten(t *testing.T) {
	dir := t.TempDir()
	store := newStore(t, dir)
	put(t, store, "x", "content", objstore.Condition{})
	m, _, _ := mapped(t, openObject(t, store, "x"))
	if err := unwritten(m.(*object).mapped.fd); err != nil {
		t.Skip("the system grants no leases: ", err)
	}
	time.Sleep(settledCoarse) // so that only a program that writes is in the way
	f, err := os.OpenFile(filepath.Join(dir, "x"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, _, err := m.Map(); !errors.Is(err, objstore.ErrChanged) {
		t.Errorf("a file that is open for writing was mapped: %v", err)
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, 7, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if _, _, err := m.Map(); !errors.Is(err, objstore.ErrChanged) {
		t.Errorf("a file that is mapped for writing was mapped: %v", err)
	}
	if err := unix.Munmap(mem); err != nil {
		t.Fatal(err)
	}
	if _, _, err := m.Map(); err != nil {
		t.Errorf("a file that nobody writes to: %v", err)
	}
}

// TestCachedIsTrue drops a file from the page cache.
func TestCachedIsTrue(t *testing.T) {
	dir := t.TempDir()
	store := newStore(t, dir)
	put(t, store, "x", strings.Repeat("x", 4<<20), objstore.Condition{})
	m, _, _ := mapped(t, openObject(t, store, "x"))
	f, err := os.Open(filepath.Join(dir, "x"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var of unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &of); err != nil || of.Type == unix.TMPFS_MAGIC {
		t.Skip("temporary files are in memory, which nothing drops: ", err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		t.Fatal(err)
	}
	if m.Cached(0, 4<<20) {
		t.Error("bytes that were dropped are cached")
	}
}

// TestNothingToMap maps an empty object.
func TestNothingToMap(t *testing.T) {
	store := newStore(t, t.TempDir())
	put(t, store, "x", "", objstore.Condition{})
	if _, _, err := openObject(t, store, "x").(objstore.Mapper).Map(); !errors.Is(err, errors.ErrUnsupported) {
		t.Error(err)
	}
}

// TestVersionAllocatesNothing: a stream asks for it with each batch.
func TestVersionAllocatesNothing(t *testing.T) {
	store := newStore(t, t.TempDir())
	put(t, store, "x", "abc", objstore.Condition{})
	m, _, _ := mapped(t, openObject(t, store, "x"))
	if n := testing.AllocsPerRun(100, func() { _, _ = m.Version() }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
