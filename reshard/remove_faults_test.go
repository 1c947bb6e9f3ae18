package reshard_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/local"
	"github.com/shardtool/shardtool/objstore/storetest"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/check"
	"github.com/shardtool/shardtool/reshard"
	"github.com/shardtool/shardtool/writer"
)

// published describes the current generation: its keys in storage order, and how many of its
// removed samples are purged. Every generation in the store must be whole, and deliver no removed
// sample.
func published(t testing.TB, store objstore.Store) string {
	t.Helper()
	ctx := context.Background()
	for info, err := range store.List(ctx, "manifest-") {
		if err != nil {
			t.Fatal(err)
		}
		generation := strings.TrimSuffix(strings.TrimPrefix(info.Name, "manifest-"), ".bin")
		d, err := reader.Open(ctx, store, reader.Options{Generation: generation})
		if err != nil {
			t.Fatal(err)
		}
		d.Close()
	}
	report, err := check.Verify(ctx, store, check.Options{Deep: true})
	if err != nil || !report.OK() {
		t.Fatalf("%+v, %v", report, err)
	}
	d, err := reader.Open(ctx, store, reader.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	var keys []string
	for s, err := range d.Samples(ctx, reader.Range{}) {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, string(s.Key))
	}
	return fmt.Sprintf("%d of %d samples, %d purged: %s", len(keys), d.NumSamples(), len(d.Info().Purged), strings.Join(keys, " "))
}

// TestEveryFault lets each operation of the store fail in each way, during each command. The
// published data set is then the one before or the one after the command, and repeating the command
// gives the one after.
func TestEveryFault(t *testing.T) {
	if testing.Short() {
		t.Skip("it looks at what is stored after each operation: make test runs it without the race detector")
	}
	plain := small
	plain.Plain = true
	before := packed(t, some(0, 40, 300), small)
	removed := packed(t, some(0, 40, 300), plain)
	run(t, removed, reshard.RemoveOptions{}, 3, 4, 39)
	purged := before.Clone()
	run(t, purged, reshard.RemoveOptions{}, 3, 20)
	purge(t, purged, writer.PurgeOptions{})
	commands := map[string]struct {
		before *mem.Store
		run    func(store objstore.Store) error
		// nowhere are samples of which nothing is left in the store.
		nowhere []int
	}{
		"remove": {before, func(store objstore.Store) error {
			_, err := reshard.RemoveKeys(context.Background(), store, keysOf([]int{0, 7, 8}), reshard.RemoveOptions{})
			return err
		}, nil},
		"purge": {removed, func(store objstore.Store) error {
			_, err := writer.Purge(context.Background(), store, writer.PurgeOptions{})
			return err
		}, nil},
		"purge of generations": {purged, func(store objstore.Store) error {
			_, err := writer.Purge(context.Background(), store, writer.PurgeOptions{Generations: true})
			return err
		}, []int{3, 20}},
	}
	kinds := map[string]storetest.Fault{
		"before": {}, "after": {After: true}, "short": {Short: true}, "kill": {Kill: true}, "killAfter": {Kill: true, After: true},
	}
	faults := 0
	for name, c := range commands {
		old, clean := published(t, c.before), c.before.Clone()
		if err := c.run(clean); err != nil {
			t.Fatal(err)
		}
		done, want := published(t, clean), objects(t, clean)
		for kind, fault := range kinds {
			t.Run(name+"/"+kind, func(t *testing.T) {
				var inner *mem.Store
				faults += storetest.EachFault(t, func(*testing.T) objstore.Store { inner = c.before.Clone(); return inner }, fault, func(t *testing.T, f *storetest.Faulty) {
					err := c.run(f)
					now := published(t, inner)
					switch {
					case now != old && now != done:
						t.Fatalf("neither old nor new: %s", now)
					case err == nil && now != done:
						t.Fatal("success, and nothing was published")
					case err != nil && !f.Fired():
						t.Fatal(err)
					case err != nil && !errors.Is(err, storetest.ErrInjected):
						t.Fatalf("the cause is lost: %v", err)
					}
					if err := c.run(inner); err != nil {
						t.Fatalf("once more: %v", err)
					}
					if now := published(t, inner); now != done {
						t.Fatalf("once more leads to %s", now)
					}
					if c.nowhere != nil {
						nowhere(t, inner, c.nowhere)
					} else if got := objects(t, inner); len(got) != len(want) {
						t.Fatalf("%d objects, want %d", len(got), len(want))
					}
				})
			})
		}
	}
	t.Logf("%d faults", faults)
	if faults < 200 {
		t.Errorf("only %d faults", faults)
	}
}

