package reader

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/internal/format/names"
	"github.com/shardtool/shardtool/internal/testset"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/reader/check"
)

// far is a store that is as slow to answer as a remote one, and counts.
type far struct {
	objstore.Store
	requests                         int
	delay                            time.Duration
	changed                          atomic.Int64 // delay from now on, when not 0
	reads, infos, flying, mostFlying atomic.Int64
	down                             atomic.Bool
}

var errDown = errors.New("the network is down")

func (f *far) Traits() objstore.Traits { return objstore.Traits{Requests: f.requests} }

func (f *far) Open(ctx context.Context, name string) (objstore.Object, error) {
	o, err := f.Store.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	return &farObject{o, f}, nil
}

type farObject struct {
	objstore.Object
	f *far
}

func (o *farObject) Info(ctx context.Context) (objstore.Info, error) {
	o.f.infos.Add(1)
	return o.Object.Info(ctx)
}

func (o *farObject) ReadAt(ctx context.Context, p []byte, off int64) error {
	o.f.reads.Add(1)
	n := o.f.flying.Add(1)
	defer o.f.flying.Add(-1)
	for most := o.f.mostFlying.Load(); n > most && !o.f.mostFlying.CompareAndSwap(most, n); most = o.f.mostFlying.Load() {
		continue
	}
	delay := cmp.Or(o.f.changed.Load(), int64(o.f.delay))
	select {
	case <-time.After(time.Duration(rand.Int64N(2*delay + 1))):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if o.f.down.Load() {
		return errDown
	}
	return o.Object.ReadAt(ctx, p, off)
}

// TestRemoteStreams: many requests in flight with two workers, one a piece, none for sizes; the
// same batches.
func TestRemoteStreams(t *testing.T) {
	watch(t)
	store := &far{Store: mem.New(), requests: 16, delay: time.Millisecond}
	for _, kind := range []testset.Options{{BlockSize: 16 << 10, ShardSize: 200 << 10}, {BlockSize: 16 << 10, ShardSize: 200 << 10, Plain: true}} {
		store.Store = mem.New()
		set := newStreamed(t, store, mixed(2000), kind)
		for _, o := range []StreamOptions{
			{Shuffle: true, GlobalBatch: 64, Epochs: 2, Order: OrderOptions{Lanes: 24, Delay: 4}},
			{Shuffle: true, GlobalBatch: 64, Epochs: 2, World: 2, Rank: 1, Order: OrderOptions{Lanes: 8, RunBlocks: 4, Delay: 2}},
			{GlobalBatch: 100, Epochs: 1},
			{GlobalBatch: 100, Epochs: 1, World: 3},
			{Shuffle: true, GlobalBatch: 64, Epochs: 1, Order: OrderOptions{Lanes: 24, Delay: 4}, Tuning: Tuning{Memory: 1 << 20}},
			{Shuffle: true, GlobalBatch: 64, Epochs: 1, Order: OrderOptions{Lanes: 24, Delay: 4}, Tuning: Tuning{Requests: 3}},
			{Shuffle: true, GlobalBatch: 64, Epochs: 1, Order: OrderOptions{Lanes: 24, Delay: 4}, Tuning: Tuning{Requests: 1}},
		} {
			o.Tuning.Workers = 2
			store.reads.Store(0)
			store.infos.Store(0)
			store.mostFlying.Store(0)
			f := set.follow(t, o)
			f.rest(t)
			stats := f.Stats()
			f.Close()
			most := cmp.Or(int64(o.Tuning.Requests), 16)
			if n := store.mostFlying.Load(); n > most || (n <= most/4 && o.Tuning.Memory == 0) {
				t.Errorf("%+v: %d requests in flight, want up to %d", o, n, most)
			}
			if n := store.infos.Load(); n > 0 {
				t.Errorf("%+v: asked for the sizes of %d objects", o, n)
			}
			if n := uint64(store.reads.Load()); n > stats.Blocks+uint64(set.NumShards()) {
				t.Errorf("%+v: %d reads for %d blocks", o, n, stats.Blocks)
			}
			if o.Tuning.Memory > 0 && stats.Held > o.Tuning.Memory {
				t.Errorf("%+v: %d bytes held", o, stats.Held)
			}
		}
	}
}

// TestRemoteStorageOrder: the same for samples in storage order and for Verify.
func TestRemoteStorageOrder(t *testing.T) {
	watch(t)
	samples := mixed(2000)
	store := &far{Store: build(t, samples, testset.Options{BlockSize: 16 << 10, ShardSize: 200 << 10}), requests: 16, delay: time.Millisecond}
	for _, memory := range []int64{0, 1 << 20} {
		d := open(t, store, Options{Workers: 2, Memory: memory})
		for _, err := range d.Indexes(t.Context()) { // which may be read beside blocks
			if err != nil {
				t.Fatal(err)
			}
		}
		store.mostFlying.Store(0)
		n := 0
		for s, err := range d.Samples(t.Context(), Range{}) {
			if err != nil {
				t.Fatal(err)
			}
			if err := equal(s, n, samples[n]); err != nil {
				t.Fatal(err)
			}
			n++
		}
		if n != len(samples) {
			t.Fatalf("%d samples of %d", n, len(samples))
		}
		if n := store.mostFlying.Swap(0); n > 16 || n <= 4 && memory == 0 {
			t.Errorf("%d requests in flight, want up to 16", n)
		}
		for _, deep := range []bool{false, true} {
			report, err := check.Verify(t.Context(), d.Store(), check.Options{Deep: deep})
			if err != nil || !report.OK() {
				t.Fatal(err, report.Faults)
			}
			if n := store.mostFlying.Swap(0); n > 2*16 || n <= 4 { // blocks, and indexes beside them
				t.Errorf("verify, deep %v: %d requests in flight", deep, n)
			}
		}
		d.Close()
	}
}

// TestRemoteIsDown: whatever a store's own retries cannot mend ends the stream, also where damage
// would be skipped, and leaves no goroutine.
func TestRemoteIsDown(t *testing.T) {
	watch(t)
	store := &far{Store: mem.New(), requests: 8, delay: time.Millisecond}
	set := newStreamed(t, store, mixed(1000), testset.Options{BlockSize: 16 << 10, ShardSize: 200 << 10})
	s := set.stream(t, StreamOptions{Shuffle: true, GlobalBatch: 16, Epochs: 0, Order: OrderOptions{Lanes: 8}, Tuning: Tuning{Workers: 2}, Faults: Faults{SkipCorrupt: true, MaxSkippedShare: 1}})
	for i := 0; ; i++ {
		_, err := s.Next(t.Context())
		if err == nil {
			store.down.Store(i >= 3)
			continue
		}
		if !errors.Is(err, errDown) || s.Stats().Skipped > 0 {
			t.Fatal(err, s.Stats())
		}
		break
	}
	for _, err := range set.Samples(t.Context(), Range{}) {
		if err != nil && !errors.Is(err, errDown) {
			t.Fatal(err)
		}
	}
}

// TestRemoteFindsDamage: an object that was cut, one with a bit turned, one that is missing.
func TestRemoteFindsDamage(t *testing.T) {
	watch(t)
	samples := mixed(400)
	whole := build(t, samples, testset.Options{BlockSize: 9000, ShardSize: 60_000})
	set := &streamed{open(t, whole, Options{}), samples}
	for i, l := range blocksOf(t, set.Dataset) {
		if i%5 != 0 {
			continue
		}
		copied := whole.Clone()
		store := &far{Store: copied, requests: 8}
		switch i % 3 {
		case 0:
			set.flipped(t, copied, l)
		case 1:
			put(t, copied, l.shard.Name, object(t, whole, l.shard.Name)[:l.offset+int64(l.stored)-1])
		case 2:
			if err := copied.Delete(t.Context(), l.shard.Name); err != nil {
				t.Fatal(err)
			}
		}
		damaged := &streamed{open(t, store, Options{Workers: 2}), samples}
		f := damaged.follow(t, StreamOptions{Shuffle: true, GlobalBatch: 8, Epochs: 1, Seed: uint64(i), Order: OrderOptions{Lanes: 3, Delay: 2}})
		if i%3 == 0 {
			if err := f.untilNeeded(t, l.has); !Damaged(err) {
				t.Fatal(err)
			}
			continue
		}
		var err error
		for err == nil {
			_, err = f.Next(t.Context())
		}
		if errors.Is(err, io.EOF) || !Damaged(err) {
			t.Fatalf("block %d: %v", i, err)
		}
	}
}

// TestRemoteOpen: a data set of 100,000 shards is opened by a handful of requests, and its order
// read by one or two more.
func TestRemoteOpen(t *testing.T) {
	const shards, blocks = 100_000, 10
	store := &far{Store: manyShards(t, shards, blocks), requests: 16}
	d := open(t, store, Options{})
	if n := store.reads.Load() + store.infos.Load(); n > 8 {
		t.Errorf("opening took %d requests", n)
	}
	table, err := d.OrderTable(t.Context())
	if err != nil || len(table.Samples) != shards*blocks || len(table.ShardFirst) != shards || table.ShardFirst[shards-1] != (shards-1)*blocks {
		t.Fatal(len(table.Samples), len(table.ShardFirst), err)
	}
	if n := store.reads.Load() + store.infos.Load(); n > 8+2 {
		t.Errorf("the order took %d requests", n)
	}
}

// manyShards is the tables of a data set that has nothing else.
func manyShards(t *testing.T, shards, blocks int) *mem.Store {
	t.Helper()
	const samples = 3
	noise := rand.NewChaCha8([32]byte{1})
	var m metadata.Manifest
	m.Generation = 1
	m.Fields = []format.FieldTotal{{Name: "x", Samples: uint64(shards * blocks * samples), Bytes: uint64(shards * blocks * samples), Min: 1, Max: 1}}
	for i := range shards {
		s := metadata.ShardEntry{ShardInfo: metadata.ShardInfo{Name: fmt.Sprintf("s-%06d.tar", i), Size: uint64(1024 + blocks*1024*samples), Tail: 500,
			Samples: uint64(blocks * samples), Blocks: uint64(blocks), Rows: uint64(blocks), FirstKey: "a", LastKey: "b"}}
		_, _ = noise.Read(s.Hash[:])
		for range blocks {
			s.Rows = append(s.Rows, format.Row{Stored: 1024 * samples, Decoded: 1024 * samples, Samples: samples, Codec: format.CodecBytes})
		}
		m.Shards = append(m.Shards, s)
	}
	raw, hash, _, err := metadata.EncodeTables(&m)
	if err != nil {
		t.Fatal(err)
	}
	below := mem.New()
	name := names.Tables(hash)
	put(t, below, name, raw)
	tables, err := metadata.OpenTables(func(p []byte, off int64) error { copy(p, raw[off:]); return nil }, int64(len(raw)))
	if err != nil {
		t.Fatal(err)
	}
	put(t, below, format.ManifestName, tables.Summary(name).Encode())
	return below
}
