package writer_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/storetest"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/writer"
)

// TestEveryFaultOfParts lets each operation of the store fail in each way while two parts are
// packed and committed. Nothing is published but the whole, and doing it all again leads to the
// bytes of an undisturbed run.
func TestEveryFaultOfParts(t *testing.T) {
	src := func() *synth { return &synth{items: makeItems(8, 12<<10, 2), tag: "f", attrs: true} }
	for _, mode := range []writer.Mode{writer.ModeCreate, writer.ModeAppend} {
		before := mem.New()
		if mode == writer.ModeAppend {
			base := &synth{items: makeItems(4, 12<<10, 1), tag: "base", attrs: true}
			for i := range base.items {
				base.items[i].key = "base/" + base.items[i].key
			}
			opt := small("d")
			opt.Plain = true
			mustPack(t, before, base, opt)
		}
		old := digestOf(t, before)
		opt := small("d")
		opt.ShardSize, opt.Plain, opt.Workers, opt.Mode = 32<<10, true, 1, mode
		all := func(st objstore.Store) (*writer.Result, error) {
			for part := range 2 {
				if _, err := writer.PackPart(context.Background(), st, src(), part, 2, opt); err != nil {
					return nil, err
				}
			}
			return writer.Commit(context.Background(), st, writer.CommitOptions{Parts: 2})
		}
		clean := before.Clone()
		res, err := all(clean)
		if err != nil {
			t.Fatal(err)
		}
		want := objects(t, clean)
		for kind, fault := range faultKinds {
			if mode == writer.ModeAppend && kind != "kill" && kind != "after" {
				continue // the rest is not another path than with the other
			}
			t.Run(fmt.Sprint(mode, "/", kind), func(t *testing.T) {
				var inner *mem.Store
				ops := eachFault(t, fault, func() objstore.Store { inner = before.Clone(); return inner }, func(f *storetest.Faulty) {
					_, err := all(f)
					now := digestOf(t, inner)
					switch {
					case now != old && now != res.Digest.String():
						t.Fatalf("published is %s, neither old nor new", now)
					case err == nil && now != res.Digest.String():
						t.Fatal("success without a data set")
					case err != nil && !f.Fired():
						t.Fatal(err)
					case err != nil && !errors.Is(err, storetest.ErrInjected) && !errors.Is(err, writer.ErrMissing):
						t.Fatalf("the cause is lost: %v", err)
					}
					if _, err := all(inner); err != nil {
						t.Fatalf("again: %v", err)
					}
					sameObjects(t, "again", objects(t, inner), want)
				})
				if ops < 40 {
					t.Fatalf("only %d operations", ops)
				}
			})
		}
	}
}

// TestPartKilled kills the process of a part at random moments. Repeating the command gives the
// bytes of a part that was not killed; complete shards are not read again.
func TestPartKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("it kills processes and looks at what is stored: make test runs it without the race detector")
	}
	for _, plain := range []bool{false, true} {
		t.Run(fmt.Sprint("plain=", plain), func(t *testing.T) {
			t.Parallel()
			job := childJob{Dir: t.TempDir(), Tag: "new", Items: 240, Pause: time.Millisecond, Part: 1, Parts: 3, Plain: plain}
			begin := time.Now()
			if r := job.run(t); r.Error != "" || r.Part.Samples != 80 {
				t.Fatalf("%+v", r)
			}
			took := time.Since(begin)
			want := objects(t, localStore(t, job.Dir))
			rng := rand.New(rand.NewPCG(3, 1))
			adopted := int64(0)
			for round := 0; round < 8 || adopted == 0 && round < 100; round++ {
				job.Dir = t.TempDir()
				killAfter(t, &job, time.Duration(rng.Int64N(int64(took))))
				st := localStore(t, job.Dir)
				if _, err := writer.Commit(t.Context(), st, writer.CommitOptions{Parts: 3}); !errors.Is(err, writer.ErrMissing) {
					t.Fatal(err)
				}
				again := job
				again.Pause = 0
				r := again.run(t)
				if r.Error != "" || (!r.Part.Already && r.Part.Adopted+r.Part.Written != 80) {
					t.Fatalf("%+v", r)
				}
				if r.Part.Already && r.BytesRead > 0 {
					t.Errorf("%d bytes read for nothing", r.BytesRead)
				}
				adopted += r.Part.Adopted
				if _, err := objstore.TraitsOf(st).Sweep(t.Context(), 0); err != nil {
					t.Fatal(err)
				}
				sameObjects(t, "packed again", objects(t, st), want)
			}
			if adopted == 0 {
				t.Error("no killed run left a shard that was adopted")
			}
		})
	}
}

