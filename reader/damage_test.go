package reader

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/testset"
	"github.com/shardtool/shardtool/objstore"
	diskcache "github.com/shardtool/shardtool/objstore/cache"
	"github.com/shardtool/shardtool/objstore/local"
	"github.com/shardtool/shardtool/reader/check"
)

// TestChangedInPlace overwrites or truncates the shards of a data set while it is streamed and
// batches are held: held batches keep their bytes, later batches are correct, and the error is
// ErrChanged with shard and block.
func TestChangedInPlace(t *testing.T) {
	watch(t)
	samples := make([]testset.Sample, 300)
	for i := range samples {
		samples[i] = testset.Sample{Key: fmt.Sprintf("k%03d", i), Fields: []testset.Field{{Name: "bin", Data: bytes.Repeat([]byte{byte(i), byte(i >> 8), 7}, 5000)}}}
	}
	for kind, o := range map[string]testset.Options{"plain": {Plain: true}, "raw": {Raw: true}, "zstd": {}} {
		o.BlockSize, o.ShardSize = 64<<10, 1<<20
		for name, change := range map[string]func(f *os.File, size int64) error{
			"overwritten": func(f *os.File, size int64) error {
				_, err := f.WriteAt(bytes.Repeat([]byte{0x55}, int(size)), 0)
				return err
			},
			"cut": func(f *os.File, size int64) error { return f.Truncate(0) },
		} {
			for _, so := range []StreamOptions{{GlobalBatch: 16}, {GlobalBatch: 16, Shuffle: true, Seed: 3, Order: OrderOptions{Lanes: 3, Delay: 2}}} {
				t.Run(fmt.Sprintf("%s/%s/shuffle=%v", kind, name, so.Shuffle), func(t *testing.T) {
					dir := t.TempDir()
					store, err := local.New(dir, local.Options{NoSync: true})
					if err != nil {
						t.Fatal(err)
					}
					build := newStreamed(t, store, samples, o)
					shards, err := filepath.Glob(filepath.Join(dir, "*.tar*"))
					if err != nil {
						t.Fatal(err)
					}
					old := time.Now().Add(-time.Hour) // within a tick of the clock a file may change and keep its time
					for _, name := range shards {
						if err := os.Chtimes(name, old, old); err != nil {
							t.Fatal(err)
						}
					}
					set := &streamed{open(t, store, Options{Workers: 2}), build.samples}
					for i := range set.NumShards() { // an error can tell a change only of what was open before it
						first, _ := set.FirstSample(t.Context(), i)
						if _, err := set.Get(t.Context(), first); err != nil {
							t.Fatal(err)
						}
					}
					so.Hold, so.Epochs, so.Tuning.Memory, so.Tuning.Depth = 2, 1, 1<<20, 1
					f := set.follow(t, so)
					held := f.next(t)
					held.check(t)
					for _, name := range shards {
						file, err := os.OpenFile(name, os.O_WRONLY, 0)
						if err != nil {
							t.Fatal(err)
						}
						info, err := file.Stat()
						if err == nil {
							err = errors.Join(change(file, info.Size()), file.Close())
						}
						if err != nil {
							t.Fatal(err)
						}
					}
					held.check(t)
					err = f.untilFails(t)
					held.check(t)
					var at *format.PosError
					if !errors.Is(err, objstore.ErrChanged) || !errors.As(err, &at) || at.Shard == "" || at.Block < 0 {
						t.Fatalf("%v (%+v)", err, at)
					}
				})
			}
		}
	}
}

// untilFails reads to the error; batches before it must be right.
func (f *follower) untilFails(t testing.TB) error {
	t.Helper()
	for {
		refs, _, planErr := f.cursor.NextBatch(nil, f.split)
		b, err := f.Next(t.Context())
		if errors.Is(err, io.EOF) || planErr != nil {
			t.Fatalf("no error: %v, %v", err, planErr)
		}
		if err != nil {
			return err
		}
		(&expected{Batch: b, set: f.set, refs: refs}).check(t)
		b.Release()
	}
}

