package s3

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

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

// TestDeleteVersions deletes many versions by a request for each thousand, says which a lock keeps,
// and asks one by one where the server takes no such requests.
func TestDeleteVersions(t *testing.T) {
	server := s3server.New(t)
	server.Versioned, server.Page = true, 700
	pathStyle := true
	store, err := New(t.Context(), "bucket", "a b", Options{Region: "x", Endpoint: server.URL, PathStyle: &pathStyle, Anonymous: true})
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"y+z", "ü/1", "a&b<c>", "x"}
	fill := func() (all []objstore.Version) {
		server.Mu.Lock()
		for i := range 2500 {
			key := "a b/" + names[i%len(names)]
			server.Versions[key] = append(server.Versions[key], s3server.Version{ID: fmt.Sprint(i)})
		}
		server.Mu.Unlock()
		for v, err := range objstore.TraitsOf(store).ListVersions(t.Context(), "") {
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, v)
		}
		return all
	}
	traits := objstore.TraitsOf(store)
	all := fill()
	server.Locked = func(key, id string) bool { return key == "a b/x" && len(id) == 3 }
	gone, err := traits.DeleteVersions(t.Context(), all)
	if requests := server.Requests("POST "); err != nil || len(requests) != 3 || len(all) != 2500 {
		t.Fatal(len(all), requests, err)
	}
	kept := 0
	for i, v := range all {
		if gone[i] == server.Locked("a b/"+v.Name, v.ID) {
			t.Fatalf("%s %s: gone %v", v.Name, v.ID, gone[i])
		}
		if !gone[i] {
			kept++
			if err := traits.DeleteVersion(t.Context(), v.Name, v.ID); !errors.Is(err, objstore.ErrKept) {
				t.Fatal(err)
			}
		}
	}
	if kept == 0 || len(server.Versions["a b/x"]) != kept || len(server.Versions["a b/a&b<c>"]) > 0 {
		t.Errorf("%d kept, %d there", kept, len(server.Versions["a b/x"]))
	}
	server.Locked, server.NoBatch = nil, true
	if gone, err := traits.DeleteVersions(t.Context(), all[:2]); err != nil || gone[0] || gone[1] {
		t.Error("a server without such requests:", gone, err)
	}
	server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := traits.DeleteVersions(ctx, all[:2]); err == nil {
		t.Error("no error of a server that is down")
	}
}
