package tars

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/local"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
)

// TestFind lists what each form of address stands for, on disk and in a store.
func TestFind(t *testing.T) {
	dir := t.TempDir()
	store := mem.New()
	for _, name := range []string{"a/1.tar", "a/2.tar", "b/3.tar", "b/.4.tar", "b/5.tar.gz", "z/6.tar.gz", "b/7.txt"} {
		if _, err := objstore.Put(t.Context(), store, name, []byte("12345"), objstore.Condition{}); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte("12345"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	open := func(_ context.Context, addr string) (objstore.Store, error) {
		if !strings.Contains(addr, "://") {
			return local.New(addr, local.Options{})
		}
		if addr != "mem://host" && addr != "mem://host?x=1" {
			return nil, errors.New("another place: " + addr)
		}
		return store, nil
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, c := range []struct {
		addrs []string
		out   string
		want  []string // nil: err
		err   error
	}{
		{[]string{dir}, "", []string{"a/1.tar", "a/2.tar", "b/3.tar"}, nil},
		{[]string{at("a")}, "", []string{"1.tar", "2.tar"}, nil},
		{[]string{at("a")}, dir, []string{"a/1.tar", "a/2.tar"}, nil},
		{[]string{at("a/2.tar"), at("a/1.tar")}, "", []string{"2.tar", "1.tar"}, nil},
		{[]string{at("{b,a}/?.tar")}, "", []string{"b/3.tar", "a/1.tar", "a/2.tar"}, nil},
		{[]string{at("b/3.tar"), at("a")}, "", nil, ErrAddress},
		{[]string{at("a")}, at("b"), nil, ErrAddress},
		{[]string{at("b/5.tar.gz")}, "", nil, ErrNotPlain},
		{[]string{at("z")}, "", nil, ErrNotPlain},
		{[]string{at("{a")}, "", nil, ErrAddress},
		{[]string{at("nosuch")}, "", nil, fs.ErrNotExist},
		{[]string{at("nosuch*")}, "", nil, fs.ErrNotExist},
		{[]string{"mem://host"}, "", []string{"a/1.tar", "a/2.tar", "b/3.tar"}, nil},
		{[]string{"mem://host/*/{3,1}.tar"}, "", []string{"b/3.tar", "a/1.tar"}, nil},
		{[]string{"mem://host/{a/2,b/3}.tar?x=1"}, "", []string{"a/2.tar", "b/3.tar"}, nil},
		{[]string{"mem://host/{a/8,b/3}.tar"}, "", nil, fs.ErrNotExist},
		{[]string{"mem://host/*/nosuch*.tar"}, "", nil, fs.ErrNotExist},
		{[]string{"mem://host/**/*.gz"}, "", nil, ErrNotPlain},
		{[]string{"mem://host/*["}, "", nil, ErrAddress},
		{[]string{"mem://host"}, dir, nil, ErrAddress},
	} {
		got, err := Find(t.Context(), open, c.addrs, c.out, func(objstore.Store) error { return nil })
		if !errors.Is(err, c.err) || (err == nil) != (c.want != nil) {
			t.Errorf("%q below %q: %v, want %v", c.addrs, c.out, err, c.err)
		}
		if err == nil && (!slices.Equal(got.Names, c.want) || got.Size != int64(5*len(c.want))) {
			t.Errorf("%q below %q: %q of %d bytes, want %q", c.addrs, c.out, got.Names, got.Size, c.want)
		}
	}
}
