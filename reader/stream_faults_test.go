package reader

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/internal/order/ledger"
	"github.com/shardtool/shardtool/internal/testset"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/storetest"
)

// located is a block and where it lies.
type located struct {
	shard  metadata.ShardInfo
	block  int
	offset int64
	stored int
	first  uint64 // number of its first sample
	count  uint64
}

// blocksOf lists all blocks of a data set.
func blocksOf(t testing.TB, d *Dataset) (all []located) {
	t.Helper()
	for i := range d.NumShards() {
		info, err := d.Shard(t.Context(), i)
		if err != nil {
			t.Fatal(err)
		}
		sh, err := d.catalog.Shard(t.Context(), i)
		if err != nil {
			t.Fatal(err)
		}
		for b := range int(info.Blocks) {
			j := sh.BlockRange(b, 1)
			all = append(all, located{info, b, j.Offset, j.Plan().Stored, j.First, uint64(sh.Rows[j.From].Samples)})
		}
	}
	return all
}

func (l *located) has(number uint64) bool { return number >= l.first && number < l.first+l.count }

// flipped is a copy of the data set with one bit of a block turned.
func (d *streamed) flipped(t testing.TB, store objstore.Store, blocks ...located) *streamed {
	t.Helper()
	data := map[string][]byte{}
	for _, l := range blocks {
		if data[l.shard.Name] == nil {
			data[l.shard.Name] = slices.Clone(object(t, store, l.shard.Name))
		}
		data[l.shard.Name][l.offset+rand.Int64N(int64(l.stored))] ^= 1 << rand.IntN(8)
	}
	for name, bytes := range data {
		put(t, store, name, bytes)
	}
	return &streamed{open(t, store, Options{Workers: 2}), d.samples}
}

// untilNeeded reads until a batch needs a sample that is bad: it must be the one that fails, with
// all before it right.
func (f *follower) untilNeeded(t testing.TB, bad func(number uint64) bool) error {
	t.Helper()
	for {
		refs, info, planErr := f.cursor.NextBatch(nil, f.split)
		needs := false
		for _, r := range refs {
			needs = needs || bad(r.Number)
		}
		b, err := f.Next(t.Context())
		if (err != nil) != (needs || planErr != nil) {
			t.Fatalf("batch at %d/%d needs the bad block: %v, the stream says %v", info.Epoch, info.Position, needs, err)
		}
		if err != nil {
			if _, again := f.Next(t.Context()); again != err {
				t.Fatalf("the error does not stick: %v, then %v", err, again)
			}
			return err
		}
		(&expected{Batch: b, set: f.set, refs: refs}).check(t)
	}
}

var faultOrders = []StreamOptions{
	{GlobalBatch: 16},
	{Shuffle: true, GlobalBatch: 8, Order: OrderOptions{Lanes: 4, Delay: 3}},
	{Shuffle: true, GlobalBatch: 30, World: 3, Rank: 1, Order: OrderOptions{Lanes: 6, RunBlocks: 3, Delay: 2}, Faults: Faults{SkipCorrupt: true, MaxSkippedShare: 1e-9}},
}

// TestStreamFindsDamage turns a bit of every block.
func TestStreamFindsDamage(t *testing.T) {
	watch(t)
	samples := mixed(120)
	for kind, o := range ways {
		if kind == "one" {
			continue
		}
		for _, disk := range []bool{false, true} {
			store := build(t, samples, o)
			set := &streamed{open(t, store, Options{}), samples}
			for i, l := range blocksOf(t, set.Dataset) {
				if disk && i%4 != 0 {
					continue
				}
				var copied objstore.Store = store.Clone()
				if disk {
					copied = onDisk(t, store)
				}
				so := faultOrders[i%len(faultOrders)]
				so.Epochs, so.Seed = 1, uint64(i)
				f := set.flipped(t, copied, l).follow(t, so)
				err := f.untilNeeded(t, l.has)
				if errors.Is(err, io.EOF) && so.World > 1 {
					continue // another rank's
				}
				var at *format.PosError
				if !errors.As(err, &at) || at.Shard != l.shard.Name || at.Block != l.block || at.Offset < l.offset || at.Offset >= l.offset+int64(l.stored) ||
					!errors.Is(err, format.ErrCorrupt) || errors.Is(err, ledger.ErrFull) != (so.Faults.SkipCorrupt) {
					t.Fatalf("%s: block %d of %s at %d: %v", kind, l.block, l.shard.Name, l.offset, err)
				}
				if n := f.Stats().Rereads; n == 0 {
					t.Fatalf("%s: damage was believed at first sight", kind)
				}
				f.Close()
			}
		}
	}
}

