package writer_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/curate/viewfile"
	"github.com/shardtool/shardtool/internal/format/names"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/local"
	"github.com/shardtool/shardtool/objstore/storetest"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/writer"
)

func aView(bits byte) *viewfile.View {
	return &viewfile.View{Digest: format.Hash{7}, Samples: 8, Chosen: []byte{bits}}
}

func TestPutView(t *testing.T) {
	ctx, st := t.Context(), mem.New()
	for range 2 { // the second time it is there
		if err := writer.PutView(ctx, st, aView(3), writer.ViewName{Name: "clean", Samples: 2}); err != nil {
			t.Fatal(err)
		}
	}
	first := names.View(aView(3).ID())
	if got := objectNames(t, st); !slices.Equal(got, []string{first, "views/clean.json"}) {
		t.Fatalf("there is %q", got)
	}
	if err := writer.PutView(ctx, st, aView(5), writer.ViewName{Name: "clean"}); !errors.Is(err, objstore.ErrExists) {
		t.Fatalf("a name that is taken gives %v", err)
	}
	if err := writer.PutView(ctx, st, aView(5), writer.ViewName{Name: "clean", Replace: true}); err != nil {
		t.Fatal(err)
	}
	if err := writer.PutView(ctx, st, aView(9), writer.ViewName{Name: "../x"}); !errors.Is(err, format.ErrName) {
		t.Fatalf("a bad name gives %v", err)
	}
	label, err := viewfile.DecodeLabel(objects(t, st)["views/clean.json"])
	if err != nil || label.View != names.View(aView(5).ID()) || label.Kind != "subset" || label.Of != 8 {
		t.Fatalf("%+v, %v", label, err)
	}
}

// TestPruneViews: views that have a name stay, others go after the grace; a name that cannot be
// read stops the prune.
func TestPruneViews(t *testing.T) {
	ctx := t.Context()
	st, _ := generations(t, 1)
	for bits, name := range map[byte]string{1: "a", 2: "b", 4: ""} {
		if err := writer.PutView(ctx, st, aView(bits), writer.ViewName{Name: name}); err != nil {
			t.Fatal(err)
		}
	}
	replace(t, st, "view-00112233445566ff.bin", []byte("mine"))
	unnamed := names.View(aView(4).ID())
	res, err := writer.Prune(ctx, st, writer.PruneOptions{Keep: 1})
	if err != nil || len(res.Objects) != 0 || !slices.ContainsFunc(res.Young, func(o objstore.Info) bool { return o.Name == unnamed }) {
		t.Fatalf("young: %+v, %v", res, err)
	}
	res, err = writer.Prune(ctx, st, writer.PruneOptions{Keep: 1, Grace: -1})
	if err != nil || len(res.Objects) != 1 || res.Objects[0].Name != unnamed || len(res.Left) != 1 {
		t.Fatalf("%+v, %v", res, err)
	}
	for _, name := range []string{names.View(aView(1).ID()), names.View(aView(2).ID()), "views/a.json", "views/b.json"} {
		if !slices.Contains(objectNames(t, st), name) {
			t.Errorf("%s is gone", name)
		}
	}
	replace(t, st, "views/a.json", []byte("{"))
	if _, err := writer.Prune(ctx, st, writer.PruneOptions{Keep: 1, Grace: -1}); !errors.Is(err, format.ErrCorrupt) {
		t.Errorf("with a damaged name: %v", err)
	}
}

// TestPutViewFails: after each operation that fails, the name is free or leads to the whole view,
// and trying again succeeds.
func TestPutViewFails(t *testing.T) {
	for _, fault := range []storetest.Fault{{}, {After: true}, {Kill: true}} {
		var st *mem.Store
		n := storetest.EachFault(t, func(*testing.T) objstore.Store { st = mem.New(); return st }, fault, func(t *testing.T, faulty *storetest.Faulty) {
			err := writer.PutView(t.Context(), faulty, aView(3), writer.ViewName{Name: "clean"})
			if err != nil && !faulty.Fired() {
				t.Fatal(err)
			}
			if text := objects(t, st)["views/clean.json"]; text != nil {
				label, err := viewfile.DecodeLabel(text)
				if err != nil || objects(t, st)[label.View] == nil {
					t.Fatalf("%v, %q", err, objectNames(t, st))
				}
			}
			if err := writer.PutView(t.Context(), st, aView(3), writer.ViewName{Name: "clean"}); err != nil {
				t.Fatalf("again: %v", err)
			}
		})
		if n < 5 {
			t.Fatalf("only %d operations", n)
		}
	}
}

