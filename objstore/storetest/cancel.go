package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/shardtool/shardtool/objstore"
)

// testContextEnded calls every method with a context that has ended: nothing happens, and the error
// wraps the context's.
func testContextEnded(t *testing.T, store objstore.Store) {
	put(t, store, "there", []byte("bytes"))
	object := open(t, store, "there")
	upload, err := store.Create(t.Context(), "new", objstore.Condition{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := upload.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	abandoned, err := store.Create(ctx, "abandoned", objstore.Condition{})
	if err != nil {
		t.Fatal(err)
	}
	cancel()

	_, err = store.Open(ctx, "there")
	wantError(t, "Open", err, context.Canceled)
	_, err = store.Stat(ctx, "there")
	wantError(t, "Stat", err, context.Canceled)
	_, err = store.Create(ctx, "other", objstore.Condition{})
	wantError(t, "Create", err, context.Canceled)
	wantError(t, "Delete", store.Delete(ctx, "there"), context.Canceled)
	wantError(t, "ReadAt", object.ReadAt(ctx, make([]byte, 1), 0), context.Canceled)
	_, err = upload.Commit(ctx)
	wantError(t, "Commit", err, context.Canceled)
	steps := 0
	for _, err := range store.List(ctx, "") {
		steps++
		wantError(t, "List", err, context.Canceled)
	}
	if steps != 1 {
		t.Fatalf("List took %d steps, want one error", steps)
	}
	// The upload's own context has ended; Abort works all the same.
	if err := abandoned.Abort(); err != nil {
		t.Fatalf("Abort: %v", err)
	}
	for _, name := range []string{"new", "other", "abandoned"} {
		absent(t, store, name)
	}
	expect(t, store, "there", []byte("bytes"))
}

// testContextRead cancels a read: it succeeds or returns the context's error.
func testContextRead(t *testing.T, store objstore.Store) {
	want := pattern(4, 1<<20)
	put(t, store, "object", want)
	object := open(t, store, "object")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	for {
		got, err := readAt(ctx, object, 5, 500_000)
		if err != nil {
			wantError(t, "ReadAt", err, context.DeadlineExceeded)
			break
		}
		if !bytes.Equal(got, want[5:500_005]) {
			t.Fatal("other bytes")
		}
	}
	// The context of one call does not affect the handle.
	if _, err := readAt(t.Context(), object, 0, 10); err != nil {
		t.Fatalf("a read after another was cancelled: %v", err)
	}
}

// testContextCommit cancels a commit at many moments: the object is then absent or complete, and
// complete if Commit succeeded.
func testContextCommit(t *testing.T, store objstore.Store) {
	want := pattern(6, 200_000)
	for i := range 30 {
		name := fmt.Sprintf("c/%d", i)
		upload, err := store.Create(t.Context(), name, objstore.Condition{IfNoneMatch: true})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := upload.Write(want); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i*i)*10*time.Microsecond)
		_, err = upload.Commit(ctx)
		cancel()
		if err == nil {
			expect(t, store, name, want)
			continue
		}
		if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
			t.Fatalf("commit: %v", err)
		}
		if _, err := store.Stat(t.Context(), name); isMissing(err) {
			absent(t, store, name)
		} else {
			expect(t, store, name, want)
		}
	}
}
