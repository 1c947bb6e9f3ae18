package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/objstore"
)

func badNames() []string {
	return []string{"", "/", "/a", "a/", "a//b", ".", "..", "./a", "a/.", "a/..", "../a", "a/../b", "a/./b", `a\b`,
		"a\x00b", strings.Repeat("a/", 512) + "a"}
}

// testNames puts an object under every legal name and reads it back. A store that cannot hold a
// name may refuse it with ErrName at Create.
func testNames(t *testing.T, store objstore.Store) {
	plain := []string{"a", "A-b_c.9", "train-000003.tar.zst", "a.b/c.d", "p/q/r/s/t"}
	odd := []string{"two words", " ", "new\nline", "tab\t", "...", "..a", "a..", ".hidden", "-", "ünï/ço∂é", "e\u0301",
		"\xff\xfe", "q?x=1&y#z", "%41", "a+b", `"quoted"`, "'", "a:b", "*", "<>|", "~", "con",
		strings.Repeat("n", 255), strings.Repeat("n", 256), strings.Repeat("deep/", 40) + "name",
		strings.Repeat("0123456/", 127) + "01234567"}
	var stored []string
	for i, name := range slices.Concat(plain, odd) {
		info, err := objstore.Put(t.Context(), store, name, []byte(name), objstore.Condition{IfNoneMatch: true})
		if errors.Is(err, objstore.ErrName) && i >= len(plain) {
			wantError(t, "refusal", err, objstore.ErrName)
			t.Logf("refused: %v", err)
			continue
		}
		if err != nil || info.Name != name {
			t.Fatalf("put %q: %+v, %v", name, info, err)
		}
		stored = append(stored, name)
	}
	for _, name := range stored {
		expect(t, store, name, []byte(name))
	}
	slices.Sort(stored)
	if got := names(t, store, ""); !slices.Equal(got, stored) {
		t.Fatalf("listed %q, put %q", got, stored)
	}
	for _, name := range badNames() {
		_, err := store.Create(t.Context(), name, objstore.Condition{})
		wantError(t, fmt.Sprintf("create %q", name), err, objstore.ErrName)
		wantError(t, fmt.Sprintf("delete %q", name), store.Delete(t.Context(), name), objstore.ErrName)
	}
}

func testPut(t *testing.T, store objstore.Store) {
	if store.String() == "" {
		t.Fatal("the store has no address")
	}
	absent(t, store, "x/y")
	first := put(t, store, "x/y", nil)
	expect(t, store, "x/y", nil)
	second := put(t, store, "x/y", pattern(1, 1000))
	expect(t, store, "x/y", pattern(1, 1000))
	third := put(t, store, "x/y", pattern(2, 1000))
	expect(t, store, "x/y", pattern(2, 1000))
	if first.ETag == second.ETag || second.ETag == third.ETag {
		t.Fatalf("tags repeat: %s, %s, %s", first.ETag, second.ETag, third.ETag)
	}
	stat, err := store.Stat(t.Context(), "x/y")
	if err != nil || !same(stat, third) {
		t.Fatalf("Commit said %+v, Stat says %+v: %v", third, stat, err)
	}
}

// testUpload writes from one buffer that it overwrites after each Write, because a store must not
// keep the slice.
func testUpload(t *testing.T, store objstore.Store) {
	want := pattern(5, 700_001)
	upload, err := store.Create(t.Context(), "pieces", objstore.Condition{})
	if err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 64<<10)
	for i, rest := 0, want; len(rest) > 0; i++ {
		n := min(len(rest), []int{1, 0, 65_536, 4095, 1000}[i%5])
		copy(buffer, rest[:n])
		if written, err := upload.Write(buffer[:n]); err != nil || written != n {
			t.Fatalf("wrote %d of %d: %v", written, n, err)
		}
		clear(buffer)
		rest = rest[n:]
	}
	absent(t, store, "pieces")
	info, err := upload.Commit(t.Context())
	if err != nil || info.Size != int64(len(want)) {
		t.Fatalf("commit: %+v, %v", info, err)
	}
	expect(t, store, "pieces", want)

	// The upload has ended.
	if _, err := upload.Write([]byte("x")); err == nil {
		t.Fatal("Write after Commit succeeded")
	}
	if _, err := upload.Commit(t.Context()); err == nil {
		t.Fatal("second Commit succeeded")
	}
	if err := upload.Abort(); err != nil {
		t.Fatalf("Abort after Commit: %v", err)
	}
	expect(t, store, "pieces", want)
}

func testAbort(t *testing.T, store objstore.Store) {
	old := pattern(1, 100)
	put(t, store, "old", old)
	for _, name := range []string{"old", "new"} {
		upload, err := store.Create(t.Context(), name, objstore.Condition{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := upload.Write(pattern(2, 100_000)); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := upload.Abort(); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := upload.Commit(t.Context()); err == nil {
			t.Fatal("Commit after Abort succeeded")
		}
		if _, err := upload.Write([]byte("x")); err == nil {
			t.Fatal("Write after Abort succeeded")
		}
	}
	expect(t, store, "old", old)
	absent(t, store, "new")
}

func testBig(t *testing.T, store objstore.Store) {
	// The size exceeds the 8 MiB after which stores begin to send or to sync, and is a multiple of
	// nothing.
	want := pattern(9, 17<<20+4321)
	upload, err := store.Create(t.Context(), "big", objstore.Condition{IfNoneMatch: true})
	if err != nil {
		t.Fatal(err)
	}
	for piece := range slices.Chunk(want, 1<<20) {
		if _, err := upload.Write(piece); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := upload.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	expect(t, store, "big", want)
}

// testHandles reads through handles whose object was replaced or deleted: they return the old bytes
// or an error, never other bytes.
func testHandles(t *testing.T, store objstore.Store) {
	old := pattern(1, 500_000)
	put(t, store, "replaced", old)
	put(t, store, "deleted", old)
	replaced, deleted := open(t, store, "replaced"), open(t, store, "deleted")
	for _, object := range []objstore.Object{replaced, deleted} {
		if got, err := readAt(t.Context(), object, 10, 10); err != nil || !bytes.Equal(got, old[10:20]) {
			t.Fatalf("first read: %v", err)
		}
	}
	put(t, store, "replaced", pattern(2, 600_000))
	if err := store.Delete(t.Context(), "deleted"); err != nil {
		t.Fatal(err)
	}
	for _, object := range []objstore.Object{replaced, deleted} {
		got, err := readAt(t.Context(), object, 400_000, 100_000)
		switch {
		case err == nil && bytes.Equal(got, old[400_000:]):
		case errors.Is(err, objstore.ErrChanged) || isMissing(err) && object == deleted:
		default:
			t.Fatalf("read after the object went: %v", err)
		}
		// Past the old end there is nothing to read, whatever the new object has there.
		if _, err := readAt(t.Context(), object, 500_000, 1); err == nil {
			t.Fatal("a read past the old version's end succeeded")
		}
	}
	expect(t, store, "replaced", pattern(2, 600_000))
}
