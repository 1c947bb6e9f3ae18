package reader

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/testset"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/storetest"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/reader/check"
	"github.com/shardtool/shardtool/reader/internal/catalog"
)

// uses are what a data set is used for, each with what must come of it.
func uses(samples []testset.Sample) map[string]func(ctx context.Context, store objstore.Store) error {
	with := func(use func(ctx context.Context, d *Dataset) error) func(ctx context.Context, store objstore.Store) error {
		return func(ctx context.Context, store objstore.Store) error {
			d, err := Open(ctx, store, Options{Workers: 2})
			if err != nil {
				return err
			}
			defer d.Close()
			return use(ctx, d)
		}
	}
	last := len(samples) - 1
	return map[string]func(ctx context.Context, store objstore.Store) error{
		"samples": with(func(ctx context.Context, d *Dataset) error {
			n := 0
			for s, err := range d.Samples(ctx, Range{}) {
				if err != nil {
					return err
				}
				if err := equal(s, n, samples[n]); err != nil {
					panic(err)
				}
				n++
			}
			if n != len(samples) {
				panic(fmt.Sprintf("%d samples of %d", n, len(samples)))
			}
			return nil
		}),
		"frames": with(func(ctx context.Context, d *Dataset) error {
			for _, err := range d.Frames(ctx, Range{}) {
				if err != nil {
					return err
				}
			}
			return nil
		}),
		"get": with(func(ctx context.Context, d *Dataset) error {
			for _, n := range []int{0, last, last / 2} {
				s, err := d.Get(ctx, uint64(n))
				if err != nil {
					return err
				}
				if err := equal(s, n, samples[n]); err != nil {
					panic(err)
				}
			}
			return nil
		}),
		"tar": with(func(ctx context.Context, d *Dataset) error {
			return d.WriteTar(ctx, uint64(last), &bytes.Buffer{})
		}),
		"lookup": with(func(ctx context.Context, d *Dataset) error {
			n, err := d.Lookup(ctx, samples[last].Key)
			if err == nil && (len(n) != 1 || n[0] != uint64(last)) {
				panic(fmt.Sprint(n))
			}
			return err
		}),
		"index": with(func(ctx context.Context, d *Dataset) error {
			_, err := d.Index(ctx, d.NumShards()-1)
			return err
		}),
	}
}

var faultKinds = map[string]testset.Options{
	"zstd":   {BlockSize: 4000, ShardSize: 20000},
	"frames": {BlockSize: 8000, FrameSize: 3000, ShardSize: 30000, NoKeys: true},
	"plain":  {BlockSize: 4000, ShardSize: 20000, Plain: true},
}

// TestFaultyStore fails operation k of a store for every k: an error, no hang, no goroutine left,
// no wrong sample.
func TestFaultyStore(t *testing.T) {
	samples := mixed(60)
	for kind, o := range faultKinds {
		store := build(t, samples, o)
		for name, use := range uses(samples) {
			for _, fault := range []storetest.Fault{{}, {After: true}, {Short: true}, {Kill: true}} {
				t.Run(fmt.Sprintf("%s/%s/after=%v/short=%v/kill=%v", kind, name, fault.After, fault.Short, fault.Kill), func(t *testing.T) {
					defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
					n := storetest.EachFault(t, func(*testing.T) objstore.Store { return store }, fault, func(t *testing.T, store *storetest.Faulty) {
						ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
						defer cancel()
						err := use(ctx, store)
						if store.Fired() != errors.Is(err, storetest.ErrInjected) || (err != nil) != store.Fired() {
							t.Fatalf("fired %v: %v", store.Fired(), err)
						}
					})
					if n < 4 {
						t.Fatalf("%d operations", n)
					}
				})
			}
		}
	}
}

