package writer_test

import (
	"context"
	"errors"
	"flag"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/local"
	"github.com/shardtool/shardtool/writer"
)

// trials is how often the tests repeat what chance decides: by default as often as a test suite can
// bear.
var trials = flag.Int("trials", 12, "trials of a prune beside a pack, and kills of an index")

// TestPruneBesidePack: while a pack, a part, a commit or an index runs a prune deletes nothing and
// names it.
func TestPruneBesidePack(t *testing.T) {
	opt := small("d")
	for name, run := range map[string]func(st objstore.Store, src *synth) error{
		"pack of d": func(st objstore.Store, src *synth) error {
			_, err := writer.Pack(t.Context(), st, src, opt)
			return err
		},
		"pack of part 1 of 3 of d": func(st objstore.Store, src *synth) error {
			_, err := writer.PackPart(t.Context(), st, src, 1, 3, opt)
			return err
		},
	} {
		dir := t.TempDir()
		src := resumeSource()
		var once sync.Once
		src.begin = func(ctx context.Context, i int) error {
			once.Do(func() {
				_, err := writer.Prune(t.Context(), localStore(t, dir), writer.PruneOptions{Keep: 1, Grace: -1})
				if !errors.Is(err, objstore.ErrBusy) || !strings.Contains(err.Error(), name+", process ") {
					t.Errorf("%s: %v", name, err)
				}
				if _, err := writer.Prune(t.Context(), localStore(t, dir), writer.PruneOptions{Keep: 1, Grace: -1, DryRun: true}); err != nil {
					t.Error(err)
				}
			})
			return nil
		}
		if err := run(localStore(t, dir), src); err != nil {
			t.Fatal(err)
		}
		if _, err := writer.Prune(t.Context(), localStore(t, dir), writer.PruneOptions{Keep: 1, Grace: -1}); err != nil {
			t.Errorf("after %s: %v", name, err)
		}
	}
	// A Writer gives the lock back however it ends.
	st := localStore(t, t.TempDir())
	for _, end := range []func(w *writer.Writer) error{
		func(w *writer.Writer) error { return w.Abort() },
		func(w *writer.Writer) error { _, _ = w.Close(t.Context()); return nil }, // without samples it fails
	} {
		w, err := writer.New(t.Context(), st, opt)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := writer.Prune(t.Context(), st, writer.PruneOptions{Keep: 1}); !errors.Is(err, objstore.ErrBusy) {
			t.Fatal(err)
		}
		if err := end(w); err != nil {
			t.Fatal(err)
		}
		if _, err := writer.Prune(t.Context(), st, writer.PruneOptions{Keep: 1}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPruneRaces lets prunes without grace run all the time beside packs of other processes, some
// of them killed and resumed. A pack that succeeds has published a whole data set.
func TestPruneRaces(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	published, refused, pruned, killed := 0, 0, 0, 0
	count := *trials
	if testing.Short() {
		count = min(count, 8) // every kind twice
	}
	for trial := range count {
		job := childJob{Dir: t.TempDir(), Tag: "new", Items: 30, Pause: time.Duration(rng.IntN(300)) * time.Microsecond}
		job.Plain = trial%2 == 1
		if trial%3 > 0 { // beside a data set
			base := childJob{Dir: job.Dir, Tag: "base", Items: 8}
			if r := base.run(t); r.Error != "" {
				t.Fatal(r.Error)
			}
			job.Mode = writer.ModeOverwrite
		}
		st := localStore(t, job.Dir)
		stop, done := make(chan struct{}), make(chan struct{})
		pauses := rand.New(rand.NewPCG(uint64(trial), 8))
		go func() {
			defer close(done)
			for {
				select {
				case <-stop:
					return
				case <-time.After(time.Duration(pauses.IntN(2000)) * time.Microsecond):
				}
				switch _, err := writer.Prune(t.Context(), st, writer.PruneOptions{Keep: 1, Grace: -1}); {
				case err == nil:
					pruned++
				case errors.Is(err, objstore.ErrBusy):
					refused++
				default:
					t.Errorf("prune: %v", err)
				}
			}
		}()
		if trial%4 == 3 {
			if killAfter(t, &job, time.Duration(5+rng.IntN(40))*time.Millisecond) {
				killed++
			}
			job.Resume = true
		}
		r := job.run(t)
		close(stop)
		<-done
		if r.Error != "" {
			t.Fatalf("trial %d: %s", trial, r.Error)
		}
		published++
		checkSet(t, mustLoad(t, st), nil, job.source())
		if r.Result.Digest.String() != digestOf(t, st) {
			t.Fatalf("trial %d: another data set is published", trial)
		}
	}
	t.Logf("%d packs published, %d prunes ran, %d were refused, %d packs were killed and resumed", published, pruned, refused, killed)
	if refused == 0 || pruned == 0 {
		t.Errorf("%d prunes ran and %d were refused: they did not meet the packs", pruned, refused)
	}
}

// TestPruneRacesParts is the same for parts, each packed by another process, and their commit.
// Between two parts nobody holds the lock; then the default grace keeps what the first put.
func TestPruneRacesParts(t *testing.T) {
	for trial := range (*trials + 3) / 4 {
		job := childJob{Dir: t.TempDir(), Tag: "p", Items: 30, Pause: 100 * time.Microsecond, Parts: 3}
		st, err := local.New(job.Dir, local.Options{NoSync: true})
		if err != nil {
			t.Fatal(err)
		}
		stop, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := writer.Prune(t.Context(), st, writer.PruneOptions{Keep: 1}); err != nil && !errors.Is(err, objstore.ErrBusy) {
					t.Errorf("prune: %v", err)
				}
			}
		}()
		for part := range 4 {
			job.Part = part
			if part == 3 {
				job.Part = -1
			}
			if r := job.run(t); r.Error != "" {
				t.Errorf("trial %d: part %d: %s", trial, job.Part, r.Error)
			}
		}
		close(stop)
		<-done
		job.Parts = 0
		checkSet(t, mustLoad(t, st), nil, job.source())
	}
}