// TestStreamWrongObjects: shards that are cut, missing or in each other's place.
func TestStreamWrongObjects(t *testing.T) {
	watch(t)
	samples := mixed(200)
	for _, o := range []testset.Options{{BlockSize: 2000, ShardSize: 20_000}, {BlockSize: 2000, ShardSize: 20_000, Plain: true}} {
		store := build(t, samples, o)
		set := open(t, store, Options{})
		a, _ := set.Shard(t.Context(), 1)
		b, _ := set.Shard(t.Context(), 3)
		dataA, dataB := object(t, store, a.Name), object(t, store, b.Name)
		in := func(number uint64, shards ...int) bool {
			at, err := set.Locate(t.Context(), number)
			return err == nil && slices.Contains(shards, at.Shard)
		}
		for name, damage := range map[string]func(objstore.Store) func(uint64) bool{
			"cut": func(s objstore.Store) func(uint64) bool {
				put(t, s, a.Name, dataA[:len(dataA)-100])
				return func(n uint64) bool { return in(n, 1) }
			},
			"missing": func(s objstore.Store) func(uint64) bool {
				if err := s.Delete(t.Context(), a.Name); err != nil {
					t.Fatal(err)
				}
				return func(n uint64) bool { return in(n, 1) }
			},
			"swapped": func(s objstore.Store) func(uint64) bool {
				put(t, s, a.Name, dataB)
				put(t, s, b.Name, dataA)
				return func(n uint64) bool { return in(n, 1, 3) }
			},
		} {
			for _, disk := range []bool{false, true} {
				var copied objstore.Store = store.Clone()
				if disk {
					copied = onDisk(t, store)
				}
				bad := damage(copied)
				for _, so := range faultOrders[:2] {
					so.Epochs = 1
					f := (&streamed{open(t, copied, Options{Workers: 2}), samples}).follow(t, so)
					err := f.untilNeeded(t, bad)
					if !errors.Is(err, format.ErrCorrupt) || !strings.Contains(err.Error(), a.Name) && !(name == "swapped" && strings.Contains(err.Error(), b.Name)) {
						t.Fatalf("%s: %v", name, err)
					}
				}
			}
		}
	}
}

// TestStreamReplaced: another object in a shard's place while the stream runs. It stops even where
// damage is skipped.
func TestStreamReplaced(t *testing.T) {
	watch(t)
	samples := mixed(300)
	store := build(t, samples, testset.Options{BlockSize: 2000, ShardSize: 20_000})
	set := &streamed{open(t, store, Options{Workers: 1}), samples}
	info, _ := set.Shard(t.Context(), set.NumShards()-1)
	if _, err := set.Get(t.Context(), set.NumSamples()-1); err != nil { // the stream has seen the object
		t.Fatal(err)
	}
	f := set.follow(t, StreamOptions{GlobalBatch: 10, Epochs: 1, Tuning: Tuning{Memory: 1 << 20}, Faults: Faults{SkipCorrupt: true, MaxSkippedShare: 1}})
	f.next(t).check(t)
	data := slices.Clone(object(t, store, info.Name))
	for i := range data {
		data[i] ^= 0x55
	}
	put(t, store, info.Name, data)
	reopen(t, set.Dataset, info.Name)
	first, _ := set.FirstSample(t.Context(), set.NumShards()-1)
	for {
		b, err := f.Next(t.Context())
		if err == nil {
			for i := range b.Samples {
				if b.Samples[i].Number >= first {
					t.Fatalf("sample %d of the object that is gone", b.Samples[i].Number)
				}
			}
			continue
		}
		if !errors.Is(err, objstore.ErrChanged) || !strings.Contains(err.Error(), info.Name) {
			t.Fatal(err)
		}
		break
	}
	if n := len(f.Skipped()); n != 0 {
		t.Errorf("%d blocks of a replaced object count as damage", n)
	}
}

