package storetest_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/storetest"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestFaultyIsAStore tests the entire contract of a Faulty store without a fault.
func TestFaultyIsAStore(t *testing.T) {
	storetest.Run(t, func(*testing.T) objstore.Store {
		return storetest.NewFaulty(mem.New(), storetest.Fault{At: -1})
	})
}

func filled(t *testing.T) *mem.Store {
	t.Helper()
	store := mem.New()
	for _, name := range []string{"a", "b"} {
		if _, err := objstore.Put(t.Context(), store, name, []byte("12345678"), objstore.Condition{}); err != nil {
			t.Fatal(err)
		}
	}
	return store
}

// walk calls every method once and returns the errors in the order of operations.
func walk(t *testing.T, store objstore.Store) []error {
	ctx := t.Context()
	var errs []error
	_, err := store.Stat(ctx, "a") // 0
	errs = append(errs, err)
	object, err := store.Open(ctx, "a") // 1
	errs = append(errs, err)
	if err == nil {
		_, infoErr := object.Info(ctx)                                       // 2
		errs = append(errs, infoErr, object.ReadAt(ctx, make([]byte, 8), 0)) // 3
		object.Close()
	}
	upload, err := store.Create(ctx, "c", objstore.Condition{}) // 4
	errs = append(errs, err)
	if err == nil {
		_, writeErr := upload.Write([]byte("12345678")) // 5
		_, commitErr := upload.Commit(ctx)              // 6
		errs = append(errs, writeErr, commitErr)
	}
	for _, err := range store.List(ctx, "") { // 7, 8, 9; the end is 10
		errs = append(errs, err)
	}
	return append(errs, store.Delete(ctx, "a")) // 11
}

func TestOperationsAreCounted(t *testing.T) {
	store := storetest.NewFaulty(filled(t), storetest.Fault{At: 12})
	for i, err := range walk(t, store) {
		if err != nil {
			t.Fatalf("operation %d: %v", i, err)
		}
	}
	if store.Ops() != 12 || store.Fired() {
		t.Fatal(store.Ops(), store.Fired())
	}
	if err := store.Delete(t.Context(), "b"); !errors.Is(err, storetest.ErrInjected) || !store.Fired() {
		t.Fatal(err)
	}
}

// TestEachFaultIsSeen fails every operation: the caller gets the error, once or from then on, and
// no other operation fails.
func TestEachFaultIsSeen(t *testing.T) {
	for _, kill := range []bool{false, true} {
		fault := storetest.Fault{Kill: kill, Err: syscall.EIO}
		open := func(t *testing.T) objstore.Store { return filled(t) }
		ops := storetest.EachFault(t, open, fault, func(t *testing.T, store *storetest.Faulty) {
			failures := 0
			for _, err := range walk(t, store) {
				switch {
				case errors.Is(err, syscall.EIO):
					failures++
				case err != nil:
					t.Fatal(err)
				case kill && failures > 0:
					t.Fatal("something succeeded after the process died")
				}
			}
			if (failures > 0) != store.Fired() {
				t.Fatalf("fired=%v, failures %d", store.Fired(), failures)
			}
		})
		if ops != 12 {
			t.Fatalf("%d operations", ops)
		}
	}
}

func TestShort(t *testing.T) {
	inner := filled(t)
	read := storetest.NewFaulty(inner, storetest.Fault{At: 1, Short: true})
	object, err := read.Open(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	defer object.Close()
	p := make([]byte, 8)
	if err := object.ReadAt(t.Context(), p, 0); !errors.Is(err, storetest.ErrInjected) || !bytes.Equal(p, []byte("1234\x00\x00\x00\x00")) {
		t.Fatalf("%q, %v", p, err)
	}

	write := storetest.NewFaulty(inner, storetest.Fault{At: 1, Short: true})
	upload, err := write.Create(t.Context(), "c", objstore.Condition{})
	if err != nil {
		t.Fatal(err)
	}
	if n, err := upload.Write(p); n != 4 || !errors.Is(err, storetest.ErrInjected) {
		t.Fatal(n, err)
	}
	if _, err := upload.Commit(t.Context()); !errors.Is(err, storetest.ErrInjected) {
		t.Fatalf("Commit after a failed Write: %v", err)
	}
	if _, err := inner.Stat(t.Context(), "c"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
}

// TestLostAnswer commits and deletes with success, but both calls report a failure.
func TestLostAnswer(t *testing.T) {
	inner := mem.New()
	commit := storetest.NewFaulty(inner, storetest.Fault{At: 2, After: true})
	_, err := objstore.Put(t.Context(), commit, "a", []byte("1"), objstore.Condition{IfNoneMatch: true})
	if !errors.Is(err, storetest.ErrInjected) {
		t.Fatal(err)
	}
	if _, err := inner.Stat(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	remove := storetest.NewFaulty(inner, storetest.Fault{At: 0, After: true})
	if err := remove.Delete(t.Context(), "a"); !errors.Is(err, storetest.ErrInjected) {
		t.Fatal(err)
	}
	if _, err := inner.Stat(t.Context(), "a"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
}

// capable is a store with all traits.
type capable struct{ *mem.Store }

func (c capable) Traits() objstore.Traits {
	return objstore.Traits{
		Requests: 4, MostRequests: 8,
		Reserve: func(int) func() { return func() {} },
		OpenAs:  func(ctx context.Context, name, _ string) (objstore.Object, error) { return c.Open(ctx, name) },
	}
}

// TestFaultyTraits checks that a Faulty store keeps the number of requests and offers no way around
// its fault.
func TestFaultyTraits(t *testing.T) {
	traits := objstore.TraitsOf(storetest.NewFaulty(capable{mem.New()}, storetest.Fault{}))
	if traits.Requests != 4 || traits.MostRequests != 8 || traits.Reserve == nil || traits.OpenAs != nil {
		t.Errorf("%+v", traits)
	}
	if traits = objstore.TraitsOf(storetest.NewFaulty(mem.New(), storetest.Fault{})); traits.Remote() || traits.Reserve != nil {
		t.Errorf("over a store in memory: %+v", traits)
	}
}
