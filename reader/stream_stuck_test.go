package reader

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/testset"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
)

// sized are samples of these sizes.
func sized(sizes ...int) []testset.Sample {
	samples := make([]testset.Sample, len(sizes))
	for i, n := range sizes {
		samples[i] = testset.Sample{Key: fmt.Sprintf("%06d", i), Fields: []testset.Field{{Name: "x", Data: bytes.Repeat([]byte{byte(i), byte(i >> 8)}, n/2)}}}
	}
	return samples
}

// TestStreamMixedBlocks has blocks of very different sizes in a budget that they do not fit: memory
// that one of them gave back is of no use to the next.
func TestStreamMixedBlocks(t *testing.T) {
	watch(t)
	random := rand.New(rand.NewPCG(3, 1))
	sizes := make([]int, 150)
	for i := range sizes {
		sizes[i] = 2 << random.IntN(18)
	}
	samples := sized(sizes...)
	for _, plain := range []bool{false, true} {
		set := newStreamed(t, mem.New(), samples, testset.Options{BlockSize: 1, ShardSize: 1 << 20, Plain: plain})
		for _, batch := range []int{1, 3, 10, 40, 150, 400} {
			for hold := range 4 {
				o := StreamOptions{
					Shuffle: batch%2 == 1, GlobalBatch: batch, Epochs: 2, Hold: hold,
					Order:  OrderOptions{Lanes: 3, RunBlocks: uint32(1 + hold)},
					Tuning: Tuning{Memory: 1 << 20, Workers: 2},
				}
				if o.Shuffle {
					o.Order.Delay = 8
				}
				f := set.follow(t, o)
				var held []*expected
				for e := f.next(t); e != nil; e = f.next(t) {
					if held = append(held, e); len(held) >= max(hold, 1) {
						at := random.IntN(len(held))
						held[at].check(t)
						if held[at].Release(); hold > 0 {
							held = append(held[:at], held[at+1:]...)
						} else {
							held = held[:0]
						}
					}
				}
				f.Close()
			}
		}
	}
}

// TestStreamTooLarge: a block that does not fit the budget is an error at the batch that needs it,
// and not before.
func TestStreamTooLarge(t *testing.T) {
	watch(t)
	sizes := make([]int, 40)
	for i := range sizes {
		sizes[i] = 3000
	}
	const big = 25
	sizes[big] = 3 << 20
	set := newStreamed(t, mem.New(), sized(sizes...), testset.Options{BlockSize: 6000, ShardSize: 60_000})
	for _, o := range []StreamOptions{{GlobalBatch: 5}, {GlobalBatch: 5, Shuffle: true, Order: OrderOptions{Lanes: 2, Delay: 2}}} {
		o.Tuning.Memory, o.Epochs = 1<<20, 1
		f := set.follow(t, o)
		for {
			refs, _, err := f.cursor.NextBatch(nil, f.split)
			if err != nil {
				t.Fatal(err)
			}
			needs := false
			for _, r := range refs {
				needs = needs || r.Number == big || r.Number == big-1 // which share a block
			}
			b, err := f.Next(t.Context())
			if !needs && err == nil {
				if len(b.Samples) != len(refs) {
					t.Fatal("a batch is short")
				}
				continue
			}
			if !needs || !errors.Is(err, format.ErrTooLarge) {
				t.Fatalf("needs the block: %v; %v", needs, err)
			}
			place, _ := set.Locate(t.Context(), big)
			info, _ := set.Shard(t.Context(), place.Shard)
			for _, word := range []string{info.Name, fmt.Sprintf("block %d at ", place.Block), "1048576", "at least 31"} {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("%q does not say %q", err, word)
				}
			}
			if _, again := f.Next(t.Context()); again != err {
				t.Errorf("then: %v", again)
			}
			break
		}
		// The least that the error asks for is enough.
		o.Tuning.Memory = 0
		if n := set.follow(t, o).rest(t); n != 8 {
			t.Errorf("%d batches with the default budget", n)
		}
		o.Tuning.Memory = leastFor(t, set, big)
		if n := set.follow(t, o).rest(t); n != 8 {
			t.Errorf("%d batches with the least budget", n)
		}
	}
}