// TestFaultyVerify fails operation k, and then all that follow: what cannot be read is a fault of
// kind read or manifest, a note when it is only the list of other objects, or keeps the data set
// from being opened. One failure alone may be healed: verify reads rows one by one when a read of
// several fails.
func TestFaultyVerify(t *testing.T) {
	if testing.Short() {
		t.Skip("each fault alone, in the goroutines that TestFaultyStore has: make test runs it without the race detector")
	}
	samples := mixed(60)
	for kind, o := range faultKinds {
		store := build(t, samples, o)
		for _, deep := range []bool{false, true} {
			for _, kill := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/deep=%v/kill=%v", kind, deep, kill), func(t *testing.T) {
					storetest.EachFault(t, func(*testing.T) objstore.Store { return store }, storetest.Fault{Kill: kill}, func(t *testing.T, store *storetest.Faulty) {
						r, err := check.Verify(t.Context(), store, check.Options{Workers: 2, Deep: deep})
						if err != nil {
							if !errors.Is(err, storetest.ErrInjected) {
								t.Fatal(err)
							}
							return
						}
						if quiet := r.OK() && len(r.Notes) == 0; !store.Fired() != quiet && kill {
							t.Fatalf("fired %v: %+v", store.Fired(), r)
						}
						if r.Damage() != 0 {
							t.Fatalf("a store that fails is called damage: %+v", r)
						}
						for _, f := range r.Faults {
							if !store.Fired() || f.Kind != check.KindRead && f.Kind != check.KindManifest || !strings.Contains(f.Detail, "injected") {
								t.Fatalf("fired %v: %+v", store.Fired(), r)
							}
						}
					})
				})
			}
		}
	}
}

// slow is a store whose reads wait until they are released, or their context ends.
type slow struct {
	objstore.Store
	gate    chan struct{}
	waiting atomic.Int64
}

func (s *slow) Open(ctx context.Context, name string) (objstore.Object, error) {
	o, err := s.Store.Open(ctx, name)
	if err != nil || !strings.Contains(name, ".tar") {
		return o, err
	}
	return &slowObject{o, s}, nil
}

type slowObject struct {
	objstore.Object
	s *slow
}

func (o *slowObject) ReadAt(ctx context.Context, p []byte, off int64) error {
	o.s.waiting.Add(1)
	defer o.s.waiting.Add(-1)
	select {
	case <-o.s.gate:
		return o.Object.ReadAt(ctx, p, off)
	case <-ctx.Done():
		return objstore.NewError("get", "slow:", "", ctx.Err())
	}
}

