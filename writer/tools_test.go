package writer_test

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"testing"

	"github.com/shardtool/shardtool/internal/testset/readback"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/local"
	"github.com/shardtool/shardtool/writer"
)

// small makes many blocks and shards out of little data.
func small(name string) writer.Options {
	return writer.Options{Name: name, BlockSize: 16 << 10, ShardSize: 64 << 10, Workers: 2}
}

func localStore(t testing.TB, dir string) objstore.Store {
	t.Helper()
	st, err := local.New(dir, local.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func mustPack(t testing.TB, st objstore.Store, src writer.Source, opt writer.Options) *writer.Result {
	t.Helper()
	res, err := writer.Pack(context.Background(), st, src, opt)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func mustLoad(t testing.TB, st objstore.Store) *readback.Set {
	t.Helper()
	set, err := readback.Load(context.Background(), st)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// objects are all bytes of a store.
func objects(t testing.TB, st objstore.Store) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	for info, err := range st.List(context.Background(), "") {
		if err != nil {
			t.Fatal(err)
		}
		data, _, err := objstore.ReadAll(context.Background(), st, info.Name, 1<<32)
		if err != nil {
			t.Fatal(err)
		}
		all[info.Name] = data
	}
	return all
}

func sameObjects(t testing.TB, what string, got, want map[string][]byte) {
	t.Helper()
	names := slices.Sorted(maps.Keys(want))
	if g := slices.Sorted(maps.Keys(got)); !slices.Equal(g, names) {
		t.Fatalf("%s: objects are %q, want %q", what, g, names)
	}
	for _, n := range names {
		if !bytes.Equal(got[n], want[n]) {
			t.Fatalf("%s: %s has other bytes", what, n)
		}
	}
}

// checkSet holds a data set against the sources that were packed into it one after the other,
// samples for which kept is false left out.
func checkSet(t testing.TB, set *readback.Set, kept func(it *item) bool, srcs ...*synth) {
	t.Helper()
	n := 0
	for _, src := range srcs {
		for i := range src.items {
			it := &src.items[i]
			if kept != nil && !kept(it) {
				continue
			}
			if n >= len(set.Samples) {
				t.Fatalf("sample %q is missing", it.key)
			}
			s := &set.Samples[n]
			n++
			if s.Key != it.key || !bytes.Equal(s.Field("bin"), src.want(i)) || string(s.Field("Atxt")) != it.inline {
				t.Fatalf("sample %d is %q with other bytes than %q", n-1, s.Key, it.key)
			}
			fields := 1
			if it.inline != "" {
				fields = 2
			}
			if len(s.Fields) != fields || (src.attrs && (len(s.Attrs) != 2 || s.Attrs[1].Integer != int64(i))) {
				t.Fatalf("sample %q has %d fields and attributes %+v", s.Key, len(s.Fields), s.Attrs)
			}
		}
	}
	if n != len(set.Samples) {
		t.Fatalf("%d samples too many, the first is %q", len(set.Samples)-n, set.Samples[n].Key)
	}
}
