package s3

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/storetest/s3server"
)

// TestVersions lists and deletes the versions of keys that need escaping, over several pages.
func TestVersions(t *testing.T) {
	server := s3server.New(t)
	server.Versioned = true
	pathStyle := true
	store, err := New(t.Context(), "bucket", "a b", Options{Region: "x", Endpoint: server.URL, PathStyle: &pathStyle, Anonymous: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"x", "y+z", "x", "ü/1", "x"} {
		if _, err := objstore.Put(t.Context(), store, name, []byte(name), objstore.Condition{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"x", "y+z"} {
		if err := store.Delete(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	traits := objstore.TraitsOf(store)
	list := func() (all []objstore.Version, text []string) {
		t.Helper()
		for v, err := range traits.ListVersions(t.Context(), "") {
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, v)
			text = append(text, fmt.Sprint(v.Name, " ", v.Size, v.Current, v.Mark))
			if len(all) > 100 {
				t.Fatal("the list has no end")
			}
		}
		return all, text
	}
	all, text := list()
	want := []string{"x 0 true true", "x 1 false false", "x 1 false false", "x 1 false false", "y+z 0 true true", "y+z 3 false false", "ü/1 4 true false"}
	if !slices.Equal(text, want) {
		t.Fatalf("%q, want %q", text, want)
	}
	for _, v := range all[:5] {
		for range 2 { // a missing one is no error
			if err := traits.DeleteVersion(t.Context(), v.Name, v.ID); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := store.Stat(t.Context(), "y+z"); err != nil {
		t.Errorf("the version under the mark: %v", err)
	}
	server.Locked = func(string, string) bool { return true }
	if err := traits.DeleteVersion(t.Context(), "y+z", all[5].ID); !errors.Is(err, objstore.ErrKept) {
		t.Errorf("locked: %v", err)
	}
}
