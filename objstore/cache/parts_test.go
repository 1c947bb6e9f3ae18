package cache

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/shardtool/shardtool/objstore"
)

// readParts reads n parts of a size from off on and compares them.
func readParts(ctx context.Context, o objstore.Object, off, size, n int, data []byte) error {
	p := make([]byte, n*size)
	sizes := slices.Repeat([]int{size}, n)
	err := o.(interface {
		ReadParts(ctx context.Context, p []byte, off int64, sizes ...int) error
	}).ReadParts(ctx, p, int64(off), sizes...)
	if err == nil && !bytes.Equal(p, data[off:off+n*size]) {
		err = fmt.Errorf("other bytes at %d", off)
	}
	return err
}

// TestParts: each part is kept by itself, and only what is missing is read from the source, by one
// read for each gap.
func TestParts(t *testing.T) {
	source, data := dataset(t, "set", 1, 64_000)
	dir := t.TempDir()
	c := newCache(t, dir, 1<<20)
	o := open(t, c.Wrap(source), "shard", "hash")
	const size = 1000
	for _, step := range []struct{ off, n, reads int }{
		{10_000, 3, 1}, {10_000, 3, 0}, {11_000, 1, 0}, // one of them alone
		{20_000, 1, 1},
		{8000, 15, 3}, // before, between and behind
		{5000, 20, 2}, // before and behind
		{0, 5, 1}, {0, 25, 0}, {63_000, 1, 1},
	} {
		source.reads.Store(0)
		if err := readParts(t.Context(), o, step.off, size, step.n, data); err != nil || source.reads.Load() != int64(step.reads) {
			t.Errorf("%d parts from %d: %d reads, want %d; %v", step.n, step.off, source.reads.Load(), step.reads, err)
		}
	}
	if n := len(pieces(t, dir)); n != 26 {
		t.Errorf("%d files", n)
	}
	// A part that was damaged on the disk is read again, and the others are not.
	for _, path := range pieces(t, dir) {
		if strings.HasSuffix(path, fmt.Sprintf("-%x-%x", 7000, size)) {
			if err := os.WriteFile(path, []byte("damaged"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	source.reads.Store(0)
	if err := readParts(t.Context(), o, 0, size, 25, data); err != nil || source.reads.Load() != 1 || c.Stats().Damaged != 1 {
		t.Errorf("%d reads, %+v, %v", source.reads.Load(), c.Stats(), err)
	}
	if err := readParts(t.Context(), o, 63_500, size, 1, append(data, make([]byte, 1000)...)); err == nil {
		t.Error("parts behind the end were read")
	}
	if left, err := os.ReadDir(filepath.Join(dir, tempDir)); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
	if used, want := c.Stats().Used, onDisk(t, dir); used != want {
		t.Errorf("%d bytes are counted, %d are there", used, want)
	}
}

// TestPartsTogether has several processes, as it were, read overlapping parts in random order, with
// callers that give up: all get the right bytes, nobody waits for ever, and what is there is counted.
func TestPartsTogether(t *testing.T) {
	const size, all = 500, 64
	for _, room := range []int64{1 << 20, 20 * grain} {
		dir := t.TempDir()
		source, data := dataset(t, "set", 1, size*all)
		var g errgroup.Group
		var caches [3]*Cache
		for i := range caches {
			caches[i] = newCache(t, dir, room)
			caches[i].least = time.Millisecond
			o := open(t, caches[i].Wrap(source), "shard", "hash")
			for k := range 4 {
				g.Go(func() error {
					random := rand.New(rand.NewPCG(uint64(i), uint64(k)))
					for range 200 {
						from := random.IntN(all)
						n := 1 + random.IntN(min(all-from, 12))
						ctx, cancel := context.WithCancel(t.Context())
						if random.IntN(8) == 0 {
							time.AfterFunc(time.Duration(random.IntN(200))*time.Microsecond, cancel)
						}
						err := readParts(ctx, o, from*size, size, n, data)
						if ctx.Err() != nil {
							err = nil
						}
						cancel()
						if err != nil {
							return err
						}
					}
					return nil
				})
			}
		}
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
		for _, c := range caches {
			if s := c.Stats(); s.Damaged > 0 || s.Errors > 0 {
				t.Errorf("%+v", s)
			}
		}
		if n := len(pieces(t, dir)); room == 1<<20 && n != all || onDisk(t, dir) > room {
			t.Errorf("%d files, %d bytes of %d", n, onDisk(t, dir), room)
		}
	}
}