// racer is a command that runs beside others.
type racer struct {
	name string
	// run returns nil where it published, or had nothing to do. done is then called with what is
	// published at the end.
	run  func(ctx context.Context, store objstore.Store) error
	done func(t *testing.T, d *reader.Dataset)
}

// removes takes samples out, while others publish.
func removes(numbers ...int) racer {
	return racer{fmt.Sprintf("remove %v", numbers), func(ctx context.Context, store objstore.Store) error {
		_, err := reshard.RemoveKeys(ctx, store, keysOf(numbers), reshard.RemoveOptions{AllowMissing: true})
		return err
	}, func(t *testing.T, d *reader.Dataset) {
		for _, n := range numbers {
			if !d.Removed(uint64(n)) {
				t.Errorf("sample %d was removed, and is back", n)
			}
		}
	}}
}

// appends packs more samples, and again where another program was first.
func appends(first, n int) racer {
	return racer{fmt.Sprintf("append from %d", first), func(ctx context.Context, store objstore.Store) (err error) {
		for range 20 {
			o := small
			o.Mode, o.Name = writer.ModeAppend, fmt.Sprintf("more%d", first)
			if err = appendOnce(ctx, store, o, some(first, n, 200)); err == nil || !errors.Is(err, writer.ErrLost) {
				return err
			}
		}
		return err
	}, func(t *testing.T, d *reader.Dataset) {
		if _, err := d.Lookup(t.Context(), key(first)); err != nil {
			t.Error(err)
		}
	}}
}

func appendOnce(ctx context.Context, store objstore.Store, o writer.Options, samples []writer.Sample) error {
	w, err := writer.New(ctx, store, o)
	if err != nil {
		return err
	}
	defer w.Abort()
	for _, s := range samples {
		if err := w.Write(ctx, s); err != nil {
			return err
		}
	}
	_, err = w.Close(ctx)
	return err
}

func purges(generations bool) racer {
	return racer{fmt.Sprintf("purge, generations %v", generations), func(ctx context.Context, store objstore.Store) error {
		_, err := writer.Purge(ctx, store, writer.PurgeOptions{Generations: generations})
		return err
	}, func(*testing.T, *reader.Dataset) {}}
}

func prunes(grace bool) racer {
	return racer{"prune", func(ctx context.Context, store objstore.Store) error {
		o := writer.PruneOptions{Keep: 2}
		if !grace {
			o.Grace = -1 // where locks exclude packs
		}
		_, err := writer.Prune(ctx, store, o)
		return err
	}, func(*testing.T, *reader.Dataset) {}}
}

// TestRaces runs several commands at once over one store. Whatever the order in which they publish,
// the data set is whole at the end, and has what every command reported as done.
func TestRaces(t *testing.T) {
	base := packed(t, some(0, 40, 300), small)
	for kind, rounds := range map[string]int{"mem": 60, "local": 12} {
		t.Run(kind, func(t *testing.T) {
			for round := range rounds {
				var store objstore.Store = base.Clone()
				if kind == "local" {
					dir, err := local.New(t.TempDir(), local.Options{})
					if err != nil {
						t.Fatal(err)
					}
					for name, data := range objects(t, store) {
						if _, err := objstore.Put(t.Context(), dir, name, data, objstore.Condition{}); err != nil {
							t.Fatal(err)
						}
					}
					store = dir
				}
				race(t, store, rand.New(rand.NewPCG(uint64(round), 7)), kind == "mem")
				if t.Failed() {
					t.Fatalf("round %d", round)
				}
			}
		})
	}
}

func race(t *testing.T, store objstore.Store, random *rand.Rand, grace bool) {
	racers := []racer{removes(3, 4), removes(20, 21), removes(4, 39), purges(false), purges(true), appends(40, 8), prunes(grace)}
	random.Shuffle(len(racers), func(i, j int) { racers[i], racers[j] = racers[j], racers[i] })
	racers = racers[:3+random.IntN(len(racers)-2)]
	errs := make([]error, len(racers))
	var wg sync.WaitGroup
	for i := range racers {
		wg.Go(func() { errs[i] = racers[i].run(context.Background(), store) })
	}
	wg.Wait()
	published(t, store)
	d := open(t, store, reader.Options{})
	for i, r := range racers {
		switch {
		case errs[i] == nil:
			r.done(t, d)
		case !errors.Is(errs[i], writer.ErrLost) && !errors.Is(errs[i], objstore.ErrBusy) && !errors.Is(errs[i], objstore.ErrChanged):
			t.Errorf("%s: %v", r.name, errs[i])
		}
	}
}

