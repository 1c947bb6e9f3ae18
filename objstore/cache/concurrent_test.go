package cache

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/shardtool/shardtool/objstore"
)

// TestConcurrent reads and forgets in many goroutines through two Caches on one folder that holds a
// fraction of the data, while two data sets go in and out of use: every byte is right, and the
// bound is kept.
func TestConcurrent(t *testing.T) {
	const size, piece, limit = 200_000, 5_000, 150_000
	dir := t.TempDir()
	var sources []*counting
	var contents [][]byte
	for i := range 3 {
		source, data := dataset(t, fmt.Sprintf("far:%d", i), uint64(i), size)
		sources, contents = append(sources, source), append(contents, data)
	}
	caches := []*Cache{newCache(t, dir, limit), newCache(t, dir, limit)}
	var group errgroup.Group
	for worker := range 12 {
		random := rand.New(rand.NewPCG(7, uint64(worker)))
		group.Go(func() error {
			for range 6 {
				which := random.IntN(3)
				store := caches[worker%2].Wrap(sources[which])
				if err := readRandomly(t.Context(), store, random, contents[which], piece); err != nil {
					return err
				}
			}
			return nil
		})
	}
	done := make(chan error)
	go func() { done <- group.Wait() }()
	third := newCache(t, dir, limit)
	for running := true; running; {
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
			running = false
		case <-time.After(5 * time.Millisecond):
		}
		third.mu.Lock()
		if fits, err := third.account(0); !fits || err != nil {
			t.Errorf("%d bytes in use, limit %d, %v", third.Stats().Used, limit, err)
		}
		third.mu.Unlock()
	}
	if used, disk := third.Stats().Used, onDisk(t, dir); used != disk {
		t.Errorf("%d bytes counted, %d there", used, disk)
	}
	kept := int64(0)
	for _, c := range caches {
		s := c.Stats()
		kept += s.Kept
		if s.Damaged != 0 || s.Errors != 0 {
			t.Errorf("%+v", s)
		}
	}
	if kept == 0 {
		t.Error("nothing kept")
	}
}

func readRandomly(ctx context.Context, store objstore.Store, random *rand.Rand, data []byte, piece int) error {
	object, err := objstore.TraitsOf(store).OpenAs(ctx, "shard", store.String())
	if err != nil {
		return err
	}
	defer object.Close()
	p := make([]byte, piece)
	for range 40 {
		off := random.IntN(len(data)/piece) * piece
		if random.IntN(8) == 0 {
			forget(ctx, object, int64(off), piece)
		}
		if err := object.ReadAt(ctx, p, int64(off)); err != nil {
			return err
		}
		if !bytes.Equal(p, data[off:off+piece]) {
			return fmt.Errorf("other bytes at %d", off)
		}
	}
	return nil
}

// TestCloseUnderReaders closes the cache, and then the objects, while they are read.
func TestCloseUnderReaders(t *testing.T) {
	source, data := dataset(t, "far:", 1, 100_000)
	c := newCache(t, t.TempDir(), 50_000)
	object := open(t, c.Wrap(source), "shard", "hash")
	closed := make(chan struct{})
	end := sync.OnceFunc(func() { close(closed) })
	var group errgroup.Group
	for worker := range 4 {
		group.Go(func() error {
			defer end()
			random := rand.New(rand.NewPCG(8, uint64(worker)))
			p := make([]byte, 1000)
			for i := 0; ; i++ {
				off := random.IntN(100) * 1000
				switch err := object.ReadAt(t.Context(), p, int64(off)); {
				case errors.Is(err, fs.ErrClosed):
					return nil
				case err != nil:
					return err
				case !bytes.Equal(p, data[off:off+1000]):
					return errors.New("other bytes")
				}
				if i == 50 && worker == 0 {
					if err := c.Close(); err != nil {
						return err
					}
					end()
				}
			}
		})
	}
	<-closed
	for range 50 {
		expect(t, object, 0, 1000, data)
	}
	if err := object.Close(); err != nil {
		t.Fatal(err)
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	if err := object.ReadAt(t.Context(), make([]byte, 1), 0); !errors.Is(err, fs.ErrClosed) {
		t.Fatal(err)
	}
	if _, err := object.Info(t.Context()); !errors.Is(err, fs.ErrClosed) {
		t.Fatal(err)
	}
}