// remoteStore makes a store one whose requests take time.
type remoteStore struct{ objstore.Store }

func (remoteStore) Traits() objstore.Traits { return objstore.Traits{Requests: 4} }

// TestFlippedOnce turns a bit in the first answer of every range of every object: all ways to read
// deliver the right bytes, and Verify reports that a second read differed.
func TestFlippedOnce(t *testing.T) {
	watch(t)
	samples := mixed(150)
	for _, o := range []testset.Options{{}, {Plain: true}, {FrameSize: 1500}} {
		o.BlockSize, o.ShardSize = 4000, 40_000
		inner := build(t, samples, o)
		for name, wrap := range map[string]func(objstore.Store) objstore.Store{
			"near": func(s objstore.Store) objstore.Store { return s },
			"far":  func(s objstore.Store) objstore.Store { return remoteStore{s} },
			"kept": func(s objstore.Store) objstore.Store {
				c, err := diskcache.New(t.TempDir(), diskcache.Options{Size: 64 << 20})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { c.Close() })
				return c.Wrap(s)
			},
		} {
			for way, read := range waysToRead {
				t.Run(fmt.Sprintf("plain=%v,frames=%d/%s/%s", o.Plain, o.FrameSize, name, way), func(t *testing.T) {
					store := &hooked{Store: inner}
					seen := map[string]bool{}
					store.read = func(name string, p []byte, off int64) error {
						store.mu.Lock()
						defer store.mu.Unlock()
						if at := fmt.Sprint(name, off, len(p)); !seen[at] && len(p) > 0 {
							seen[at] = true
							p[len(p)/2] ^= 4
						}
						return nil
					}
					d, err := Open(t.Context(), wrap(store), Options{Workers: 2})
					if err != nil {
						t.Fatal(err)
					}
					defer d.Close()
					if err := read(t.Context(), d, samples); err != nil {
						t.Fatal(err)
					}
					verifies := way == "verify" || way == "deep" // which reads by itself, and has a note
					if text := d.source.Flips(); !verifies && !strings.Contains(text, "other bytes when repeated") {
						t.Errorf("nothing was read twice: %q", text)
					}
				})
			}
		}
	}
}

// waysToRead are all of them; streams have TestStreamHeals.
var waysToRead = map[string]func(context.Context, *Dataset, []testset.Sample) error{
	"frames": func(ctx context.Context, d *Dataset, _ []testset.Sample) error {
		for _, err := range d.Frames(ctx, Range{}) {
			if err != nil {
				return err
			}
		}
		return nil
	},
	"samples": func(ctx context.Context, d *Dataset, want []testset.Sample) error {
		for s, err := range d.Samples(ctx, Range{}) {
			if err == nil {
				err = equal(s, int(s.Number), want[s.Number])
			}
			if err != nil {
				return err
			}
		}
		return nil
	},
	"blocks": func(ctx context.Context, d *Dataset, want []testset.Sample) error {
		for b, err := range d.Blocks(ctx, BlockOptions{}) {
			for err == nil {
				var s *Sample
				if s, err = b.Next(); err == nil {
					err = equal(s, int(s.Number), want[s.Number])
				}
			}
			if err != io.EOF {
				return err
			}
		}
		return nil
	},
	"get": func(ctx context.Context, d *Dataset, want []testset.Sample) error {
		for i := 0; i < len(want); i += 7 {
			s, err := d.Get(ctx, uint64(i))
			if err == nil {
				err = equal(s, i, want[i])
			}
			if err != nil {
				return err
			}
			if err := d.WriteTar(ctx, uint64(i), io.Discard); err != nil {
				return err
			}
		}
		return nil
	},
	"lookup": func(ctx context.Context, d *Dataset, want []testset.Sample) error {
		for i := 0; i < len(want); i += 7 {
			found, err := d.Lookup(ctx, want[i].Key)
			if err != nil || !slices.Equal(found, []uint64{uint64(i)}) {
				return fmt.Errorf("%q: %v, %w", want[i].Key, found, err)
			}
		}
		return nil
	},
	"index": func(ctx context.Context, d *Dataset, _ []testset.Sample) error {
		for i := range d.NumShards() {
			if _, err := d.Index(ctx, i); err != nil {
				return err
			}
		}
		return nil
	},
	"verify": func(ctx context.Context, d *Dataset, _ []testset.Sample) error { return verifies(ctx, d, false) },
	"deep":   func(ctx context.Context, d *Dataset, _ []testset.Sample) error { return verifies(ctx, d, true) },
}

