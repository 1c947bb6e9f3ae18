package cache

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/local"
	"github.com/shardtool/shardtool/objstore/storetest"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
)

// TestWeakTag checks that an object without a strong ETag is not cached.
func TestWeakTag(t *testing.T) {
	for _, tag := range []string{"", `W/"x"`} {
		source, data := dataset(t, "far:", 1, 1000)
		dir := t.TempDir()
		store := newCache(t, dir, 4<<20).Wrap(&retagged{source, tag})
		for range 2 {
			expect(t, open(t, store, "shard", ""), 0, 1000, data)
		}
		if n := source.reads.Load(); n != 2 || len(pieces(t, dir)) != 0 {
			t.Fatalf("%d reads, %d files", n, len(pieces(t, dir)))
		}
	}
}

type retagged struct {
	objstore.Store
	tag string
}

func (s *retagged) Open(ctx context.Context, name string) (objstore.Object, error) {
	object, err := s.Store.Open(ctx, name)
	return &retaggedObject{object, s.tag}, err
}

type retaggedObject struct {
	objstore.Object
	tag string
}

func (o *retaggedObject) Info(ctx context.Context) (objstore.Info, error) {
	info, err := o.Object.Info(ctx)
	info.ETag = o.tag
	return info, err
}

// TestForget drops a range whose bytes the caller found damaged.
func TestForget(t *testing.T) {
	source, data := dataset(t, "far:", 1, 1000)
	c := newCache(t, t.TempDir(), 4<<20)
	object := open(t, c.Wrap(source), "shard", "hash")
	expect(t, object, 0, 500, data)
	// The identity was wrong: the source has other bytes now.
	fresh := pattern(2, 1000)
	put(t, source, "shard", fresh)
	again := open(t, c.Wrap(source), "shard", "hash")
	expect(t, again, 0, 500, data)
	forget(t.Context(), again, 0, 500)
	forget(t.Context(), again, 1, 500)
	if used := c.Stats().Used; used != 0 {
		t.Fatalf("%d bytes in use", used)
	}
	expect(t, again, 0, 500, fresh)
	expect(t, again, 0, 500, fresh)
	if n := source.reads.Load(); n != 2 {
		t.Fatalf("%d reads", n)
	}
}

// TestOneFlight reads one range in many goroutines: one read reaches the source, and all get its
// bytes.
func TestOneFlight(t *testing.T) {
	source, data := dataset(t, "far:", 1, 100_000)
	source.hold = make(chan struct{})
	c := newCache(t, t.TempDir(), 4<<20)
	store := c.Wrap(source)
	const readers = 32
	var group sync.WaitGroup
	var failed atomic.Int64
	for range readers {
		object := open(t, store, "shard", "hash")
		group.Go(func() {
			p := make([]byte, 50_000)
			if err := object.ReadAt(t.Context(), p, 7); err != nil || !bytes.Equal(p, data[7:50_007]) {
				failed.Add(1)
			}
		})
	}
	close(source.hold)
	group.Wait()
	if n := source.reads.Load(); n != 1 || failed.Load() != 0 {
		t.Fatalf("%d reads, %d failed", n, failed.Load())
	}
	if s := c.Stats(); s.Hits+s.Shared+s.Misses != readers {
		t.Fatalf("%+v", s)
	}
}

// TestLeaderGivesUp cancels the read that others wait for: one of them reads in its place.
func TestLeaderGivesUp(t *testing.T) {
	source, data := dataset(t, "far:", 1, 1000)
	source.hold = make(chan struct{})
	object := open(t, newCache(t, t.TempDir(), 4<<20).Wrap(source), "shard", "hash")
	ctx, cancel := context.WithCancel(t.Context())
	gaveUp, follower := make(chan error), make(chan error)
	go func() { gaveUp <- object.ReadAt(ctx, make([]byte, 1000), 0) }()
	for source.reads.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	p := make([]byte, 1000)
	go func() { follower <- object.ReadAt(t.Context(), p, 0) }()
	impatient, cancelImpatient := context.WithTimeout(t.Context(), 5*time.Millisecond)
	defer cancelImpatient()
	if err := object.ReadAt(impatient, make([]byte, 1000), 0); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	cancel()
	if err := <-gaveUp; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	close(source.hold)
	if err := <-follower; err != nil || !bytes.Equal(p, data) {
		t.Fatal(err)
	}
}

