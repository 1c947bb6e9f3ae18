package mem_test

import (
	"bytes"
	"testing"

	"go.uber.org/goleak"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/storetest"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestStore(t *testing.T) {
	storetest.Run(t, func(*testing.T) objstore.Store { return mem.New() })
}

// TestTagsNeverRepeat puts the same bytes twice: the ETags differ.
func TestTagsNeverRepeat(t *testing.T) {
	store := mem.New()
	seen := map[string]bool{}
	for range 100 {
		info, err := objstore.Put(t.Context(), store, "a", []byte("same"), objstore.Condition{})
		if err != nil || seen[info.ETag] {
			t.Fatalf("%+v, %v", info, err)
		}
		seen[info.ETag] = true
	}
}

// TestClone uses both stores after Clone: they are independent, and earlier objects have the same
// ETags in both.
func TestClone(t *testing.T) {
	store := mem.New()
	first, err := objstore.Put(t.Context(), store, "a", []byte("1"), objstore.Condition{})
	if err != nil {
		t.Fatal(err)
	}
	open, err := store.Create(t.Context(), "open", objstore.Condition{})
	if err != nil {
		t.Fatal(err)
	}
	clone := store.Clone()
	if _, err := open.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := clone.Stat(t.Context(), "open"); err == nil {
		t.Fatal("an upload that was open crossed into the clone")
	}
	if _, err := objstore.Put(t.Context(), clone, "a", []byte("2"), objstore.Condition{IfMatch: first.ETag}); err != nil {
		t.Fatal(err)
	}
	got, info, err := objstore.ReadAll(t.Context(), store, "a", 10)
	if err != nil || !bytes.Equal(got, []byte("1")) || info != first {
		t.Fatalf("%q, %+v, %v", got, info, err)
	}
	if err := store.Delete(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if got, _, err = objstore.ReadAll(t.Context(), clone, "a", 10); err != nil || !bytes.Equal(got, []byte("2")) {
		t.Fatalf("%q, %v", got, err)
	}
}