// TestPutViewRaces: if several views are put under one name at once, exactly one gets it and the
// others fail. A prune meanwhile deletes no view that has a name.
func TestPutViewRaces(t *testing.T) {
	rounds := 200
	if testing.Short() {
		rounds = 60
	}
	for range rounds {
		st, _ := generations(t, 1)
		var wg sync.WaitGroup
		errs := make([]error, 4)
		for i := range errs {
			wg.Go(func() {
				errs[i] = writer.PutView(t.Context(), st, aView(byte(1+i)), writer.ViewName{Name: "x"})
			})
		}
		wg.Go(func() {
			_, err := writer.Prune(t.Context(), st, writer.PruneOptions{Keep: 1, Grace: -1})
			if err != nil && !errors.Is(err, objstore.ErrBusy) {
				t.Error(err)
			}
		})
		wg.Wait()
		won := 0
		for i, err := range errs {
			switch {
			case err == nil:
				won++
				label, err := viewfile.DecodeLabel(objects(t, st)["views/x.json"])
				if err != nil || label.View != names.View(aView(byte(1+i)).ID()) {
					t.Fatalf("view %d has the name, but it leads to %+v, %v", i, label, err)
				}
				if objects(t, st)[label.View] == nil {
					t.Fatalf("the view is gone: %s", strings.Join(objectNames(t, st), " "))
				}
			case !errors.Is(err, objstore.ErrExists):
				t.Fatal(fmt.Errorf("view %d: %w", i, err))
			}
		}
		if won != 1 {
			t.Fatalf("%d views have the name", won)
		}
	}
}

// TestViewsBesidePacks: with a pack and a prune beside it, a view has its name and is whole, or has
// none; the data set is whole; and what failed succeeds alone.
func TestViewsBesidePacks(t *testing.T) {
	for i := range 100 {
		st, err := local.New(t.TempDir(), local.Options{NoSync: true})
		if err != nil {
			t.Fatal(err)
		}
		opt := small("d")
		mustPack(t, st, &synth{items: makeItems(5, 20, 1), tag: "a"}, opt)
		opt.Mode = writer.ModeOverwrite
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := writer.Pack(ctx, st, &synth{items: makeItems(5, 20, 2), tag: "b"}, opt)
			if err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
		wg.Go(func() {
			err := writer.PutView(ctx, st, aView(byte(1+i)), writer.ViewName{Name: "x"})
			if err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
		wg.Go(func() {
			_, err := writer.Prune(ctx, st, writer.PruneOptions{Keep: 1, Grace: -1})
			if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, objstore.ErrBusy) && !errors.Is(err, objstore.ErrChanged) {
				t.Error(err)
			}
		})
		if i%2 == 0 { // a kill
			time.Sleep(time.Duration(i) * 20 * time.Microsecond)
			cancel()
		}
		wg.Wait()
		cancel()
		mustLoad(t, st)
		text, _, err := objstore.ReadAll(t.Context(), st, "views/x.json", viewfile.MaxLabel)
		if err == nil {
			label, err := viewfile.DecodeLabel(text)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := st.Stat(t.Context(), label.View); err != nil {
				t.Fatalf("the name leads to nothing: %v", err)
			}
		} else if !errors.Is(err, fs.ErrNotExist) || i%2 == 1 {
			t.Fatal(err)
		}
		if err := writer.PutView(t.Context(), st, aView(byte(1+i)), writer.ViewName{Name: "x"}); err != nil {
			t.Fatal(err)
		}
	}
}
