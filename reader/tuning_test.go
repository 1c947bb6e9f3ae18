package reader

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shardtool/shardtool/internal/figures/stats"
	"github.com/shardtool/shardtool/internal/testset"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/reader/internal/tune"
)

// elastic is a far store that can send more, and a quota beyond which it asks for less load.
type elastic struct {
	far
	most    int
	mu      sync.Mutex
	allowed int
	asked   int // most that was allowed
	quota   atomic.Int64
	said    atomic.Int64 // how often it asked for less load
}

func (e *elastic) Open(ctx context.Context, name string) (objstore.Object, error) {
	o, err := e.far.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	return &elasticObject{o, e}, nil
}

type elasticObject struct {
	objstore.Object
	e *elastic
}

// ReadAt asks for less load as long as more requests are in flight than the quota.
func (o *elasticObject) ReadAt(ctx context.Context, p []byte, off int64) error {
	for quota := o.e.quota.Load(); quota > 0 && o.e.flying.Load() >= quota && ctx.Err() == nil; quota = o.e.quota.Load() {
		o.e.said.Add(1)
		for _, phase := range []objstore.Phase{objstore.PhasePause, objstore.PhaseThrottled} {
			objstore.Trace(ctx, phase, 1)
			defer objstore.Trace(ctx, phase, -1)
		}
		time.Sleep(time.Millisecond)
	}
	return o.Object.ReadAt(ctx, p, off)
}

func (e *elastic) Traits() objstore.Traits {
	return objstore.Traits{Requests: e.requests, MostRequests: e.most, Reserve: e.reserve}
}

func (e *elastic) reserve(n int) (release func()) {
	add := func(n int) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.allowed += n
		e.asked = max(e.asked, e.allowed)
	}
	add(n)
	return func() { add(-n) }
}

// wild makes decisions without any sense, and often.
func wild(seed uint64) func(o *StreamOptions, most int) {
	return func(o *StreamOptions, most int) {
		r := rand.New(rand.NewPCG(seed, 1))
		o.Tuning.tuneEvery = time.Millisecond
		depth, requests := 8, most
		o.Tuning.tune = func(tune.Measure) (all []tune.Decision) {
			if most > 0 {
				all = append(all, tune.Decision{Of: tune.Requests, From: requests, To: 1 + r.IntN(most)})
				requests = all[0].To
			}
			all = append(all, tune.Decision{Of: tune.Depth, From: depth, To: r.IntN(20)})
			depth = all[len(all)-1].To
			return all
		}
	}
}

