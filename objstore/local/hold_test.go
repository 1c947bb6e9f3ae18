package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shardtool/shardtool/objstore"
)

func mustShare(t *testing.T, store *store, who string) func() {
	t.Helper()
	release, err := store.share(t.Context(), who)
	if err != nil {
		t.Fatal(err)
	}
	return release
}

// TestHoldImpossible checks that a directory that cannot be made is an error, not a wait.
func TestHoldImpossible(t *testing.T) {
	if _, err := os.Stat("/proc/self"); err != nil {
		t.Skip("there is no /proc, where no directory can be made")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := newStore(t, "/proc/nobody/data").share(ctx, "pack"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
}

// TestHold checks that many processes can share the lock, that they and an exclusive holder exclude
// each other, and that a store at rest has no lock file.
func TestHold(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made")
	store, other := newStore(t, dir), newStore(t, dir)
	if _, err := store.exclude(t.Context(), "prune"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	mustShare(t, store, "a pack that fails")()
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal("the directory stays", err)
	}
	first, second := mustShare(t, store, "pack of a"), mustShare(t, other, "pack of b\nx")
	_, err := store.exclude(t.Context(), "prune")
	if !errors.Is(err, objstore.ErrBusy) {
		t.Fatal(err)
	}
	wantText(t, err, "in use: pack of a, process "+fmt.Sprint(os.Getpid())+" on ", "; pack of b x, process", "wait until they have ended")
	for info, err := range store.List(t.Context(), "") {
		t.Fatalf("listed: %+v, %v", info, err)
	}
	if _, err := store.Stat(t.Context(), holdName); !errors.Is(err, objstore.ErrName) {
		t.Fatal(err)
	}
	first()
	first() // once is enough, twice does no harm
	if _, err := store.exclude(t.Context(), "prune"); !errors.Is(err, objstore.ErrBusy) {
		t.Fatal(err)
	}
	second()
	alone, err := store.exclude(t.Context(), "prune")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := other.share(ctx, "pack"); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	if _, err := other.exclude(t.Context(), "prune"); !errors.Is(err, objstore.ErrBusy) || !strings.Contains(err.Error(), "prune, process") {
		t.Fatal(err)
	}
	shared := make(chan func())
	go func() { shared <- mustShare(t, other, "pack") }()
	alone()
	put(t, store, "x", "1", objstore.Condition{})
	(<-shared)()
	if err := store.Delete(t.Context(), "x"); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, lockName)); err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Fatal(entries, err)
	}
}

// TestHoldMany checks that an exclusive holder is alone while others take and release the lock.
func TestHoldMany(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made") // made and removed repeatedly
	var sharing, alone, excluded, sharers atomic.Int64
	sharers.Store(4)
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			store := newStore(t, dir)
			if i%2 == 0 {
				defer sharers.Add(-1)
				for range 100 {
					release := mustShare(t, store, "pack")
					sharing.Add(1)
					if alone.Load() != 0 {
						t.Error("shared and held alone")
					}
					sharing.Add(-1)
					release()
				}
				return
			}
			for sharers.Load() > 0 {
				release, err := store.exclude(t.Context(), "prune")
				if errors.Is(err, objstore.ErrBusy) || errors.Is(err, fs.ErrNotExist) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				if alone.Add(1) != 1 || sharing.Load() != 0 {
					t.Error("held alone, and others hold it")
				}
				excluded.Add(1)
				alone.Add(-1)
				release()
			}
		})
	}
	group.Wait()
	if entries, _ := os.ReadDir(dir); len(entries) > 0 || excluded.Load() == 0 {
		t.Fatal(entries, excluded.Load())
	}
}