// leastFor is the size of the block of a sample, as the error states it.
func leastFor(t *testing.T, set *streamed, number uint64) int64 {
	t.Helper()
	place, err := set.Locate(t.Context(), number)
	if err != nil {
		t.Fatal(err)
	}
	sh, err := set.catalog.Shard(t.Context(), place.Shard)
	if err != nil {
		t.Fatal(err)
	}
	j := sh.BlockRange(place.Block, 1)
	return int64(j.Plan().Size)
}

// TestStreamHeld: the error of Next has the number of held batches, and Next continues after a
// release.
func TestStreamHeld(t *testing.T) {
	watch(t)
	set := newStreamed(t, mem.New(), mixed(900), testset.Options{BlockSize: 9000, ShardSize: 60_000})
	for hold := 1; hold < 4; hold++ {
		for _, batch := range []int{10, 300} { // a batch of 300 fills the budget
			f := set.follow(t, StreamOptions{Shuffle: true, GlobalBatch: batch, Epochs: 1, Hold: hold, Order: OrderOptions{Lanes: 8, Delay: 8}, Tuning: Tuning{Memory: 1 << 20}})
			var held []*expected
			for range hold {
				held = append(held, f.next(t))
			}
			for range 2 {
				_, err := f.Next(t.Context())
				if !errors.Is(err, ErrHeld) || !strings.Contains(err.Error(), fmt.Sprintf(": %d are held", hold)) {
					t.Fatalf("hold %d: %v", hold, err)
				}
			}
			for _, e := range held {
				e.check(t)
				e.Release()
			}
			if len(held[0].Samples) != 0 {
				t.Error("a released batch still has samples")
			}
			f.rest(t)
		}
	}
}

// TestStreamReleasedElsewhere: another goroutine releases while Next waits, with a budget that
// batches in hand fill.
func TestStreamReleasedElsewhere(t *testing.T) {
	watch(t)
	set := newStreamed(t, mem.New(), mixed(1500), testset.Options{BlockSize: 9000, ShardSize: 60_000})
	for _, batch := range []int{20, 200, 900} {
		f := set.follow(t, StreamOptions{Shuffle: true, GlobalBatch: batch, Epochs: 2, Hold: 3, Order: OrderOptions{Lanes: 8, Delay: 8}, Tuning: Tuning{Memory: 1 << 20}})
		room := make(chan struct{}, 3)
		hand := make(chan *expected, 3)
		var wg sync.WaitGroup
		wg.Go(func() {
			for e := range hand {
				time.Sleep(200 * time.Microsecond)
				e.check(t)
				e.Release()
				<-room
			}
		})
		for {
			room <- struct{}{}
			e := f.next(t)
			if e == nil {
				break
			}
			hand <- e
		}
		close(hand)
		wg.Wait()
	}
}

