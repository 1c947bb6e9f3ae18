package check

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/internal/testset"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
)

func build(t *testing.T, o testset.Options) objstore.Store {
	t.Helper()
	var samples []testset.Sample
	for i := range 60 {
		data := bytes.Repeat([]byte{byte(i), 7}, 200+i)
		samples = append(samples, testset.Sample{Key: fmt.Sprintf("%03d", i), Fields: []testset.Field{{Name: "x", Data: data}}})
	}
	store := mem.New()
	if _, err := testset.Build(t.Context(), store, slices.Values(samples), o); err != nil {
		t.Fatal(err)
	}
	return store
}

// TestEveryObject flips a bit in the middle of every object of a data set in turn, and removes
// every object in turn: each is a fault, deep or at once.
func TestEveryObject(t *testing.T) {
	for _, o := range []testset.Options{{BlockSize: 4000, ShardSize: 12_000}, {BlockSize: 4000, ShardSize: 12_000, Plain: true}} {
		store := build(t, o)
		if r, err := Verify(t.Context(), store, Options{Deep: true}); err != nil || !r.OK() || r.Samples != 60 {
			t.Fatalf("%+v, %v", r, err)
		}
		for info, err := range store.List(t.Context(), "") {
			if err != nil {
				t.Fatal(err)
			}
			good, _, err := objstore.ReadAll(t.Context(), store, info.Name, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			bad := slices.Clone(good)
			bad[len(bad)/2] ^= 4
			put(t, store, info.Name, bad)
			if r, err := Verify(t.Context(), store, Options{Deep: true}); err == nil && r.OK() {
				t.Errorf("%s: a flipped bit was not found", info.Name)
			}
			if err := store.Delete(t.Context(), info.Name); err != nil {
				t.Fatal(err)
			}
			r, err := Verify(t.Context(), store, Options{})
			if info.Name == format.ManifestName {
				if !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("no data set: %+v, %v", r, err)
				}
			} else if err != nil || r.OK() {
				t.Errorf("%s is missing: %+v, %v", info.Name, r, err)
			}
			put(t, store, info.Name, good)
		}
	}
}

func put(t *testing.T, store objstore.Store, name string, data []byte) {
	t.Helper()
	if _, err := objstore.Put(t.Context(), store, name, data, objstore.Condition{}); err != nil {
		t.Fatal(err)
	}
}

// TestEnds checks that the end of a context ends a verification with its cause.
func TestEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Verify(ctx, build(t, testset.Options{}), Options{Deep: true}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestBounded checks that faults beyond the limit are counted.
func TestBounded(t *testing.T) {
	r := recorder{stop: func(error) {}}
	for i := range MaxFaults + 5 {
		r.fail(t.Context(), i, KindIndex, "", format.ErrCorrupt)
	}
	if report := r.finish(); len(report.Faults) != MaxFaults || report.Dropped != 5 || report.OK() {
		t.Fatalf("%d faults, %d dropped", len(report.Faults), report.Dropped)
	}
}

// TestUnread: what a store refuses is no damage, unless a disk has lost it, and many refusals end
// the run.
func TestUnread(t *testing.T) {
	var ended error
	r := recorder{stop: func(err error) { ended = err }}
	refused := errors.New("403 Forbidden")
	r.fail(t.Context(), 0, KindIndex, "", format.ErrCorrupt)
	r.fail(t.Context(), 1, KindIndex, "", syscall.EIO)
	for i := range MaxUnread {
		if ended != nil {
			t.Fatalf("ended after %d: %v", i, ended)
		}
		r.fail(t.Context(), i+2, KindIndex, "", refused)
	}
	if !errors.Is(ended, refused) {
		t.Errorf("ended with %v", ended)
	}
	if report := r.finish(); report.Damage() != 2 || report.Unread != MaxUnread || report.OK() {
		t.Fatalf("%d damaged, %d unread", report.Damage(), report.Unread)
	}
}

// TestMultiset checks that the order of pairs does not matter, and everything else does.
func TestMultiset(t *testing.T) {
	var a, b multiset
	for i := range uint64(1000) {
		a.add(i*i, i)
		b.add((999-i)*(999-i), 999-i)
	}
	if a != b {
		t.Fatal("the order matters")
	}
	c := b
	c.add(0, 0)
	if c == b {
		t.Fatal("(0, 0) counts for nothing")
	}
	// Exchanged numbers, and the same pair twice instead of two.
	var p, q, twice multiset
	p.add(1, 2)
	p.add(3, 4)
	q.add(1, 4)
	q.add(3, 2)
	twice.add(1, 2)
	twice.add(1, 2)
	if p == q || p == twice {
		t.Fatal("different sets are equal")
	}
}

// TestAttrTotals compares the totals of attributes in the tables with the indexes.
func TestAttrTotals(t *testing.T) {
	for _, more := range []int64{0, 1} {
		o := testset.Options{BlockSize: 4000, ShardSize: 12_000, Length: func(key string) int64 { return int64(key[2]) }}
		o.Edit = func(m *metadata.Manifest) {
			sum := metadata.AttrTotal{Name: "length"}
			for i := range 60 {
				sum.Add(int64('0'+i%10) + more*int64(i/59))
			}
			m.AttrTotals = []metadata.AttrTotal{sum}
		}
		r, err := Verify(t.Context(), build(t, o), Options{Deep: true})
		if err != nil || r.OK() != (more == 0) {
			t.Fatalf("%d more: %+v, %v", more, r, err)
		}
		if more > 0 && !strings.Contains(r.Faults[0].Detail, `attribute "length" adds up to 3150 in 60 samples, from 48 to 57; the tables say 3151 in 60, 48 to 58`) {
			t.Errorf("%v", r.Faults[0])
		}
	}
}
