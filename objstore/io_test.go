package objstore_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"math"
	"testing"

	"go.uber.org/goleak"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/storetest"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestReadAllAndPut(t *testing.T) {
	store := mem.New()
	data := bytes.Repeat([]byte("x"), 1000)
	put, err := objstore.Put(t.Context(), store, "a", data, objstore.Condition{IfNoneMatch: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, max := range []int64{1000, 1001, math.MaxInt64} {
		got, info, err := objstore.ReadAll(t.Context(), store, "a", max)
		if err != nil || !bytes.Equal(got, data) || cap(got) > 1000 || info != put {
			t.Fatalf("max %d: %d bytes, %+v, %v", max, len(got), info, err)
		}
	}
	for _, max := range []int64{999, 0, -1, math.MinInt64} {
		got, _, err := objstore.ReadAll(t.Context(), store, "a", max)
		if !errors.Is(err, objstore.ErrTooLarge) || got != nil {
			t.Fatalf("max %d: %v", max, err)
		}
	}
	if _, _, err := objstore.ReadAll(t.Context(), store, "b", 10); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if _, err := objstore.Put(t.Context(), store, "a", nil, objstore.Condition{IfNoneMatch: true}); !errors.Is(err, objstore.ErrExists) {
		t.Fatal(err)
	}
}

// TestEveryFault fails each operation of a put and a read in each way. The object is then absent or
// complete, and absent if the failure preceded the effect of the commit.
func TestEveryFault(t *testing.T) {
	want := []byte("whole")
	for name, fault := range map[string]storetest.Fault{
		"before":     {},
		"after":      {After: true},
		"short":      {Short: true},
		"kill":       {Kill: true},
		"kill after": {Kill: true, After: true},
	} {
		t.Run(name, func(t *testing.T) {
			var inner *mem.Store
			open := func(*testing.T) objstore.Store { inner = mem.New(); return inner }
			ops := storetest.EachFault(t, open, fault, func(t *testing.T, store *storetest.Faulty) {
				_, putErr := objstore.Put(t.Context(), store, "a", want, objstore.Condition{})
				got, _, readErr := objstore.ReadAll(t.Context(), store, "a", 100)
				failed := putErr != nil || readErr != nil
				if failed != store.Fired() {
					t.Fatalf("fired=%v: put %v, read %v", store.Fired(), putErr, readErr)
				}
				if readErr == nil && !bytes.Equal(got, want) {
					t.Fatalf("read %q", got)
				}
				switch after, _, err := objstore.ReadAll(context.Background(), inner, "a", 100); {
				case err == nil && !bytes.Equal(after, want), err != nil && !errors.Is(err, fs.ErrNotExist):
					t.Fatalf("there is %q: %v", after, err)
				case err == nil && putErr != nil && !fault.After, err != nil && putErr == nil:
					t.Fatalf("put said %v, and there is %q", putErr, after)
				}
			})
			// Create, Write, Commit, Open, Info, ReadAt.
			if ops != 6 {
				t.Fatalf("%d operations", ops)
			}
		})
	}
}
