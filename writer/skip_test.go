package writer_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/writer"
)

// broken reports whether an item of a test cannot be packed.
func broken(it *item) bool {
	return it.next != nil || it.open != nil || it.read != nil || format.CheckKey(it.key) != nil
}

// TestSkip leaves out just the samples that fail, in whatever way and number, and counts them.
func TestSkip(t *testing.T) {
	kinds := []func(it *item){
		func(it *item) { it.next = errRead }, func(it *item) { it.open = errRead }, func(it *item) { it.read = errRead },
		func(it *item) { it.key = "a/../b" + it.key },
	}
	all := func(i int) bool { return true }
	for name, fails := range map[string]func(i int) bool{
		"first": func(i int) bool { return i == 0 }, "last": func(i int) bool { return i == 59 }, "third": func(i int) bool { return i%3 == 1 },
		"whole blocks": func(i int) bool { return i >= 8 && i < 16 }, "whole shards": func(i int) bool { return i >= 20 && i < 45 }, "all but one": func(i int) bool { return i != 30 },
	} {
		for k, break1 := range append(kinds, nil) {
			t.Run(fmt.Sprint(name, k), func(t *testing.T) {
				src := resumeSource()
				for i := range src.items {
					if fails(i) {
						if break1 != nil {
							break1(&src.items[i])
						} else {
							kinds[i%len(kinds)](&src.items[i])
						}
					}
				}
				checkSkipped(t, src)
			})
		}
	}
	src := resumeSource()
	for i := range src.items {
		if all(i) {
			src.items[i].open = errRead
		}
	}
	opt := small("d")
	opt.Faults.Skip = true
	st := mem.New()
	if _, err := writer.Pack(t.Context(), st, src, opt); !errors.Is(err, writer.ErrEmpty) || len(objects(t, st)) != 0 {
		t.Fatalf("%v, %q is there", err, objectNames(t, st))
	}
}

func checkSkipped(t *testing.T, src *synth) {
	opt := small("d")
	opt.Faults.Skip, opt.Plain = true, true
	var mu sync.Mutex
	var told, want []string
	opt.Faults.Skipped = func(e *writer.SampleError) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, e.Origin+" "+e.Key)
	}
	for i := range src.items {
		if broken(&src.items[i]) {
			want = append(want, "origin of "+src.items[i].key+" "+src.items[i].key)
		}
	}
	st := mem.New()
	res := mustPack(t, st, src, opt)
	set := mustLoad(t, st)
	checkSet(t, set, func(it *item) bool { return !broken(it) }, src)
	slices.Sort(told)
	slices.Sort(want)
	if !slices.Equal(told, want) || res.Skipped != int64(len(want)) || res.Written != int64(len(set.Samples)) {
		t.Fatalf("%+v; told of %q, want %q", res, told, want)
	}
	for _, s := range set.Manifest.Shards {
		if s.Samples == 0 {
			t.Fatalf("shard %s is empty", s.Name)
		}
	}
	// Without Faults.Skip the first of them ends the pack, and is named.
	src.at, opt.Faults.Skip = 0, false
	_, err := writer.Pack(t.Context(), mem.New(), src, opt)
	var se *writer.SampleError
	if !errors.As(err, &se) || !slices.Contains(want, se.Origin+" "+se.Key) || !strings.Contains(err.Error(), se.Origin) {
		t.Fatal(err)
	}
}

// TestSkippedBytes: what is left out leaves no trace in the rest, and cuts stay where they would be
// by the samples' sizes.
func TestSkippedBytes(t *testing.T) {
	opt := small("d")
	opt.Faults.Skip, opt.Plain = true, true
	var want map[string][]byte
	for workers := 1; workers <= 8; workers *= 2 {
		src := resumeSource()
		for i := range src.items {
			if i%4 == 1 {
				src.items[i].read = errRead // half of it stood in the buffer
			}
		}
		opt.Workers = workers
		st := mem.New()
		mustPack(t, st, src, opt)
		if want == nil {
			want = objects(t, st)
		}
		sameObjects(t, fmt.Sprint(workers, " workers"), objects(t, st), want)
	}
}

func TestMaxSkipped(t *testing.T) {
	source := func() *synth {
		src := resumeSource()
		src.items[3].next, src.items[20].open, src.items[40].key = errRead, errRead, ""
		return src
	}
	for _, c := range []struct {
		n     int64
		share float64
		ok    bool
	}{{0, 0, true}, {2, 0, false}, {3, 0, true}, {0, 0.04, false}, {0, 0.05, true}, {3, 0.01, false}, {2, 1, false}} {
		opt := small("d")
		opt.Faults.Skip, opt.Faults.MaxSkipped, opt.Faults.MaxSkippedShare = true, c.n, c.share
		st := mem.New()
		_, err := writer.Pack(t.Context(), st, source(), opt)
		if (err == nil) != c.ok || (err != nil && !errors.Is(err, writer.ErrSkipped)) {
			t.Fatalf("%+v: %v", c, err)
		}
		if (digestOf(t, st) != "") != c.ok {
			t.Fatalf("%+v: published", c)
		}
	}
}

// TestDuplicates are found within a shard and across shards and generations; the error names key
// and places.
func TestDuplicates(t *testing.T) {
	source := func(a, b int) *synth {
		src := resumeSource()
		src.items[b].key = src.items[a].key
		return src
	}
	opt := small("d")
	opt.Plain = true
	for _, keep := range []bool{false, true} {
		opt.KeepDuplicates = keep
		_, err := writer.Pack(t.Context(), mem.New(), source(1, 2), opt)
		if !errors.Is(err, format.ErrDuplicate) || !strings.Contains(err.Error(), `"dir1/000001"`) || !strings.Contains(err.Error(), "d-000000.tar") {
			t.Fatal(err)
		}
		st := mem.New()
		src := source(1, 50)
		_, err = writer.Pack(t.Context(), st, src, opt)
		if keep {
			if err != nil {
				t.Fatal(err)
			}
			checkSet(t, mustLoad(t, st), nil, src)
			continue
		}
		if !errors.Is(err, format.ErrDuplicate) || digestOf(t, st) != "" {
			t.Fatal(err)
		}
		for _, part := range []string{`"dir1/000001"`, "d-000000.tar", "d-000005.tar", "sample 1 ", "sample 50 "} {
			if !strings.Contains(err.Error(), part) {
				t.Fatalf("%q is not in: %v", part, err)
			}
		}
	}
	// Across generations.
	st := mem.New()
	opt.KeepDuplicates = false
	mustPack(t, st, resumeSource(), opt)
	more := &synth{items: makeItems(3, 100, 1)}
	more.items[0].key, more.items[1].key = "new", "new2"
	opt.Mode = writer.ModeAppend
	_, err := writer.Pack(t.Context(), st, more, opt)
	if !errors.Is(err, format.ErrDuplicate) || !strings.Contains(err.Error(), "d-000000.tar") || !strings.Contains(err.Error(), "d-v0002-000000.tar") {
		t.Fatal(err)
	}
	more.at, opt.KeepDuplicates = 0, true
	if _, err := writer.Prune(t.Context(), st, writer.PruneOptions{Keep: 1, Grace: -1}); err != nil {
		t.Fatal(err)
	}
	mustPack(t, st, more, opt)
	if set := mustLoad(t, st); len(set.Samples) != 63 {
		t.Fatal(len(set.Samples))
	}
}