// TestCancelled ends contexts at every stage: before, while reads wait, after some samples; and
// closes the data set.
func TestCancelled(t *testing.T) {
	samples := mixed(60)
	store := build(t, samples, testset.Options{BlockSize: 4000, ShardSize: 20000})
	for name, use := range uses(samples) {
		t.Run(name, func(t *testing.T) {
			defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			if err := use(ctx, store); !errors.Is(err, context.Canceled) {
				t.Fatalf("before: %v", err)
			}
			hanging := &slow{Store: store, gate: make(chan struct{})}
			ctx, cancel = context.WithCancel(context.Background())
			go func() {
				for hanging.waiting.Load() == 0 {
					time.Sleep(time.Millisecond)
				}
				cancel()
			}()
			if err := use(ctx, hanging); !errors.Is(err, context.Canceled) {
				t.Fatalf("while reading: %v", err)
			}
		})
	}
	t.Run("verify", func(t *testing.T) {
		for _, deep := range []bool{false, true} {
			hanging := &slow{Store: store, gate: make(chan struct{})}
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
			r, err := check.Verify(ctx, hanging, check.Options{Deep: deep})
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) || r == nil || len(r.Faults) != 0 {
				t.Fatalf("deep %v: %v %+v", deep, err, r)
			}
		}
	})
	t.Run("between samples", func(t *testing.T) {
		defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
		d := open(t, store, Options{Workers: 2})
		ctx, cancel := context.WithCancel(context.Background())
		n := 0
		var last error
		for _, err := range d.Samples(ctx, Range{}) {
			if last = err; err != nil {
				break
			}
			if n++; n == 3 {
				cancel()
			}
		}
		if !errors.Is(last, context.Canceled) || n == len(samples) {
			t.Fatalf("%d samples, %v", n, last)
		}
		cancel()
	})
	t.Run("closed", func(t *testing.T) {
		hanging := &slow{Store: store, gate: make(chan struct{})}
		d := open(t, hanging, Options{Workers: 2})
		go func() {
			for hanging.waiting.Load() == 0 {
				time.Sleep(time.Millisecond)
			}
			d.Close()
		}()
		for _, err := range d.Samples(t.Context(), Range{}) {
			if !errors.Is(err, fs.ErrClosed) {
				t.Fatalf("%v", err)
			}
		}
		if _, err := d.Get(t.Context(), 0); !errors.Is(err, fs.ErrClosed) {
			t.Fatal(err)
		}
		if _, err := d.Index(t.Context(), 0); !errors.Is(err, fs.ErrClosed) {
			t.Fatal(err)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestBreak leaves loops early.
func TestBreak(t *testing.T) {
	samples := mixed(300)
	store := build(t, samples, testset.Options{BlockSize: 2000, ShardSize: 20000})
	for _, workers := range []int{1, 4} {
		d := open(t, store, Options{Workers: workers})
		for stop := 1; stop < 300; stop += 17 {
			func() {
				defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
				n := 0
				for _, err := range d.Samples(t.Context(), Range{}) {
					if err != nil {
						t.Fatal(err)
					}
					if n++; n == stop {
						break
					}
				}
			}()
		}
		// A panic in the loop's body passes through, and leaves no goroutine either.
		func() {
			defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			defer func() {
				if recover() != "mine" {
					t.Fatal("the panic was lost")
				}
			}()
			for range d.Frames(t.Context(), Range{}) {
				panic("mine")
			}
		}()
	}
}

// TestConcurrent reads from 16 goroutines at once, random samples and whole walks, on caches that
// hold almost nothing.
func TestConcurrent(t *testing.T) {
	rounds := 30
	if testing.Short() {
		rounds = 10
	}
	samples := mixed(300)
	eachKind(t, samples, func(t *testing.T, store objstore.Store) {
		d := open(t, store, Options{Workers: 2, Memory: 1 << 20})
		small, err := catalog.Open(t.Context(), d.source, "", 1)
		if err != nil {
			t.Fatal(err)
		}
		defer small.Close()
		d.catalog = small
		var wg sync.WaitGroup
		for g := range 16 {
			wg.Go(func() {
				random := rand.New(rand.NewPCG(uint64(g), 1))
				for range rounds {
					n := random.IntN(len(samples))
					s, err := d.Get(t.Context(), uint64(n))
					if err == nil {
						err = equal(s, n, samples[n])
					}
					if err != nil {
						t.Error(err)
						return
					}
					if g%4 == 0 {
						if got, err := d.Lookup(t.Context(), samples[n].Key); err != nil || got[0] != uint64(n) {
							t.Error(got, err)
						}
					}
				}
				if g%8 == 1 {
					n := 0
					for s, err := range d.Samples(t.Context(), Range{}) {
						if err == nil {
							err = equal(s, n, samples[n])
						}
						if err != nil {
							t.Error(err)
							return
						}
						n++
					}
				}
			})
		}
		wg.Wait()
	})
}

// openCount counts the objects of a store that are open.
type openCount struct {
	objstore.Store
	open, most atomic.Int64
}

type countedObject struct {
	objstore.Object
	of *openCount
}

func (c *openCount) Open(ctx context.Context, name string) (objstore.Object, error) {
	o, err := c.Store.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	c.most.Store(max(c.most.Load(), c.open.Add(1)))
	return &countedObject{o, c}, nil
}

func (o *countedObject) Close() error {
	o.of.open.Add(-1)
	return o.Object.Close()
}

// TestManyShards has more shards than objects are kept open, and opens with few requests.
func TestManyShards(t *testing.T) {
	const most = 256 // what the documentation of Open promises
	const n = 2*most + 50
	samples := make([]testset.Sample, n)
	for i := range samples {
		samples[i] = testset.Sample{Key: fmt.Sprintf("k%05d", i), Fields: []testset.Field{{Name: "x", Data: []byte{byte(i)}}}}
	}
	inner := build(t, samples, testset.Options{BlockSize: 1, ShardSize: 1})
	counted := &openCount{Store: inner}
	store := storetest.NewFaulty(counted, storetest.Fault{At: -1})
	d := open(t, store, Options{})
	if d.NumShards() != n || store.Ops() > 8 {
		t.Fatalf("%d shards, opened with %d operations", d.NumShards(), store.Ops())
	}
	for range 2 {
		for i := range samples {
			s, err := d.Get(t.Context(), uint64(i))
			if err == nil {
				err = equal(s, i, samples[i])
			}
			if err != nil {
				t.Fatal(err)
			}
			if n := counted.most.Load(); n > most+2 { // the tables, and the one being opened
				t.Fatalf("%d objects are open", n)
			}
		}
	}
	if err := readAll(t, store, Options{}, samples); err != nil {
		t.Fatal(err)
	}
}

func TestEmpty(t *testing.T) {
	for _, o := range []testset.Options{{}, {NoKeys: true}} {
		store := build(t, nil, o)
		if err := readAll(t, store, Options{}, nil); err != nil {
			t.Fatal(err)
		}
		d := open(t, store, Options{})
		if d.NumSamples() != 0 || d.NumShards() != 0 || d.Info().Blocks != 0 {
			t.Fatalf("%+v", d.Info())
		}
		for range d.Frames(t.Context(), Range{}) {
			t.Fatal("a frame")
		}
		if _, err := d.Get(t.Context(), 0); !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		if _, err := d.Lookup(t.Context(), "k"); !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		for _, deep := range []bool{false, true} {
			if r := verify(t, store, deep); !r.OK() {
				t.Fatalf("%+v", r)
			}
		}
	}
}

func TestOpenErrors(t *testing.T) {
	ctx := t.Context()
	empty := mem.New()
	_, err := Open(ctx, empty, Options{})
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "no data set") {
		t.Fatal(err)
	}
	store, samples := tiny(t, testset.Options{})
	left := store.Clone()
	left.Delete(ctx, format.ManifestName)
	_, err = Open(ctx, left, Options{})
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "pack --resume") {
		t.Fatal(err)
	}
	if _, err = check.Verify(ctx, left, check.Options{}); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	d := open(t, store, Options{})
	generation := strings.TrimSuffix(strings.TrimPrefix(d.Info().Tables, "manifest-"), ".bin")
	// The tables are enough for one who names them.
	if err := readAll(t, left, Options{Generation: generation}, samples); err != nil {
		t.Fatal(err)
	}
	if r, err := check.Verify(ctx, left, check.Options{Generation: generation, Deep: true}); err != nil || !r.OK() || len(r.Notes) != 1 {
		t.Fatal(r, err)
	}
	if _, err := Open(ctx, store, Options{Generation: strings.Repeat("0", 16)}); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	gone := store.Clone()
	gone.Delete(ctx, d.Info().Tables)
	if _, err := Open(ctx, gone, Options{}); !errors.Is(err, format.ErrCorrupt) || errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	for _, o := range []Options{{Generation: "../x"}, {Generation: "ABCDEF0123456789"}, {Workers: -1}, {Workers: 1 << 20}, {Memory: 1}, {Memory: -1}} {
		if _, err := Open(ctx, store, o); err == nil {
			t.Fatalf("%+v is accepted", o)
		}
	}
	for _, r := range []Range{{From: -1}, {From: 2, To: 1}, {To: 3}} {
		for _, err := range d.Samples(ctx, r) {
			if err == nil {
				t.Fatalf("%+v is accepted", r)
			}
		}
	}
}