func verifies(ctx context.Context, d *Dataset, deep bool) error {
	r, err := check.Verify(ctx, d.Store(), check.Options{Deep: deep})
	if err == nil && (!r.OK() || !slices.ContainsFunc(r.Notes, func(n string) bool { return strings.Contains(n, "other bytes when repeated") })) {
		err = fmt.Errorf("%+v", r)
	}
	return err
}

// scarce is a store of a process that may have only most objects open.
type scarce struct {
	objstore.Store
	most int64
	err  error
	open atomic.Int64
}

func (s *scarce) Open(ctx context.Context, name string) (objstore.Object, error) {
	if s.open.Add(1) > s.most {
		s.open.Add(-1)
		return nil, objstore.NewError("get", "test", name, s.err)
	}
	o, err := s.Store.Open(ctx, name)
	return &scarceObject{Object: o, s: s}, err
}

type scarceObject struct {
	objstore.Object
	s    *scarce
	once sync.Once
}

func (o *scarceObject) Close() error {
	o.once.Do(func() { o.s.open.Add(-1) })
	return o.Object.Close()
}

// TestFewDescriptors reads a data set of many shards with few descriptors: all ways do with what
// there is. With too few even for that, the error is the machine's and no damage, from Verify too.
func TestFewDescriptors(t *testing.T) {
	watch(t)
	samples := mixed(400)
	inner := build(t, samples, testset.Options{BlockSize: 2000, ShardSize: 4000, Plain: true})
	read := func(most int64, reason error, way func(context.Context, *Dataset, []testset.Sample) error) error {
		store := &scarce{Store: inner, most: most, err: reason}
		d, err := Open(t.Context(), store, Options{Workers: 2})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		return way(t.Context(), d, samples)
	}
	whole := func(deep bool) func(context.Context, *Dataset, []testset.Sample) error {
		return func(ctx context.Context, d *Dataset, _ []testset.Sample) error {
			r, err := check.Verify(ctx, d.Store(), check.Options{Deep: deep})
			if r != nil && !r.OK() {
				t.Errorf("faults of a whole data set: %+v", r.Faults)
			}
			return err
		}
	}
	ways := maps.Clone(waysToRead)
	ways["verify"], ways["deep"] = whole(false), whole(true)
	ways["stream"] = func(ctx context.Context, d *Dataset, want []testset.Sample) error {
		s, err := d.Stream(ctx, StreamOptions{Shuffle: true, GlobalBatch: 16, Epochs: 1})
		if err != nil {
			return err
		}
		defer s.Close()
		for _, err := range s.Batches(ctx) {
			if err != nil {
				return err
			}
		}
		return nil
	}
	for way, f := range ways {
		if err := read(24, syscall.EMFILE, f); err != nil { // Verify looks at 16 shards at a time
			t.Errorf("%s, 24 descriptors: %v", way, err)
		}
		for _, reason := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM} {
			err := read(1, reason, f) // the tables
			if !errors.Is(err, reason) || Damaged(err) {
				t.Errorf("%s, no descriptor: %v", way, err)
			}
		}
	}
}