// TestPartsInProcesses packs all parts in processes at once, some of them twice, and commits in
// two.
func TestPartsInProcesses(t *testing.T) {
	dir := t.TempDir()
	const parts = 4
	var wg sync.WaitGroup
	for i := range parts + 2 {
		job := childJob{Dir: dir, Tag: "x", Items: 100, Parts: parts, Part: i % parts, Pause: time.Millisecond}
		wg.Go(func() {
			out, err := job.command(t).Output()
			if err != nil {
				t.Error(err)
			} else if r := parseChild(t, out); r.Error != "" {
				t.Errorf("part %d: %s", job.Part, r.Error)
			}
		})
	}
	wg.Wait()
	job := childJob{Dir: dir, Tag: "x", Items: 100, Parts: parts, Part: -1}
	for range 2 {
		wg.Go(func() {
			out, err := job.command(t).Output()
			if err != nil {
				t.Error(err)
			} else if r := parseChild(t, out); r.Error != "" || r.Result.Samples != 100 {
				t.Errorf("commit: %+v", r)
			}
		})
	}
	wg.Wait()
	checkSet(t, mustLoad(t, localStore(t, dir)), nil, job.source())
}

// TestPruneParts: the objects of a pack in parts are as young as the youngest of them.
func TestPruneParts(t *testing.T) {
	for _, mode := range []writer.Mode{writer.ModeCreate, writer.ModeOverwrite} {
		st := &aged{Store: mem.New(), ages: map[string]time.Duration{}}
		opt := small("d")
		if mode == writer.ModeOverwrite {
			mustPack(t, st, &synth{items: makeItems(5, 99, 1), tag: "b"}, opt)
			opt.Mode = mode
		}
		mustPart(t, st, partsSource(), 0, 3, opt)
		mustPart(t, st, partsSource(), 2, 3, opt)
		stranger := "part-d-00001-of-00003.bin"
		if _, err := objstore.Put(t.Context(), st, stranger, []byte("weights of somebody's model"), objstore.Condition{}); err != nil {
			t.Fatal(err)
		}
		before := objects(t, st)
		young := ""
		for name := range before {
			st.ages[name] = 2 * time.Hour
			if strings.Contains(name, "p0002-000000") {
				young = name
			}
		}
		st.ages[young] = time.Minute
		res, err := writer.Prune(t.Context(), st, writer.PruneOptions{Keep: 1, Grace: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		sameObjects(t, "within grace", objects(t, st), before)
		if len(res.Objects) != 0 || len(res.Left) > 1 {
			t.Fatalf("%+v", res)
		}
		if r, err := writer.Missing(t.Context(), st, "", 3); err != nil || len(r.Missing) != 1 {
			t.Fatalf("%+v %v", r, err)
		}
		st.ages[young] = 61 * time.Minute
		if res, err = writer.Prune(t.Context(), st, writer.PruneOptions{Keep: 1, Grace: time.Hour}); err != nil || len(res.Left) != 1 {
			t.Fatalf("%+v %v", res, err)
		}
		for name := range objects(t, st) {
			if strings.Contains(name, "-p000") || (strings.HasPrefix(name, "part-") && name != stranger) || (mode == writer.ModeCreate && name != stranger) {
				t.Errorf("%s stays", name)
			}
		}
		if _, err := st.Stat(t.Context(), stranger); err != nil {
			t.Error(err)
		}
		if mode == writer.ModeOverwrite {
			mustLoad(t, st)
		} else if _, err := st.Stat(t.Context(), "manifest.json"); !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
	}
}

// aged is a store that reports when objects were put.
type aged struct {
	*mem.Store
	ages map[string]time.Duration
}

func (s *aged) List(ctx context.Context, prefix string) iter.Seq2[objstore.Info, error] {
	return func(yield func(objstore.Info, error) bool) {
		for info, err := range s.Store.List(ctx, prefix) {
			info.ModTime = time.Now().Add(-s.ages[info.Name])
			if !yield(info, err) {
				return
			}
		}
	}
}