// TestStreamHeals: bytes that are wrong once, as memory and cables make them.
func TestStreamHeals(t *testing.T) {
	watch(t)
	samples := mixed(200)
	for _, plain := range []bool{false, true} {
		store := &hooked{Store: build(t, samples, testset.Options{BlockSize: 2000, ShardSize: 20_000, Plain: plain})}
		set := &streamed{open(t, store, Options{Workers: 2}), samples}
		seen := map[string]bool{}
		store.read = func(name string, p []byte, off int64) error {
			store.mu.Lock()
			defer store.mu.Unlock()
			at := fmt.Sprint(name, off)
			if strings.Contains(name, ".tar") && !seen[at] {
				p[len(p)/2] ^= 4
			}
			seen[at] = true
			return nil
		}
		f := set.follow(t, StreamOptions{Shuffle: true, GlobalBatch: 16, Epochs: 2, Order: OrderOptions{Lanes: 4, Delay: 3}, Faults: Faults{SkipCorrupt: true}})
		f.rest(t)
		if got := f.Stats(); got.Rereads != set.Info().Blocks || got.Skipped != 0 {
			t.Errorf("the first read of each of %d blocks was wrong: %+v", set.Info().Blocks, got)
		}
	}
}

// TestStreamSkips leaves damaged blocks out: the same holes for every rank and world, and no other
// sample moves. A checkpoint counts the holes of delivered batches, not those read ahead.
func TestStreamSkips(t *testing.T) {
	watch(t)
	samples := mixed(300)
	store := build(t, samples, testset.Options{BlockSize: 2500, ShardSize: 20_000})
	clean := &streamed{open(t, store, Options{}), samples}
	all := blocksOf(t, clean.Dataset)
	bad := []located{all[0], all[7], all[8], all[20], all[len(all)-1]}
	set := clean.flipped(t, store, bad...)
	of := func(number uint64) int { return slices.IndexFunc(bad, func(l located) bool { return l.has(number) }) }
	for i, o := range []StreamOptions{
		{GlobalBatch: 32}, {Shuffle: true, GlobalBatch: 16, Order: OrderOptions{Lanes: 4, Delay: 3}}, {Shuffle: true, GlobalBatch: 250, Tuning: Tuning{Memory: 1 << 20}},
		{Shuffle: true, GlobalBatch: 40, World: 3, Rank: 1, Order: OrderOptions{Lanes: 6, Delay: 2}}, {GlobalBatch: 25, World: 5, Rank: 4, Tail: "pad"},
	} {
		o.Epochs, o.Faults.SkipCorrupt, o.Faults.MaxSkippedShare = 2, true, 1
		f := set.follow(t, o)
		met := map[int]bool{}
		for e := f.next(t); e != nil; e = f.next(t) {
			e.skipped = func(n uint64) bool { return of(n) >= 0 }
			e.check(t)
			count := uint64(0)
			for _, r := range e.refs {
				if k := of(r.Number); k >= 0 {
					met[k] = true
				}
			}
			for k := range met {
				count += bad[k].count
			}
			cp, err := e.Checkpoint()
			if err != nil || cp.Dataset.Skipped != count || len(f.Skipped()) != len(met) || (cp.Dataset.SkipHash == "") != (len(met) == 0) {
				t.Fatalf("order %d at %d/%d: the checkpoint says %d, %d were skipped in %d blocks; the ledger has %d; %v",
					i, e.Epoch, e.Position, cp.Dataset.Skipped, count, len(met), len(f.Skipped()), err)
			}
		}
		if o.World == 0 && len(met) != len(bad) {
			t.Fatalf("order %d met %d damaged blocks", i, len(met))
		}
		for _, b := range f.Skipped() {
			if k := of(b.First); k < 0 || bad[k].shard.Name != b.Shard || bad[k].block != b.Block || bad[k].first != b.First || bad[k].count != b.Samples || b.Reason == "" {
				t.Errorf("ledger: %+v", b)
			}
		}
	}
}

