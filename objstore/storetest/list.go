package storetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/shardtool/shardtool/objstore"
)

// testList checks every prefix of every name, and some that match none. The byte order of the names
// differs from the order of a directory walk ("a-b" < "a.b" < "a/b" < "a0").
func testList(t *testing.T, store objstore.Store) {
	if got := names(t, store, ""); len(got) != 0 {
		t.Fatalf("an empty store lists %q", got)
	}
	all := []string{"a-b", "a.b", "a/b", "a/b.c", "a/c/d", "a/c.d", "a0", "b/1", "b/10", "b/2", "Z", "ab/x", "é"}
	infos := map[string]objstore.Info{}
	for i, name := range all {
		infos[name] = put(t, store, name, pattern(uint64(i), 10*i))
	}
	slices.Sort(all)
	prefixes := map[string]bool{"a//": true, "/": true, "../": true, "./": true, ".": true, "a/b/": true, "zz": true,
		"a\\": true, "a/c/d/": true, strings.Repeat("x", 2000): true}
	for _, name := range all {
		for end := range len(name) + 1 {
			prefixes[name[:end]] = true
		}
	}
	for prefix := range prefixes {
		var want []string
		for _, name := range all {
			if strings.HasPrefix(name, prefix) {
				want = append(want, name)
			}
		}
		if got := names(t, store, prefix); !slices.Equal(got, want) {
			t.Fatalf("list %q gave %q, want %q", prefix, got, want)
		}
	}
	for info, err := range store.List(t.Context(), "") {
		if err != nil || !same(info, infos[info.Name]) {
			t.Fatalf("listed %+v, put %+v: %v", info, infos[info.Name], err)
		}
	}
}

// OddNames are names that no store accepts, and that servers may have all the same.
func OddNames() []string {
	return []string{"a//b", "a/./b", "a/../b", "c\\d", "e/", "f\ng", "/h", strings.Repeat("n", 1000), "not utf-8 \xff"}
}

// ListAll checks the list of every name of a store that has the names odd, all of them and in
// order.
func ListAll(t *testing.T, store objstore.Store, odd []string) {
	t.Helper()
	odd = slices.Sorted(slices.Values(odd))
	for _, prefix := range []string{"", "a", "a/", "c"} {
		var got, want []string
		for info, err := range objstore.ListAll(t.Context(), store, prefix) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, info.Name)
		}
		for _, name := range odd {
			if strings.HasPrefix(name, prefix) {
				want = append(want, name)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("prefix %q: %q, want %q", prefix, got, want)
		}
		for _, name := range names(t, store, prefix) {
			if objstore.CheckName(name) != nil || !slices.Contains(want, name) {
				t.Errorf("prefix %q: %q is in List", prefix, name)
			}
		}
	}
}

func testListStop(t *testing.T, store objstore.Store) {
	for i := range 10 {
		put(t, store, fmt.Sprintf("n%d/x", i), nil)
	}
	seen := 0
	for _, err := range store.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		if seen++; seen == 3 {
			break
		}
	}
	if seen != 3 {
		t.Fatalf("stopped after %d", seen)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var last error
	for _, err := range store.List(ctx, "") {
		cancel()
		last = err
	}
	wantError(t, "a list whose context ended on the way", last, context.Canceled)
}

// testListDuringWrites lists while objects are put, replaced and deleted. The lists must be in
// order, without temporary files, and contain every object that existed throughout.
func testListDuringWrites(t *testing.T, store objstore.Store) {
	stable := []string{"s/0", "s/5", "s/9"}
	for _, name := range stable {
		put(t, store, name, []byte(name))
	}
	ctx, cancel := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	failed := make(chan error, 1)
	fail := func(err error) {
		select {
		case failed <- err:
		default:
		}
	}
	writers.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			name := fmt.Sprintf("s/%d-%d", i%10, i%7)
			if _, err := objstore.Put(t.Context(), store, name, []byte("x"), objstore.Condition{}); err != nil {
				fail(err)
				return
			}
			if err := store.Delete(t.Context(), fmt.Sprintf("s/%d-%d", (i+5)%10, (i+5)%7)); err != nil {
				fail(err)
				return
			}
		}
	})
	for range 30 {
		got := names(t, store, "s/")
		for i, name := range got {
			if i > 0 && got[i-1] >= name || !strings.HasPrefix(name, "s/") || objstore.CheckName(name) != nil {
				fail(fmt.Errorf("listed %q", got))
			}
		}
		for _, name := range stable {
			if !slices.Contains(got, name) {
				fail(fmt.Errorf("%s is missing in %q", name, got))
			}
		}
	}
	cancel()
	writers.Wait()
	select {
	case err := <-failed:
		t.Fatal(err)
	default:
	}
}