// TestFaults fails every operation of the source in turn: a read is right or returns that failure,
// and no wrong bytes are cached.
func TestFaults(t *testing.T) {
	for _, fault := range []storetest.Fault{{}, {After: true}, {Short: true}} {
		storetest.EachFault(t, func(t *testing.T) objstore.Store {
			source, _ := dataset(t, "far:", 1, 10_000)
			return source
		}, fault, func(t *testing.T, faulty *storetest.Faulty) {
			data := pattern(1, 10_000)
			store := newCache(t, t.TempDir(), 4<<20).Wrap(faulty)
			for _, identity := range []string{"", "hash"} {
				for range 2 {
					object, err := objstore.TraitsOf(store).OpenAs(t.Context(), "shard", identity)
					if errors.Is(err, storetest.ErrInjected) {
						continue
					}
					if err != nil {
						t.Fatal(err)
					}
					p := make([]byte, 5000)
					err = object.ReadAt(t.Context(), p, 100)
					if err != nil && !errors.Is(err, storetest.ErrInjected) || err == nil && !bytes.Equal(p, data[100:5100]) {
						t.Fatalf("%v", err)
					}
					object.Close()
				}
			}
		})
	}
}

type remote struct{ objstore.Store }

func (remote) Traits() objstore.Traits { return objstore.Traits{Requests: 7} }

// elastic can send more requests on demand.
type elastic struct {
	remote
	allowed *int
}

func (e elastic) Traits() objstore.Traits {
	return objstore.Traits{Requests: 7, MostRequests: 70, Reserve: func(n int) func() {
		*e.allowed += n
		return func() { *e.allowed -= n }
	}}
}

// TestTraits checks that the cache neither hides traits of the source nor invents any.
func TestTraits(t *testing.T) {
	c := newCache(t, t.TempDir(), 1<<20)
	allowed := 0
	traits := objstore.TraitsOf(c.Wrap(elastic{remote{mem.New()}, &allowed}))
	if traits.Requests != 7 || traits.MostRequests != 70 || traits.Reserve == nil {
		t.Fatalf("an elastic source: %+v", traits)
	}
	if release := traits.Reserve(5); allowed != 5 {
		t.Errorf("allowed %d, want 5", allowed)
	} else if release(); allowed != 0 {
		t.Errorf("allowed %d after release, want 0", allowed)
	}
	traits = objstore.TraitsOf(c.Wrap(remote{mem.New()}))
	if traits.Requests != 7 || traits.Reserve != nil || traits.OpenAs == nil {
		t.Errorf("a remote source: %+v", traits)
	}
	if traits = objstore.TraitsOf(c.Wrap(mem.New())); traits.Remote() || traits.Share != nil || traits.OpenAs == nil {
		t.Errorf("a source in memory: %+v", traits)
	}
	files, err := local.New(t.TempDir(), local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if traits = objstore.TraitsOf(c.Wrap(files)); traits.Share == nil || traits.Exclude == nil || traits.Sweep == nil {
		t.Errorf("a source of files: %+v", traits)
	}
}

// TestPastEnd reads ranges past the end, of cached and uncached objects.
func TestPastEnd(t *testing.T) {
	source, data := dataset(t, "far:", 1, 1000)
	object := open(t, newCache(t, t.TempDir(), 1<<20).Wrap(source), "shard", "hash")
	expect(t, object, 0, 1000, data)
	for range 2 {
		if err := object.ReadAt(t.Context(), make([]byte, 1001), 0); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatal(err)
		}
	}
	missing := open(t, newCache(t, t.TempDir(), 1<<20).Wrap(source), "none", "hash")
	if err := missing.ReadAt(t.Context(), make([]byte, 1), 0); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if _, err := objstore.TraitsOf(newCache(t, t.TempDir(), 1<<20).Wrap(source)).OpenAs(t.Context(), "../x", "hash"); !errors.Is(err, objstore.ErrName) {
		t.Fatal(err)
	}
}

// TestNew checks that wrong arguments are refused.
func TestNew(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		dir  string
		size int64
		want string
	}{
		{"", 1, "path is empty"},
		{t.TempDir(), 0, "give a positive one"},
		{t.TempDir(), -1, "give a positive one"},
		{file, 1, "give a folder"},
		{filepath.Join(file, "below"), 1, "give another folder"},
		{filepath.Dir(file), 1, "contains other files (file); give an empty folder"},
	} {
		if _, err := New(c.dir, Options{Size: c.size}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q, %d: %v", c.dir, c.size, err)
		}
	}
}