// TestStreamSkipCeiling: MaxSkipped holds over restarts, too.
func TestStreamSkipCeiling(t *testing.T) {
	watch(t)
	samples := mixed(300)
	store := build(t, samples, testset.Options{BlockSize: 2500, ShardSize: 20_000})
	clean := &streamed{open(t, store, Options{}), samples}
	all := blocksOf(t, clean.Dataset)
	a, b := all[3], all[30]
	set := clean.flipped(t, store, a, b)
	both := a.count + b.count
	o := StreamOptions{GlobalBatch: 10, Epochs: 1, Faults: Faults{SkipCorrupt: true}}
	run := func(o StreamOptions) (s *Stream, err error) {
		s = set.stream(t, o)
		for _, err := range s.Batches(t.Context()) {
			if err != nil {
				return s, err
			}
		}
		return s, nil
	}
	for _, c := range []struct {
		most  uint64
		share float64
		fails bool
	}{
		{both, 0, false}, {both - 1, 0, true}, {a.count, 0, true}, {1, 0, true},
		{0, (float64(both) + 0.5) / 300, false}, {0, (float64(both) - 0.5) / 300, true}, {0, 0, true}, // 0.1 % of 300 is nothing
	} {
		p := o
		p.Faults.MaxSkipped, p.Faults.MaxSkippedShare = c.most, c.share
		s, err := run(p)
		if errors.Is(err, ledger.ErrFull) != c.fails || (err == nil) == c.fails {
			t.Errorf("at most %d or %v of 300: %v", c.most, c.share, err)
		}
		if err == nil && s.Stats().Skipped != both {
			t.Errorf("%d were skipped", s.Stats().Skipped)
		}
	}
	// Stopped between the two, with the ledger and without.
	o.Faults.MaxSkipped = both - 1
	s := set.stream(t, o)
	for s.Stats().Skipped == 0 {
		if _, err := s.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	cp, err := s.Checkpoint()
	if err != nil {
		t.Fatal(err)
	}
	text, err := ledger.Append(nil, s.Skipped())
	if err != nil {
		t.Fatal(err)
	}
	o.Checkpoint = throughText(t, cp)
	if o.Faults.Skipped, err = ledger.Decode(text); err != nil || len(o.Faults.Skipped) != 1 {
		t.Fatalf("%s: %v", text, err)
	}
	if s, err := run(o); !errors.Is(err, ledger.ErrFull) || s.Stats().Skipped != a.count {
		t.Errorf("the ledger was forgotten: %v", err)
	}
	o.Faults.MaxSkipped = both
	if s, err := run(o); err != nil || s.Stats().Skipped != both {
		t.Errorf("%v, %+v", err, s.Stats())
	}
}

// TestStreamStoreFails lets each operation of the store fail: the error arrives, sticks and is
// never taken for damage; what came before it is right.
func TestStreamStoreFails(t *testing.T) {
	watch(t)
	samples := mixed(60)
	for _, plain := range []bool{false, true} {
		inner := build(t, samples, testset.Options{BlockSize: 2500, ShardSize: 12_000, Plain: plain})
		for _, o := range []StreamOptions{{GlobalBatch: 10}, {Shuffle: true, GlobalBatch: 10, Order: OrderOptions{Lanes: 3, Delay: 3}}} {
			o.Faults.SkipCorrupt, o.Faults.MaxSkippedShare, o.Epochs, o.Tuning.Workers = true, 1, 1, 1
			healed := 0
			ops := storetest.EachFault(t, func(*testing.T) objstore.Store { return inner }, storetest.Fault{Short: o.Shuffle},
				func(t *testing.T, store *storetest.Faulty) {
					err := streamAll(t.Context(), store, o, samples)
					if store.Fired() && err == nil { // what could not be mapped is read, and blocks read together are tried one by one
						healed++
					} else if errors.Is(err, storetest.ErrInjected) != store.Fired() || err != nil != store.Fired() {
						t.Errorf("fired %v: %v", store.Fired(), err)
					}
				})
			if ops < 15 || healed > 0 && o.Shuffle && !plain || healed > ops-8 {
				t.Errorf("%d operations, %d failures of which mattered nothing", ops, healed)
			}
		}
	}
}

func streamAll(ctx context.Context, store objstore.Store, o StreamOptions, samples []testset.Sample) error {
	d, err := Open(ctx, store, Options{Workers: 1})
	if err != nil {
		return err
	}
	defer d.Close()
	s, err := d.Stream(ctx, o)
	if err != nil {
		return err
	}
	defer s.Close()
	n := 0
	for b, err := range s.Batches(ctx) {
		if err != nil {
			if _, again := s.Next(ctx); again != err {
				return fmt.Errorf("%w does not stick", err)
			}
			return err
		}
		for i := range b.Samples {
			if err := equal(&b.Samples[i], int(b.Samples[i].Number), samples[b.Samples[i].Number]); err != nil {
				return err
			}
			n++
		}
	}
	if n != len(samples) {
		return fmt.Errorf("%d samples of %d and no error", n, len(samples))
	}
	return nil
}
