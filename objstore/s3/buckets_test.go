package s3_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/s3"
	"github.com/shardtool/shardtool/objstore/storetest/s3server"
)

// TestDirectoryBucket: lists without an order come sorted, also for prefixes that end in no slash,
// which the server refuses, and over several pages; no versions are asked for.
func TestDirectoryBucket(t *testing.T) {
	s := s3server.New(t)
	s.Directory = true
	store, err := s3.New(t.Context(), s3server.DirectoryBucket, "set", quick(s.URL))
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for i := range 10 {
		for _, name := range []string{fmt.Sprintf("a-%d", i), fmt.Sprintf("b/%d", i)} {
			if _, err := objstore.Put(t.Context(), store, name, []byte("x"), objstore.Condition{IfNoneMatch: true}); err != nil {
				t.Fatal(err)
			}
			want = append(want, name)
		}
	}
	slices.Sort(want)
	for prefix, want := range map[string][]string{"": want, "a": want[:10], "a-3": want[3:4], "b/": want[10:], "b": want[10:], "c": nil} {
		list := store.List(t.Context(), prefix)
		for range 2 { // a list can be read again
			var got []string
			for info, err := range list {
				if err != nil {
					t.Fatal(prefix, err)
				}
				got = append(got, info.Name)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%q: %q, want %q", prefix, got, want)
			}
		}
	}
	if traits := objstore.TraitsOf(store); traits.Versions || traits.ListVersions != nil {
		t.Error("a directory bucket has no versions")
	}
}

// TestListedTwice: a directory bucket that lists a key twice is refused, as every other.
func TestListedTwice(t *testing.T) {
	s := s3server.New(t)
	s.Directory = true
	store, err := s3.New(t.Context(), s3server.DirectoryBucket, "", quick(s.URL))
	if err != nil {
		t.Fatal(err)
	}
	s.SetHook(func(w http.ResponseWriter, r *http.Request) bool {
		if !r.URL.Query().Has("list-type") {
			return false
		}
		fmt.Fprint(w, `<ListBucketResult><Contents><Key>a</Key></Contents><Contents><Key>b</Key></Contents>`+
			`<Contents><Key>a</Key></Contents></ListBucketResult>`)
		return true
	})
	for _, err = range store.List(t.Context(), "") {
	}
	if err == nil {
		t.Fatal("a key that is listed twice was not noticed")
	}
}

// TestSingleWriter: conditions hold on a server that ignores them, or refuses requests that have
// any, and no request is sent to try the server.
func TestSingleWriter(t *testing.T) {
	s := s3server.New(t)
	s.Unconditional = true
	s.SetHook(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet && r.Header.Get("If-None-Match")+r.Header.Get("If-Match") != "" {
			s3server.Refuse(w, r, http.StatusNotImplemented, "NotImplemented")
			return true
		}
		return false
	})
	opts := quick(s.URL)
	opts.SingleWriter = true
	store := open(t, s.URL, "p", opts)
	if err := objstore.TraitsOf(store).CheckWrites(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{3, 9 << 20} {
		name := fmt.Sprint(size)
		put := func(b byte, cond objstore.Condition) (objstore.Info, error) {
			data := make([]byte, size)
			data[0] = b
			return objstore.Put(t.Context(), store, name, data, cond)
		}
		if _, err := put(1, objstore.Condition{IfMatch: "none"}); !errors.Is(err, objstore.ErrChanged) {
			t.Fatal(err)
		}
		first, err := put(1, objstore.Condition{IfNoneMatch: true})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := put(2, objstore.Condition{IfNoneMatch: true}); !errors.Is(err, objstore.ErrExists) {
			t.Fatal(err)
		}
		if _, err := put(3, objstore.Condition{IfMatch: first.ETag}); err != nil {
			t.Fatal(err)
		}
		if _, err := put(4, objstore.Condition{IfMatch: first.ETag}); !errors.Is(err, objstore.ErrChanged) {
			t.Fatal(err)
		}
		if got := s.Objects["p/"+name].Data; len(got) != size || got[0] != 3 {
			t.Fatalf("%d bytes", len(got))
		}
	}
	if len(s.Objects) != 2 || len(s.Uploads) != 0 {
		t.Fatalf("left: %d objects, %d uploads", len(s.Objects), len(s.Uploads))
	}
}
