package writer_test

import (
	"context"
	"errors"
	"io/fs"
	"testing"

	"github.com/shardtool/shardtool/internal/testset/readback"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/storetest"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/writer"
)

var faultKinds = map[string]storetest.Fault{
	"before": {}, "after": {After: true}, "short": {Short: true}, "kill": {Kill: true}, "killAfter": {Kill: true, After: true},
}

// faultCase is an operation on a data set, a store before it and what must be there afterwards.
type faultCase struct {
	before *mem.Store
	opt    writer.Options
	src    func() *synth
}

func faultCases(t *testing.T) map[string]faultCase {
	base := func() *synth { return &synth{items: makeItems(5, 12<<10, 1), tag: "base"} }
	more := func() *synth {
		s := &synth{items: makeItems(9, 12<<10, 2), tag: "more", attrs: true}
		for i := range s.items {
			s.items[i].key = "more" + s.items[i].key
		}
		return s
	}
	packed := func(plain bool) *mem.Store {
		st := mem.New()
		opt := small("d")
		opt.Plain = plain
		mustPack(t, st, base(), opt)
		return st
	}
	with := func(mode writer.Mode, plain bool) writer.Options {
		o := small("d")
		o.ShardSize = 32 << 10
		o.Mode, o.Plain, o.Workers = mode, plain, 1
		return o
	}
	return map[string]faultCase{
		// Plain shards for the most part: an encoder's tables take longer to make than a data set
		// of this size.
		"create":     {mem.New(), with(writer.ModeCreate, true), more},
		"createZstd": {mem.New(), with(writer.ModeCreate, false), more},
		"overwrite":  {packed(true), with(writer.ModeOverwrite, true), more},
		"append":     {packed(true), with(writer.ModeAppend, true), more},
	}
}

// digestOf is the digest of what is published, or nothing. Whatever is published must be whole.
func digestOf(t *testing.T, st objstore.Store) (digest string) {
	t.Helper()
	set, err := readback.Load(context.Background(), st)
	if errors.Is(err, fs.ErrNotExist) {
		if _, merr := st.Stat(context.Background(), "manifest.json"); merr == nil {
			t.Fatalf("a manifest names what is not there: %v", err)
		}
		return ""
	}
	if err != nil {
		t.Fatalf("what is published is not whole: %v", err)
	}
	return set.Digest.String()
}

// TestEveryFault lets each operation of the store fail in each way. What is published is then the
// old data set or the new one, and the same pack once more leads to the bytes of an undisturbed
// one.
func TestEveryFault(t *testing.T) {
	for name, c := range faultCases(t) {
		old := digestOf(t, c.before)
		clean := c.before.Clone()
		res := mustPack(t, clean, c.src(), c.opt)
		want := objects(t, clean)
		for kind, fault := range faultKinds {
			if (name == "createZstd" && kind != "kill") || (name == "overwrite" && kind != "after" && kind != "kill") {
				continue // the rest is not another path than with the others
			}
			t.Run(name+"/"+kind, func(t *testing.T) {
				var inner *mem.Store
				ops := eachFault(t, fault, func() objstore.Store { inner = c.before.Clone(); return inner }, func(f *storetest.Faulty) {
					_, err := writer.Pack(t.Context(), f, c.src(), c.opt)
					now := digestOf(t, inner)
					published := now == res.Digest.String()
					switch {
					case now != old && !published:
						t.Fatalf("published is %s, neither old nor new", now)
					case err == nil && !published:
						t.Fatal("success without a data set")
					case err != nil && !f.Fired():
						t.Fatal(err)
					case err != nil && !errors.Is(err, storetest.ErrInjected):
						t.Fatalf("the cause is lost: %v", err)
					case err != nil && published && fault.Kill == false:
						t.Fatalf("published, and an error: %v", err)
					}
					retry(t, inner, c, published, want)
				})
				if ops < 20 {
					t.Fatalf("only %d operations", ops)
				}
			})
		}
	}
}

// retry packs again, without and with Resume, and compares all objects with those of an undisturbed
// run.
func retry(t *testing.T, st *mem.Store, c faultCase, published bool, want map[string][]byte) {
	t.Helper()
	for _, resume := range []bool{false, true} {
		if published && !resume {
			continue // without Resume this is another pack: a further generation, or ErrExists
		}
		again, opt := st.Clone(), c.opt
		opt.Resume = resume
		if _, err := writer.Pack(t.Context(), again, c.src(), opt); err != nil {
			t.Fatalf("again, resume %v, published %v: %v", resume, published, err)
		}
		sameObjects(t, "again", objects(t, again), want)
	}
}

// eachFault is storetest.EachFault without a subtest for each operation, of which there are
// thousands here; with -short every seventh.
func eachFault(t *testing.T, fault storetest.Fault, open func() objstore.Store, test func(f *storetest.Faulty)) int {
	step := 1
	if testing.Short() {
		step = 7
	}
	for fault.At = 0; fault.At < 10_000; fault.At += step {
		f := storetest.NewFaulty(open(), fault)
		func() {
			defer func() {
				if t.Failed() {
					t.Logf("operation %d", fault.At)
				}
			}()
			test(f)
		}()
		if !f.Fired() {
			return f.Ops()
		}
	}
	t.Fatal("faults without end")
	return 0
}

// TestEveryFaultOfPrune: generations that are to stay are whole after each fault, and pruning again
// ends the same.
func TestEveryFaultOfPrune(t *testing.T) {
	before := mem.New()
	for i, mode := range []writer.Mode{writer.ModeCreate, writer.ModeOverwrite, writer.ModeOverwrite} {
		opt := small("d")
		opt.Mode, opt.Plain = mode, i == 1
		mustPack(t, before, &synth{items: makeItems(20, 12<<10, uint64(i)), tag: string(rune('a' + i))}, opt)
	}
	// and the leftovers of a pack that died
	left := &synth{items: makeItems(20, 12<<10, 9), tag: "left"}
	left.items[19].open = errRead
	opt := small("left")
	opt.Mode = writer.ModeOverwrite
	if _, err := writer.Pack(t.Context(), before, left, opt); !errors.Is(err, errRead) {
		t.Fatal(err)
	}
	digest := digestOf(t, before)
	clean := before.Clone()
	if _, err := writer.Prune(t.Context(), clean, writer.PruneOptions{Keep: 2, Grace: -1}); err != nil {
		t.Fatal(err)
	}
	want := objects(t, clean)
	if len(want) >= len(objects(t, before)) {
		t.Fatal("nothing was pruned")
	}
	for kind, fault := range faultKinds {
		t.Run(kind, func(t *testing.T) {
			var inner *mem.Store
			eachFault(t, fault, func() objstore.Store { inner = before.Clone(); return inner }, func(f *storetest.Faulty) {
				_, err := writer.Prune(t.Context(), f, writer.PruneOptions{Keep: 2, Grace: -1})
				if (err != nil) != f.Fired() {
					t.Fatalf("fired %v, error %v", f.Fired(), err)
				}
				if digestOf(t, inner) != digest {
					t.Fatal("another data set is there")
				}
				if _, err := writer.Prune(t.Context(), inner, writer.PruneOptions{Keep: 2, Grace: -1}); err != nil {
					t.Fatal(err)
				}
				sameObjects(t, "pruned again", objects(t, inner), want)
			})
		})
	}
}