// sums hashes all batches of a stream, with their places. It takes some and resumes from a
// checkpoint, several times.
func sums(t *testing.T, set *streamed, o StreamOptions, pieces int) (all []string) {
	t.Helper()
	seed := fixedSeed
	for {
		s, err := set.Stream(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		for n := 0; pieces == 0 || n < pieces; n++ {
			b, err := s.Next(t.Context())
			if errors.Is(err, io.EOF) {
				s.Close()
				return all
			}
			if err != nil {
				t.Fatal(err)
			}
			var h maphash.Hash
			h.SetSeed(seed)
			for i := range b.Samples {
				h.Write(b.Samples[i].Key)
				for _, f := range b.Samples[i].Fields {
					h.Write(f.Name)
					h.Write(f.Data)
				}
			}
			all = append(all, fmt.Sprint(b.Epoch, b.Position, len(b.Samples), h.Sum64()))
		}
		cp, err := s.Checkpoint()
		if err != nil {
			t.Fatal(err)
		}
		s.Close()
		o.Checkpoint = &cp
	}
}

var fixedSeed = maphash.MakeSeed()

// TestAutotuneLeavesTheOrder: with it, without it, with settings that change all the time and make
// no sense, in one go and resumed many times, batches are the same, byte by byte; and the budget
// holds.
func TestAutotuneLeavesTheOrder(t *testing.T) {
	watch(t)
	for _, remote := range []bool{false, true} {
		below := mem.New()
		store, most := objstore.Store(below), 0
		if remote {
			store, most = &elastic{far: far{Store: below, requests: 8, delay: 50 * time.Microsecond}, most: 24}, 24
		}
		set := newStreamed(t, store, mixed(400), testset.Options{BlockSize: 16 << 10, ShardSize: 200 << 10})
		for _, o := range []StreamOptions{
			{Shuffle: true, GlobalBatch: 32, Epochs: 2, Order: OrderOptions{Lanes: 12, Delay: 3}},
			{Shuffle: true, GlobalBatch: 64, Epochs: 2, World: 2, Rank: 1, Order: OrderOptions{Lanes: 8, RunBlocks: 4, Delay: 2}},
			{GlobalBatch: 50, Epochs: 2},
			{Shuffle: true, GlobalBatch: 32, Epochs: 1, Order: OrderOptions{Lanes: 12, Delay: 3}, Tuning: Tuning{Memory: 1 << 20}},
		} {
			o.Tuning.Workers = 2
			off := o
			off.Tuning.NoAutotune = true
			want := sums(t, set, off, 0)
			for name, change := range map[string]func(*StreamOptions){
				"on":       func(o *StreamOptions) { o.Tuning.tuneEvery = time.Millisecond },
				"wild":     func(o *StreamOptions) { wild(7)(o, most) },
				"depth":    func(o *StreamOptions) { o.Tuning.Depth = 1 },
				"requests": func(o *StreamOptions) { o.Tuning.Requests = 1; o.Tuning.tuneEvery = time.Millisecond },
			} {
				for _, pieces := range []int{0, 7} {
					with := o
					change(&with)
					if name == "requests" && !remote {
						continue
					}
					got := sums(t, set, with, pieces)
					if len(got) != len(want) {
						t.Fatalf("%+v, %s: %d batches, want %d", o, name, len(got), len(want))
					}
					for i := range got {
						if got[i] != want[i] {
							t.Fatalf("%+v, %s, %d at a time: batch %d is %s, want %s", o, name, pieces, i, got[i], want[i])
						}
					}
				}
			}
		}
	}
}

// TestAutotuneKeepsTheBudget: also where settings change all the time, and blocks have to go for
// want of memory.
func TestAutotuneKeepsTheBudget(t *testing.T) {
	watch(t)
	store := &elastic{far: far{Store: mem.New(), requests: 8, delay: 100 * time.Microsecond}, most: 64}
	set := newStreamed(t, store, mixed(2000), testset.Options{BlockSize: 16 << 10, ShardSize: 200 << 10})
	for _, memory := range []int64{1 << 20, 2 << 20, 64 << 20} {
		for seed := range uint64(2) {
			o := StreamOptions{Shuffle: true, GlobalBatch: 64, Epochs: 1, Order: OrderOptions{Lanes: 24, Delay: 4}, Tuning: Tuning{Memory: memory, Workers: 2}}
			wild(seed)(&o, 64)
			f := set.follow(t, o)
			f.rest(t)
			if st := f.Stats(); st.Held > memory {
				t.Errorf("%d bytes held of %d", st.Held, memory)
			}
			f.Close()
		}
	}
	if n := store.mostFlying.Load(); n > 64 {
		t.Errorf("%d requests in flight of 64", n)
	}
	if store.allowed != 0 {
		t.Errorf("streams that are closed keep %d requests of the store", store.allowed)
	}
}

// lessThanTheData is a budget with which a stream of some thousand samples reads blocks in every
// epoch. With all of them in memory it sends no request after the first epoch, and the tuner has
// nothing to judge by.
const lessThanTheData = 1 << 20

// slowly takes batches with a step, until the stream's statistics satisfy until or the batches end.
func slowly(t *testing.T, s *Stream, step time.Duration, until func(stats.Stream) bool) (st stats.Stream) {
	t.Helper()
	for {
		_, err := s.Next(t.Context())
		if errors.Is(err, io.EOF) {
			t.Fatalf("it did not come to that: %+v", s.Stats())
		}
		if err != nil {
			t.Fatal(err)
		}
		if st = s.Stats(); until(st) {
			return st
		}
		time.Sleep(step)
	}
}

// TestAutotuneSavesForASlowStep: a consumer that is slow has fewer batches ahead and fewer requests
// in flight than one that takes all it gets; each decision is logged, with its reason.
func TestAutotuneSavesForASlowStep(t *testing.T) {
	watch(t)
	store := &elastic{far: far{Store: mem.New(), requests: 32, delay: time.Millisecond}, most: 64}
	set := newStreamed(t, store, mixed(4000), testset.Options{BlockSize: 8 << 10, ShardSize: 200 << 10})
	var told bytes.Buffer
	o := StreamOptions{
		Shuffle: true, GlobalBatch: 8, Log: slog.New(slog.NewTextHandler(&told, nil)), StatsEvery: time.Hour,
		Order:  OrderOptions{Lanes: 16, Delay: 4},
		Tuning: Tuning{Workers: 2, tuneEvery: time.Millisecond},
	}
	s := set.stream(t, o)
	if st := s.Stats(); st.Requests != 32 || st.Depth < 8 {
		t.Errorf("begins with %d requests, %d batches ahead", st.Requests, st.Depth)
	}
	st := slowly(t, s, 5*time.Millisecond, func(st stats.Stream) bool { return st.Requests <= 16 && st.Decisions > 1 })
	if st.Depth > 700 { // a second and a half of steps, and a margin
		t.Errorf("%d batches ahead", st.Depth)
	}
	s.Close()
	for _, want := range []string{"msg=autotune", "setting=requests from=32", "why=\"the step needs fewer requests", "step_ms=", "fetch_ms="} {
		if !strings.Contains(told.String(), want) {
			t.Errorf("no %s in\n%s", want, told.String())
		}
	}
	if n := strings.Count(told.String(), "msg=autotune"); uint64(n) != s.Stats().Decisions {
		t.Errorf("%d lines for %d decisions", n, s.Stats().Decisions)
	}
}

// TestAutotuneTakesMore: a consumer that takes all it gets from a store that is far away gets more
// requests than the store sends by default, and the store has them back in the end. What the user
// has set, and no autotuning, leave the numbers alone.
func TestAutotuneTakesMore(t *testing.T) {
	watch(t)
	store := &elastic{far: far{Store: mem.New(), requests: 4, delay: 5 * time.Millisecond}, most: 64}
	set := newStreamed(t, store, mixed(3000), testset.Options{BlockSize: 4 << 10, ShardSize: 200 << 10})
	o := StreamOptions{Shuffle: true, GlobalBatch: 16, Order: OrderOptions{Lanes: 32, Delay: 4}, Tuning: Tuning{Workers: 2, tuneEvery: 5 * time.Millisecond}}
	s := set.stream(t, o)
	slowly(t, s, 0, func(st stats.Stream) bool { return st.Requests >= 16 })
	s.Close()
	if store.allowed != 0 || store.asked < 12 {
		t.Errorf("the store was asked for %d more, and has not got back %d", store.asked, store.allowed)
	}
	store.changed.Store(int64(50 * time.Microsecond))
	for _, fixed := range []func(*StreamOptions){
		func(o *StreamOptions) { o.Tuning.NoAutotune = true },
		func(o *StreamOptions) { o.Tuning.Requests, o.Tuning.Depth = 3, 40 },
		func(o *StreamOptions) { o.Tuning.Requests, o.Tuning.Depth = 30, 40 },
		func(o *StreamOptions) { o.Tuning.Requests, o.Tuning.NoAutotune = 1000, true },
	} {
		o := o
		o.Epochs = 1
		fixed(&o)
		f := set.follow(t, o)
		before := f.Stats()
		f.rest(t)
		after := f.Stats()
		if before.Requests != min(cmp.Or(o.Tuning.Requests, 4), 64) || before.Requests != after.Requests || before.Depth != after.Depth || after.Decisions != 0 || (o.Tuning.Depth > 0 && after.Depth != o.Tuning.Depth) {
			t.Errorf("%d requests and a depth of %d became %d and %d", before.Requests, before.Depth, after.Requests, after.Depth)
		}
		store.mu.Lock()
		if store.allowed != max(o.Tuning.Requests-4, 0) && store.allowed != 60 {
			t.Errorf("%d requests are set, the store may send %d more than 4", o.Tuning.Requests, store.allowed)
		}
		store.mu.Unlock()
		if f.Close(); store.allowed != 0 {
			t.Errorf("the store has not got back %d", store.allowed)
		}
	}
}

// TestAutotuneAsksForLess: a store that asks for less load has fewer requests in flight, and the
// log line has the reason.
func TestAutotuneAsksForLess(t *testing.T) {
	watch(t)
	store := &elastic{far: far{Store: mem.New(), requests: 32, delay: 2 * time.Millisecond}, most: 64}
	set := newStreamed(t, store, mixed(3000), testset.Options{BlockSize: 4 << 10, ShardSize: 200 << 10})
	store.quota.Store(6)
	var told bytes.Buffer
	s := set.stream(t, StreamOptions{
		Shuffle: true, GlobalBatch: 16, Log: slog.New(slog.NewTextHandler(&told, nil)), StatsEvery: time.Hour,
		Order:  OrderOptions{Lanes: 32, Delay: 4},
		Tuning: Tuning{Workers: 2, Memory: lessThanTheData, tuneEvery: 5 * time.Millisecond},
	})
	slowly(t, s, 0, func(st stats.Stream) bool { return st.Requests <= 16 })
	s.Close()
	if store.said.Load() == 0 || !strings.Contains(told.String(), "why=\"the store asks for less load") {
		t.Errorf("asked for less %d times:\n%s", store.said.Load(), told.String())
	}
}

// TestRemoteSmallDataSet: the default budget holds a small data set whole, with what is on its way
// beside it: no block is read twice in an epoch.
func TestRemoteSmallDataSet(t *testing.T) {
	watch(t)
	samples := make([]testset.Sample, 52*16)
	random := rand.NewChaCha8([32]byte{1})
	for i := range samples {
		data := make([]byte, 64<<10)
		_, _ = random.Read(data)
		samples[i] = testset.Sample{Key: fmt.Sprintf("%04d", i), Fields: []testset.Field{{Name: "bin", Data: data}}}
	}
	store := &far{Store: mem.New(), requests: 64, delay: time.Millisecond}
	set := newStreamed(t, store, samples, testset.Options{BlockSize: 1 << 20, ShardSize: 16 << 20})
	s := set.stream(t, StreamOptions{Shuffle: true, GlobalBatch: 16, Epochs: 1, Order: OrderOptions{Lanes: 48}, Tuning: Tuning{Workers: 2, NoAutotune: true}})
	n := 0
	for b, err := range s.Batches(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		n += len(b.Samples)
	}
	if st := s.Stats(); st.Evicted > 0 || st.Blocks != set.Info().Blocks || n != len(samples) {
		t.Errorf("%d samples; %d blocks were evicted, %d read of %d, with a budget of %d", n, st.Evicted, st.Blocks, set.Info().Blocks, s.Info().Memory)
	}
}

// TestSmallDataSet: with the default budget a data set is held whole that is smaller than what it
// is shuffled among, also where every batch has samples of all blocks. None is read twice in an
// epoch.
func TestSmallDataSet(t *testing.T) {
	watch(t)
	samples := make([]testset.Sample, 8192)
	random := rand.NewChaCha8([32]byte{2})
	for i := range samples {
		data := make([]byte, 12<<10)
		_, _ = random.Read(data)
		samples[i] = testset.Sample{Key: fmt.Sprintf("%05d", i), Fields: []testset.Field{{Name: "bin", Data: data}}}
	}
	set := newStreamed(t, inDir(t), samples, testset.Options{BlockSize: 1 << 20, ShardSize: 32 << 20})
	s := set.stream(t, StreamOptions{Shuffle: true, GlobalBatch: 1024, Epochs: 3, Tuning: Tuning{Workers: 2}})
	n := 0
	for b, err := range s.Batches(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		n += len(b.Samples)
	}
	if st := s.Stats(); st.Evicted > 0 || st.Blocks > 3*set.Info().Blocks || n != 3*len(samples) {
		t.Errorf("%d samples; %d blocks were evicted, %d read of %d, with a budget of %d", n, st.Evicted, st.Blocks, set.Info().Blocks, s.Info().Memory)
	}
}
