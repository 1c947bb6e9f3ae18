package tar

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/storetest"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source"
)

// far is a store whose requests take time, as far as sources can tell.
type far struct{ objstore.Store }

func (far) Traits() objstore.Traits { return objstore.Traits{Requests: 8} }

// upload puts archives where they are read by requests.
func upload(t testing.TB, paths ...string) (st *mem.Store, names []string) {
	t.Helper()
	st = mem.New()
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Base(path)
		if _, err := objstore.Put(t.Context(), st, name, data, objstore.Condition{}); err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	return st, names
}

func openIn(t testing.TB, st objstore.Store, opt Options, names ...string) (writer.Splitter, error) {
	t.Helper()
	var in []source.Input
	for _, n := range names {
		in = append(in, source.Input{Store: st, Name: n})
	}
	src, err := New(t.Context(), in, opt)
	if err == nil {
		t.Cleanup(func() { src.Close() })
	}
	return src, err
}

// TestRemote: archives on a remote store give the same samples as on disk, including members too
// large for memory.
func TestRemote(t *testing.T) {
	entries, want := samples()
	entries = append(entries, entry{name: "z/large.bin", data: noise(9, 3<<20)}, entry{name: "z/large2.bin", data: noise(8, 600<<10)})
	for _, kind := range endings {
		path := write(t, kind, archiveOf(t, entries))
		local, _, err := rest(t, open(t, Options{}, path))
		if err != nil || len(local) != len(want)+2 {
			t.Fatal(len(local), err)
		}
		st, names := upload(t, path)
		for _, opt := range []Options{{}, {MemberMemory: 1 << 20}} {
			src, err := openIn(t, far{st}, opt, names...)
			if err != nil {
				t.Fatal(err)
			}
			all, bad, err := rest(t, src)
			plain := codingOfName(kind)
			switch {
			case err != nil:
				t.Fatal(kind, err)
			case opt.MemberMemory == 0 || plain:
				if !slices.Equal(all, local) {
					t.Errorf("%s, %+v: other samples", kind, opt)
				}
			case len(bad) != 1 || len(all) != len(local)-1: // compressed: it cannot be read later
				t.Errorf("%s, %+v: %d samples, %v", kind, opt, len(all), bad)
			}
		}
	}
}

// codingOfName reports whether an archive is plain.
func codingOfName(name string) bool {
	c, _, _ := codingOf(name)
	return c == 0
}

// TestRemoteFaults: if a store fails once, the error is the store's, never that of a damaged or
// shorter archive.
func TestRemoteFaults(t *testing.T) {
	entries, want := samples()
	for _, kind := range endings {
		st, names := upload(t, write(t, kind, archiveOf(t, entries)))
		storetest.EachFault(t, func(*testing.T) objstore.Store { return st.Clone() }, storetest.Fault{}, func(t *testing.T, faulty *storetest.Faulty) {
			src, err := openIn(t, far{faulty}, Options{}, names...)
			var all []string
			if err == nil {
				all, _, err = rest(t, src)
			}
			if faulty.Fired() != errors.Is(err, storetest.ErrInjected) || err == nil && len(all) != len(want) {
				t.Fatalf("%s: fired %v: %d samples, %v", kind, faulty.Fired(), len(all), err)
			}
		})
	}
}

// TestRemoteReplaced: an archive was replaced.
func TestRemoteReplaced(t *testing.T) {
	entries, _ := samples()
	path := write(t, "a.tar", archiveOf(t, entries))
	st, names := upload(t, path)
	src, err := openIn(t, far{st}, Options{}, names...)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := objstore.Put(t.Context(), st, "a.tar", data, objstore.Condition{}); err != nil { // the same bytes, another version
		t.Fatal(err)
	}
	if _, _, err := rest(t, src); !errors.Is(err, objstore.ErrChanged) {
		t.Fatal(err)
	}
}

// TestCancelled: the error is that of the context, and no sample follows out of order.
func TestCancelled(t *testing.T) {
	entries, want := samples()
	src := open(t, Options{}, write(t, "a.tar.gz", archiveOf(t, entries)))
	if _, err := src.Next(t.Context()); err != nil {
		t.Fatal(err)
	}
	at := src.Cursor()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := src.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if err := src.Seek(t.Context(), at); err != nil {
		t.Fatal(err)
	}
	all, _, err := rest(t, src)
	if err != nil || len(all) != len(want)-1 {
		t.Fatalf("%d samples, %v", len(all), err)
	}
}
