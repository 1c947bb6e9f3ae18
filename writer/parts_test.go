package writer_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/codec"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/writer"
)

func partsSource() *synth { return &synth{items: makeItems(60, 12<<10, 4), tag: "p", attrs: true} }

func mustPart(t testing.TB, st objstore.Store, src writer.Splitter, part, parts int, opt writer.Options) *writer.PartResult {
	t.Helper()
	res, err := writer.PackPart(context.Background(), st, src, part, parts, opt)
	if err != nil {
		t.Fatalf("part %d of %d: %v", part, parts, err)
	}
	return res
}

func mustCommit(t testing.TB, st objstore.Store, opt writer.CommitOptions) *writer.Result {
	t.Helper()
	res, err := writer.Commit(context.Background(), st, opt)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func missing(t testing.TB, st objstore.Store, parts int) *writer.PartsReport {
	t.Helper()
	r, err := writer.Missing(context.Background(), st, "", parts)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// partsOf is a store with these parts of a source packed, not committed.
func partsOf(t testing.TB, src func() *synth, opt writer.Options, parts int, which ...int) *mem.Store {
	t.Helper()
	st := mem.New()
	for _, part := range which {
		mustPart(t, st, src(), part, parts, opt)
	}
	return st
}

// TestParts packs in parts: the samples are those of one pack, in that order, and the bytes depend
// on the number of parts alone.
func TestParts(t *testing.T) {
	for _, plain := range []bool{false, true} {
		for _, parts := range []int{1, 2, 8, 70} {
			if parts == 70 && !plain {
				continue // encoders take long to make
			}
			t.Run(fmt.Sprintf("plain=%v/%d", plain, parts), func(t *testing.T) {
				var want map[string][]byte
				for round := range 2 {
					opt := small("d")
					opt.Plain, opt.Workers = plain, 1+round
					st, order := mem.New(), rand.New(rand.NewPCG(uint64(round), 1)).Perm(parts)
					for i, part := range order {
						r := missing(t, st, parts)
						if left := slices.Sorted(slices.Values(order[i:])); !slices.Equal(r.Missing, left) || r.Published {
							t.Fatalf("%+v, want %v", r, left)
						}
						mustPart(t, st, partsSource(), part, parts, opt)
					}
					if r := missing(t, st, parts); len(r.Missing) != 0 || r.Samples != 60 || r.Name != "d" || r.Published {
						t.Fatalf("%+v", r)
					}
					res := mustCommit(t, st, writer.CommitOptions{Parts: parts})
					set := mustLoad(t, st)
					checkSet(t, set, nil, partsSource())
					if set.Digest != res.Digest || res.Samples != 60 || res.Written != 60 || res.Already || res.Generation != 1 {
						t.Fatalf("%+v", res)
					}
					if r := missing(t, st, parts); len(r.Missing) != 0 || !r.Published || r.Generation != 1 || r.Name != "d" {
						t.Fatalf("%+v", r)
					}
					got := objects(t, st)
					if want == nil {
						want = got
					}
					sameObjects(t, "in another order", got, want)
				}
			})
		}
	}
}

// TestPartAgain: a part that is there is left alone, before and after the commit, and so is a
// committed data set.
func TestPartAgain(t *testing.T) {
	st := partsOf(t, partsSource, small("d"), 3, 0, 1, 2)
	before := objects(t, st)
	src := partsSource()
	src.begin = func(context.Context, int) error { t.Error("a payload was read"); return nil }
	res := mustPart(t, st, src, 1, 3, small("d"))
	if !res.Already || res.Published || res.Samples != 20 || res.Written != 0 {
		t.Fatalf("%+v", res)
	}
	sameObjects(t, "packed again", objects(t, st), before)
	first := mustCommit(t, st, writer.CommitOptions{Parts: 3})
	before = objects(t, st)
	if res := mustPart(t, st, src, 1, 3, small("d")); !res.Already || !res.Published || res.Generation != 1 || res.Samples != 20 || res.Shards == 0 {
		t.Fatalf("%+v", res)
	}
	again := mustCommit(t, st, writer.CommitOptions{Parts: 3, Name: "d"})
	if first.Already || !again.Already || again.Digest != first.Digest || again.Tables != first.Tables {
		t.Fatalf("%+v and %+v", first, again)
	}
	sameObjects(t, "committed again", objects(t, st), before)
	// The manifests of parts are not needed any more.
	if _, err := writer.Prune(t.Context(), st, writer.PruneOptions{Keep: 1, Grace: -1}); err != nil {
		t.Fatal(err)
	}
	for name := range objects(t, st) {
		if strings.HasPrefix(name, "part-") {
			t.Errorf("%s stays", name)
		}
	}
	checkSet(t, mustLoad(t, st), nil, partsSource())
	if again := mustCommit(t, st, writer.CommitOptions{Parts: 3}); !again.Already || again.Digest != first.Digest {
		t.Fatalf("%+v", again)
	}
	if _, err := writer.PackPart(t.Context(), st, &synth{items: makeItems(9, 9, 9)}, 1, 3, small("d")); !errors.Is(err, writer.ErrExists) {
		t.Fatal(err)
	}
	if _, err := writer.Commit(t.Context(), st, writer.CommitOptions{Parts: 4}); !errors.Is(err, writer.ErrMissing) {
		t.Fatal(err)
	}
}

// TestPartsDisagree: parts of other sources, options or numbers of parts are refused, whoever finds
// them.
func TestPartsDisagree(t *testing.T) {
	other := func() *synth { return &synth{items: makeItems(60, 12<<10, 4), tag: "q"} }
	level := small("d")
	level.Level = codec.LevelBest
	for what, c := range map[string]struct {
		src  func() *synth
		opt  writer.Options
		want string
	}{"source": {other, small("d"), "fingerprint of the sources"}, "options": {partsSource, level, "options"}} {
		// The same part again.
		st := partsOf(t, partsSource, small("d"), 3, 1)
		before := objects(t, st)
		if _, err := writer.PackPart(t.Context(), st, c.src(), 1, 3, c.opt); !errors.Is(err, writer.ErrSource) {
			t.Fatalf("%s: %v", what, err)
		}
		sameObjects(t, what, objects(t, st), before)
		// Another part: nobody knows before they are put together.
		mustPart(t, st, c.src(), 0, 3, c.opt)
		mustPart(t, st, partsSource(), 2, 3, small("d"))
		before = objects(t, st)
		_, err := writer.Commit(t.Context(), st, writer.CommitOptions{Parts: 3})
		if !errors.Is(err, writer.ErrSource) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "remove part-d-0000-of-0003.bin and the shards d-p0000-*") {
			t.Fatalf("%s: %v", what, err)
		}
		if _, err := writer.Missing(t.Context(), st, "", 3); !errors.Is(err, writer.ErrSource) {
			t.Fatalf("%s: %v", what, err)
		}
		sameObjects(t, what, objects(t, st), before)
		// A shard that a killed run of another kind left.
		st = mem.New()
		left := c.src()
		left.items[39].open = errRead
		if _, err := writer.PackPart(t.Context(), st, left, 1, 3, c.opt); !errors.Is(err, errRead) {
			t.Fatal(err)
		}
		if _, err := writer.PackPart(t.Context(), st, partsSource(), 1, 3, small("d")); !errors.Is(err, writer.ErrSource) {
			t.Fatalf("%s: %v", what, err)
		}
	}
	st := partsOf(t, partsSource, small("d"), 3, 0)
	if _, err := writer.PackPart(t.Context(), st, partsSource(), 0, 4, small("d")); !errors.Is(err, writer.ErrSource) {
		t.Fatal(err)
	}
	for _, c := range [][2]int{{-1, 3}, {3, 3}, {0, 0}, {0, writer.MaxParts + 1}} {
		if _, err := writer.PackPart(t.Context(), mem.New(), partsSource(), c[0], c[1], small("d")); err == nil {
			t.Fatalf("part %d of %d", c[0], c[1])
		}
	}
	// Two packs into one place: commit needs the name of one.
	mustPart(t, st, partsSource(), 1, 3, small("e"))
	if _, err := writer.Commit(t.Context(), st, writer.CommitOptions{Parts: 3}); !errors.Is(err, writer.ErrSource) {
		t.Fatal(err)
	}
	if r, err := writer.Missing(t.Context(), st, "e", 3); err != nil || !slices.Equal(r.Missing, []int{0, 2}) {
		t.Fatal(r, err)
	}
}

// TestPartsMissing: nothing is published before all parts are there, and whole.
func TestPartsMissing(t *testing.T) {
	if r := missing(t, mem.New(), 3); !slices.Equal(r.Missing, []int{0, 1, 2}) || r.Name != "" {
		t.Fatalf("%+v", r)
	}
	st := partsOf(t, partsSource, small("d"), 9, 0, 1, 3, 4, 5, 6, 8)
	before := objects(t, st)
	_, err := writer.Commit(t.Context(), st, writer.CommitOptions{Parts: 9})
	if !errors.Is(err, writer.ErrMissing) || !strings.Contains(err.Error(), "2 of 9: 2,7") {
		t.Fatal(err)
	}
	sameObjects(t, "not committed", objects(t, st), before)
	mustPart(t, st, partsSource(), 2, 9, small("d"))
	mustPart(t, st, partsSource(), 7, 9, small("d"))
	// What goes afterwards is missed, too: shards, keys tables; packing the part again puts it
	// back.
	whole := objects(t, st)
	for name := range whole {
		part, ok := strings.CutPrefix(name, "d-p000")
		if !ok && !strings.HasPrefix(name, "keys-") {
			continue
		}
		broken := st.Clone()
		if err := broken.Delete(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		r := missing(t, broken, 9)
		if len(r.Missing) != 1 || (ok && fmt.Sprint(r.Missing[0]) != part[:1]) || !strings.Contains(r.Damaged[r.Missing[0]], name) {
			t.Fatalf("%s: %+v", name, r)
		}
		if _, err := writer.Commit(t.Context(), broken, writer.CommitOptions{Parts: 9}); !errors.Is(err, writer.ErrMissing) || !strings.Contains(err.Error(), name) {
			t.Fatalf("%s: %v", name, err)
		}
		if res := mustPart(t, broken, partsSource(), r.Missing[0], 9, small("d")); res.Already {
			t.Fatalf("%s: %+v", name, res)
		}
		sameObjects(t, name, objects(t, broken), whole)
	}
	mustCommit(t, st, writer.CommitOptions{Parts: 9})
	checkSet(t, mustLoad(t, st), nil, partsSource())
}

// TestPartDamaged: a part's manifest that was cut or changed is named.
func TestPartDamaged(t *testing.T) {
	const object = "part-d-0001-of-0002.bin"
	whole := partsOf(t, partsSource, small("d"), 2, 0, 1)
	data := objects(t, whole)[object]
	for what, edit := range map[string]func([]byte) []byte{
		"cut":     func(b []byte) []byte { return b[:len(b)-1] },
		"empty":   func([]byte) []byte { return nil },
		"flipped": func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
		"another": func([]byte) []byte { return objects(t, whole)["part-d-0000-of-0002.bin"] },
	} {
		st := whole.Clone()
		if _, err := objstore.Put(t.Context(), st, object, edit(slices.Clone(data)), objstore.Condition{}); err != nil {
			t.Fatal(err)
		}
		_, err := writer.Commit(t.Context(), st, writer.CommitOptions{Parts: 2})
		if !strings.Contains(fmt.Sprint(err), object) || !(errors.Is(err, format.ErrCorrupt) || errors.Is(err, writer.ErrSource)) {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := writer.PackPart(t.Context(), st, partsSource(), 1, 2, small("d")); !strings.Contains(fmt.Sprint(err), object) {
			t.Errorf("%s: %v", what, err)
		}
	}
	st := whole.Clone() // a keys table is read at the commit alone
	for name, data := range objects(t, st) {
		if strings.HasPrefix(name, "keys-") {
			data = slices.Clone(data)
			data[len(data)/2] ^= 1
			if _, err := objstore.Put(t.Context(), st, name, data, objstore.Condition{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := writer.Commit(t.Context(), st, writer.CommitOptions{Parts: 2}); !errors.Is(err, format.ErrCorrupt) || !strings.Contains(err.Error(), "keys-") {
		t.Error(err)
	}
	if digestOf(t, st) != "" {
		t.Error("published")
	}
}

// TestPartsDuplicates finds a key that occurs again in another part.
func TestPartsDuplicates(t *testing.T) {
	src := func() *synth {
		s := partsSource()
		s.items[50].key = s.items[3].key
		return s
	}
	st := partsOf(t, src, small("d"), 4, 0, 1, 2, 3)
	_, err := writer.Commit(t.Context(), st, writer.CommitOptions{Parts: 4})
	if !errors.Is(err, format.ErrDuplicate) || !strings.Contains(err.Error(), "d-p0000-") || !strings.Contains(err.Error(), "d-p0003-") {
		t.Fatal(err)
	}
	if digestOf(t, st) != "" {
		t.Fatal("published")
	}
	mustCommit(t, st, writer.CommitOptions{Parts: 4, KeepDuplicates: true})
	checkSet(t, mustLoad(t, st), nil, src())
}

// TestPartsSkipped adds up what parts left out.
func TestPartsSkipped(t *testing.T) {
	src := func() *synth {
		s := partsSource()
		s.items[7].open, s.items[33].next, s.items[59].next = errRead, errRead, errRead
		return s
	}
	opt := small("d")
	opt.Faults.Skip = true
	st := mem.New()
	for part, want := range []int64{1, 0, 1, 1} {
		if res := mustPart(t, st, src(), part, 4, opt); res.Skipped != want {
			t.Fatalf("part %d: %+v", part, res)
		}
		if res := mustPart(t, st, src(), part, 4, opt); res.Skipped != want || !res.Already {
			t.Fatalf("part %d again: %+v", part, res)
		}
	}
	if res := mustCommit(t, st, writer.CommitOptions{Parts: 4}); res.Skipped != 3 || res.Samples != 57 || res.Written != 57 {
		t.Fatalf("%+v", res)
	}
	if got := mustLoad(t, st).Manifest.Meta["skipped"]; got != "3" {
		t.Fatal(got)
	}
	checkSet(t, mustLoad(t, st), func(it *item) bool { return it.open == nil && it.next == nil }, src())
	// The list is that of one pack.
	one := mem.New()
	list := func(st *mem.Store) string {
		name := mustLoad(t, st).Manifest.Meta["skipped_list"]
		return name + "\n" + string(objects(t, st)[name])
	}
	if mustPack(t, one, src(), opt); list(st) != list(one) || strings.Count(list(st), "reason") != 3 {
		t.Fatalf("%q, of one pack %q", list(st), list(one))
	}
	opt.Faults.MaxSkippedShare = 0.001
	if _, err := writer.PackPart(t.Context(), mem.New(), src(), 0, 4, opt); !errors.Is(err, writer.ErrSkipped) {
		t.Fatal(err)
	}
	empty := partsOf(t, func() *synth { return &synth{} }, small("d"), 2, 0, 1)
	if _, err := writer.Commit(t.Context(), empty, writer.CommitOptions{Parts: 2}); !errors.Is(err, writer.ErrEmpty) {
		t.Fatal(err)
	}
}

// TestPartsFollow appends and overwrites in parts.
func TestPartsFollow(t *testing.T) {
	for _, mode := range []writer.Mode{writer.ModeOverwrite, writer.ModeAppend} {
		base := &synth{items: makeItems(20, 12<<10, 1), tag: "base"}
		st := mem.New()
		mustPack(t, st, base, small("d"))
		src := func() *synth {
			s := partsSource()
			for i := range s.items {
				s.items[i].key = "new/" + s.items[i].key
			}
			return s
		}
		opt := small("d")
		opt.Mode = mode
		if r := missing(t, st, 3); !slices.Equal(r.Missing, []int{0, 1, 2}) || r.Generation != 2 {
			t.Fatalf("%+v", r)
		}
		for part := range 3 {
			mustPart(t, st, src(), part, 3, opt)
		}
		late := st.Clone()
		if r := missing(t, st, 3); len(r.Missing) != 0 || r.Published || r.Generation != 2 {
			t.Fatalf("%+v", r)
		}
		res := mustCommit(t, st, writer.CommitOptions{Parts: 3})
		want, n := []*synth{src()}, uint64(60)
		if mode == writer.ModeAppend {
			want, n = []*synth{base, src()}, 80
		}
		set := mustLoad(t, st)
		checkSet(t, set, nil, want...)
		if res.Generation != 2 || res.Samples != n || res.Written != 60 || set.Manifest.Meta["mode"] != mode.String() {
			t.Fatalf("%+v %v", res, set.Manifest.Meta)
		}
		for _, name := range []string{"d-v0002-p0000-000000.tar.zst", "part-d-v0002-0002-of-0003.bin"} {
			if _, err := st.Stat(t.Context(), name); err != nil {
				t.Fatal(err)
			}
		}
		if again := mustCommit(t, st, writer.CommitOptions{Parts: 3}); !again.Already || again.Digest != res.Digest {
			t.Fatalf("%+v", again)
		}
		// The next generation in parts is another one.
		more := func() *synth { return &synth{items: makeItems(9, 9<<10, 77), tag: "more"} }
		opt.Mode = writer.ModeOverwrite
		mustPart(t, st, more(), 1, 3, opt)
		if r := missing(t, st, 3); !slices.Equal(r.Missing, []int{0, 2}) || r.Generation != 3 {
			t.Fatalf("%+v", r)
		}
		// Somebody published in between: these parts follow nothing any more.
		over := small("d")
		over.Mode = writer.ModeOverwrite
		mustPack(t, late, more(), over)
		digest := digestOf(t, late)
		_, err := writer.Commit(t.Context(), late, writer.CommitOptions{Parts: 3})
		if !errors.Is(err, writer.ErrMissing) || !strings.Contains(err.Error(), "another pack has published since") || digestOf(t, late) != digest {
			t.Fatal(err)
		}
	}
	// Keys that the generation before has, are found at the commit.
	st := mem.New()
	mustPack(t, st, &synth{items: makeItems(5, 9, 1), tag: "b"}, small("d"))
	opt := small("d")
	opt.Mode = writer.ModeAppend
	mustPart(t, st, partsSource(), 0, 2, opt)
	mustPart(t, st, partsSource(), 1, 2, opt)
	if _, err := writer.Commit(t.Context(), st, writer.CommitOptions{Parts: 2}); !errors.Is(err, format.ErrDuplicate) {
		t.Fatal(err)
	}
}

// TestSamePartTwice lets two run one part at once: both put the same bytes, and both end well.
func TestSamePartTwice(t *testing.T) {
	for round := range 6 {
		opt := small("d")
		opt.Plain = round%2 == 1
		want := objects(t, partsOf(t, partsSource, opt, 2, 1))
		st := mem.New()
		var ready, wg sync.WaitGroup
		ready.Add(2)
		for i := range 2 {
			wg.Go(func() {
				src, mine := partsSource(), opt
				var once sync.Once
				src.begin = func(context.Context, int) error { once.Do(func() { ready.Done(); ready.Wait() }); return nil }
				mine.Workers = 1 + i + round/2
				if _, err := writer.PackPart(context.Background(), st, src, 1, 2, mine); err != nil {
					t.Errorf("round %d: %v", round, err)
				}
				once.Do(ready.Done)
			})
		}
		wg.Wait()
		sameObjects(t, fmt.Sprint("round ", round), objects(t, st), want)
	}
}

// TestCommitTwice lets many commit at once: the same generation for all.
func TestCommitTwice(t *testing.T) {
	st := partsOf(t, partsSource, small("d"), 4, 0, 1, 2, 3)
	clean := st.Clone()
	want := mustCommit(t, clean, writer.CommitOptions{Parts: 4})
	for range 10 {
		st := st.Clone()
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				res, err := writer.Commit(context.Background(), st, writer.CommitOptions{Parts: 4})
				if err != nil || res.Tables != want.Tables {
					t.Errorf("%+v: %v", res, err)
				}
			})
		}
		wg.Wait()
		sameObjects(t, "committed", objects(t, st), objects(t, clean))
	}
}

// TestPartNames: what Commit publishes names shards in the order of parts.
func TestPartNames(t *testing.T) {
	st := partsOf(t, partsSource, small("d"), 12, 11, 0, 5, 4, 3, 2, 1, 10, 9, 8, 7, 6)
	mustCommit(t, st, writer.CommitOptions{Parts: 12})
	var names []string
	for _, s := range mustLoad(t, st).Manifest.Shards {
		names = append(names, s.Name)
	}
	if !slices.IsSorted(names) || names[0] != "d-p0000-000000.tar.zst" || !strings.HasPrefix(names[len(names)-1], "d-p0011-") {
		t.Fatal(names)
	}
	if !slices.Contains(slices.Collect(maps.Keys(objects(t, st))), "part-d-0011-of-0012.bin") {
		t.Fatal("the manifest of a part has another name")
	}
}