// TestLost: numbers that belong to another generation are refused, and so are those that no sample
// has.
func TestLost(t *testing.T) {
	store := packed(t, some(0, 20, 100), small)
	first := open(t, store, reader.Options{}).Info().Tables
	run(t, store, reshard.RemoveOptions{}, 3)
	was := published(t, store)
	if _, err := writer.Remove(t.Context(), store, first, []uint64{4}); !errors.Is(err, writer.ErrLost) {
		t.Error(err)
	}
	if _, err := writer.Remove(t.Context(), store, "", []uint64{20}); err == nil {
		t.Error("sample 20 of 20 was removed")
	}
	if now := published(t, store); now != was {
		t.Errorf("%s, was %s", now, was)
	}
	res, err := writer.Remove(t.Context(), store, "", []uint64{3})
	if err != nil || !res.Already || res.Generation != 2 {
		t.Errorf("%+v, %v", res, err)
	}
	purge(t, store, writer.PurgeOptions{})
	if _, err := writer.Restore(t.Context(), store, "", []uint64{3}); !errors.Is(err, writer.ErrPurged) {
		t.Error(err)
	}
}

// TestAppendKeeps: a generation that is appended keeps what was removed, and a removed key is free.
func TestAppendKeeps(t *testing.T) {
	store := packed(t, some(0, 20, 100), small)
	run(t, store, reshard.RemoveOptions{}, 3, 19)
	o := small
	o.Mode = writer.ModeAppend
	pack(t, store, slices.Concat(some(3, 1, 100), some(20, 5, 100)), o)
	d := open(t, store, reader.Options{})
	if n, err := d.Lookup(t.Context(), key(3)); err != nil || !slices.Equal(n, []uint64{20}) {
		t.Error(n, err)
	}
	if _, err := d.Lookup(t.Context(), key(19)); !errors.Is(err, reader.ErrRemoved) {
		t.Error(err)
	}
	if len(d.Info().Removed) != 2 || d.NumSamples() != 26 {
		t.Errorf("%d of %d", len(d.Info().Removed), d.NumSamples())
	}
	again := small
	again.Mode = writer.ModeAppend
	if err := appendOnce(t.Context(), store, again, some(4, 1, 100)); !errors.Is(err, format.ErrDuplicate) {
		t.Errorf("a key that is there: %v", err)
	}
	verified(t, store)
}

// TestAppendMeanwhile: samples are removed and purged while a pack appends more. The pack publishes
// after that, and loses nothing.
func TestAppendMeanwhile(t *testing.T) {
	store := packed(t, some(0, 40, 300), small)
	first := open(t, store, reader.Options{})
	o := small
	o.Mode = writer.ModeAppend
	w, err := writer.New(t.Context(), store, o)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	for i, s := range some(40, 20, 300) {
		if err := w.Write(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		if i == 10 {
			run(t, store, reshard.RemoveOptions{}, 3, 20)
			purge(t, store, writer.PurgeOptions{Generations: true})
			run(t, store, reshard.RemoveOptions{}, 4)
		}
	}
	res, err := w.Close(t.Context())
	if err != nil || res.Generation != 5 || res.Samples != 60 || res.Written != 20 {
		t.Fatalf("%+v, %v", res, err)
	}
	d := open(t, store, reader.Options{})
	if len(d.Info().Removed) != 3 || len(d.Info().Purged) != 2 || d.NumSamples() != first.NumSamples()+20 {
		t.Errorf("%d of %d, %d purged", len(d.Info().Removed), d.NumSamples(), len(d.Info().Purged))
	}
	everyPath(t, "", d, []int{3, 4, 20})
	verified(t, store)
	// Where other samples were packed meanwhile, the pack is lost, as ever.
	late, err := writer.New(t.Context(), store, o)
	if err != nil {
		t.Fatal(err)
	}
	defer late.Abort()
	if err := late.Write(t.Context(), some(100, 1, 10)[0]); err != nil {
		t.Fatal(err)
	}
	o.Name = "other"
	pack(t, store, some(70, 5, 300), o)
	if _, err := late.Close(t.Context()); !errors.Is(err, writer.ErrLost) {
		t.Error(err)
	}
}