// TestStreamContexts: the context of Next ends a wait and nothing else; that of Stream ends
// nothing.
func TestStreamContexts(t *testing.T) {
	watch(t)
	store := &hooked{Store: mem.New()}
	set := newStreamed(t, store, mixed(300), testset.Options{BlockSize: 5000, ShardSize: 40_000})
	gate := make(chan struct{})
	store.read = func(name string, _ []byte, _ int64) error {
		if strings.HasSuffix(name, format.ZstdSuffix) {
			<-gate
		}
		return nil
	}
	opening, end := context.WithCancel(t.Context())
	o := StreamOptions{Shuffle: true, GlobalBatch: 20, Epochs: 1, Order: OrderOptions{Lanes: 4, Delay: 3}}
	s, err := set.Stream(opening, o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	end()
	why := errors.New("no patience")
	for range 3 {
		ctx, cancel := context.WithTimeoutCause(t.Context(), 5*time.Millisecond, why)
		if _, err := s.Next(ctx); !errors.Is(err, why) {
			t.Fatalf("Next: %v", err)
		}
		cancel()
	}
	close(gate)
	n := 0
	for b, err := range s.Batches(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		n += len(b.Samples)
	}
	if n != 300 {
		t.Fatalf("%d samples of 300: a wait that ended lost some", n)
	}
}

// TestStreamClosed: Close ends a Next that waits, and a stream that nobody reads; the data set's
// Close does too.
func TestStreamClosed(t *testing.T) {
	watch(t)
	for _, how := range []string{"stream", "data set"} {
		for _, after := range []int{0, 3} {
			store := &hooked{Store: mem.New()}
			set := newStreamed(t, store, mixed(600), testset.Options{BlockSize: 5000, ShardSize: 40_000})
			gate := make(chan struct{})
			s := set.stream(t, StreamOptions{Shuffle: true, GlobalBatch: 20, Order: OrderOptions{Lanes: 4, Delay: 2}, Tuning: Tuning{Memory: 1 << 20}})
			for range after {
				if _, err := s.Next(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			store.mu.Lock()
			store.read = func(name string, _ []byte, _ int64) error { <-gate; return nil }
			store.mu.Unlock()
			time.AfterFunc(5*time.Millisecond, func() {
				time.AfterFunc(5*time.Millisecond, func() { close(gate) }) // Close waits for reads
				if how == "stream" {
					s.Close()
				} else {
					set.Close()
				}
			})
			var err error
			for err == nil { // a few batches may be ready
				_, err = s.Next(t.Context())
			}
			if !errors.Is(err, fs.ErrClosed) {
				t.Fatalf("Next: %v", err)
			}
			s.Close()
			if _, again := s.Next(t.Context()); !errors.Is(again, fs.ErrClosed) {
				t.Fatalf("Next after Close: %v", again)
			}
		}
	}
}

// TestStreamAbandoned: streams that are closed before their end leave no goroutine and no open
// file; TestMain looks.
func TestStreamAbandoned(t *testing.T) {
	watch(t)
	store := &openCount{Store: inDir(t)}
	set := newStreamed(t, store, mixed(600), testset.Options{BlockSize: 5000, ShardSize: 40_000, Plain: true})
	for i := range 30 {
		s := set.stream(t, StreamOptions{Shuffle: i%2 == 0, GlobalBatch: 1 + i*7, Epochs: 0, Hold: i % 3, Tuning: Tuning{Workers: 1 + i%3}})
		for range i % 5 {
			b, err := s.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer b.Release() // after Close: must do nothing
			if i%3 > 0 {
				b.Release()
			}
		}
		s.Close()
		s.Close()
	}
	set.Close()
	if n := store.open.Load(); n != 0 {
		t.Errorf("%d objects are still open", n)
	}
}

// TestStreamsShareADataset: many streams at once, of several orders and ranks, slow and fast.
func TestStreamsShareADataset(t *testing.T) {
	watch(t)
	for _, plain := range []bool{false, true} {
		set := newStreamed(t, inDir(t), mixed(500), testset.Options{BlockSize: 5000, ShardSize: 40_000, Plain: plain})
		var wg sync.WaitGroup
		for i := range 12 {
			f := set.follow(t, StreamOptions{Shuffle: i%4 > 0, Seed: uint64(i % 2), GlobalBatch: 30, World: 3, Rank: i % 3, Epochs: 2, Tuning: Tuning{Memory: 1 << 20, Workers: 1}})
			wg.Go(func() {
				n := 0
				for {
					refs, _, planErr := f.cursor.NextBatch(nil, f.split)
					b, err := f.Next(t.Context())
					if errors.Is(err, io.EOF) && errors.Is(planErr, io.EOF) {
						break
					}
					if err != nil {
						t.Errorf("stream %d: %v", i, err)
						return
					}
					(&expected{Batch: b, set: set, refs: refs}).check(t)
					if n++; i%5 == 0 {
						time.Sleep(100 * time.Microsecond)
					}
				}
			})
		}
		wg.Wait()
	}
}
