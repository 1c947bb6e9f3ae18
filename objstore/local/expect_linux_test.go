package local

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/shardtool/shardtool/objstore"
)

// cached returns which pages of a file are in the page cache.
func cached(t *testing.T, file *os.File, size int) []byte {
	t.Helper()
	data, err := unix.Mmap(int(file.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(data)
	pages := make([]byte, size/os.Getpagesize())
	if _, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&data[0])), uintptr(size), uintptr(unsafe.Pointer(&pages[0]))); errno != 0 {
		t.Fatal(errno)
	}
	for i := range pages {
		pages[i] &= 1
	}
	return pages
}

// TestExpect: what is expected comes into the page cache, and nothing around it.
func TestExpect(t *testing.T) {
	const size, off, n = 8 << 20, 3 << 20, 1<<20 + 4096
	dir := t.TempDir()
	store := newStore(t, dir)
	put(t, store, "x", string(bytes.Repeat([]byte("shardtool"), size/9+1)[:size]), objstore.Condition{})
	file, err := os.Open(filepath.Join(dir, "x"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := file.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := unix.Fadvise(int(file.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		t.Fatal(err)
	}
	if pages := cached(t, file, size); bytes.Contains(pages, []byte{1}) {
		t.Skip("this file system keeps its pages in memory")
	}
	object := openObject(t, store, "x")
	object.(interface{ Expect(off, n int64) }).Expect(off, n)
	first, last := off/os.Getpagesize(), (off+n)/os.Getpagesize()
	for begun := time.Now(); ; time.Sleep(time.Millisecond) {
		pages := cached(t, file, size)
		if outside := bytes.Count(pages[:first], []byte{1}) + bytes.Count(pages[last:], []byte{1}); outside > 0 {
			t.Fatalf("%d pages outside of the range were read", outside)
		}
		if bytes.Count(pages[first:last], []byte{1}) == last-first {
			break
		}
		if time.Since(begun) > 30*time.Second {
			t.Fatalf("%d of %d pages were read", bytes.Count(pages[first:last], []byte{1}), last-first)
		}
	}
	object.Close()
	object.(interface{ Expect(off, n int64) }).Expect(off, n) // a hint: too late is no error
}
