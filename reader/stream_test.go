package reader

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"testing"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/local"
	"github.com/shardtool/shardtool/objstore/mem"
	"github.com/shardtool/shardtool/reader/internal/testset"
	"github.com/shardtool/shardtool/reader/order"
)

// payload is the content of sample i's field: recognisable, of varying size.
func payload(i int) []byte {
	rng := rand.New(rand.NewPCG(uint64(i), 7))
	p := make([]byte, 1+rng.IntN(3000))
	for k := range p {
		p[k] = byte(i + k*int(rng.Uint32()&1))
	}
	return p
}

func numbered(n int) iter.Seq[testset.Sample] {
	return func(yield func(testset.Sample) bool) {
		for i := range n {
			if !yield(testset.Sample{Key: fmt.Sprintf("d%d/k%06d", i%7, i), Fields: []testset.Field{{Name: "bin", Data: payload(i)}, {Name: "id", Data: fmt.Append(nil, i)}}}) {
				return
			}
		}
	}
}

// streamSet builds a data set of n samples in small blocks and shards.
func streamSet(t testing.TB, store objstore.Store, n int, plain bool) *Dataset {
	t.Helper()
	ctx := context.Background()
	if _, err := testset.Build(ctx, store, numbered(n), testset.Options{Plain: plain, BlockSize: 16 << 10, ShardSize: 200 << 10}); err != nil {
		t.Fatal(err)
	}
	ds, err := Open(ctx, store, Options{Workers: 3})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ds.Close() })
	return ds
}

// want is the numbers that the plan itself gives, batch by batch.
func want(t testing.TB, s *Stream, o StreamOptions, from *order.Checkpoint) [][]uint64 {
	t.Helper()
	epoch, position := o.Epoch, uint64(0)
	if from != nil {
		epoch, position = from.Epoch, from.Position
	}
	cur, err := s.Plan().Seek(epoch, position)
	if err != nil {
		t.Fatal(err)
	}
	cur.Until(o.Epoch + o.Epochs)
	var out [][]uint64
	for {
		refs, _, err := cur.NextBatch(nil, s.split)
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		var b []uint64
		for _, r := range refs {
			b = append(b, r.Number)
		}
		out = append(out, b)
	}
}

// check compares a batch with the numbers and with the content of its samples.
func check(t testing.TB, b *Batch, numbers []uint64) {
	t.Helper()
	if len(b.Samples) != len(numbers) {
		t.Fatalf("batch at %d/%d has %d samples, not %d", b.Epoch, b.Position, len(b.Samples), len(numbers))
	}
	for i := range b.Samples {
		s := &b.Samples[i]
		if s.Number != numbers[i] {
			t.Fatalf("batch at %d/%d: sample %d is number %d, not %d", b.Epoch, b.Position, i, s.Number, numbers[i])
		}
		if s.Padding {
			continue
		}
		n := int(s.Number)
		data, _ := s.Field("bin")
		id, _ := s.Field("id")
		if string(s.Key) != fmt.Sprintf("d%d/k%06d", n%7, n) || !bytes.Equal(data, payload(n)) || string(id) != fmt.Sprint(n) {
			t.Fatalf("sample %d has key %q, id %q, %d bytes", n, s.Key, id, len(data))
		}
	}
}

func TestStreamDeliversTheOrder(t *testing.T) {
	ctx := context.Background()
	dir, err := local.New(t.TempDir(), local.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	for name, ds := range map[string]*Dataset{
		"mem": streamSet(t, mem.New(), 700, false), "local": streamSet(t, dir, 700, false), "plain": streamSet(t, mem.New(), 700, true),
	} {
		for _, o := range []StreamOptions{
			{},
			{Shuffle: true},
			{Shuffle: true, Lanes: 5, Delay: 3, Head: 2, GlobalBatch: 37, World: 4, Rank: 2},
			{Shuffle: true, Lanes: 8, RunBlocks: 4, Delay: 3, GlobalBatch: 64, Tail: order.TailPad},
			{Shuffle: true, WholeShards: true, Lanes: 2, Delay: 2, GlobalBatch: 50, Tail: order.TailDrop},
			{GlobalBatch: 33, World: 3, Rank: 1},
			{Shuffle: true, Lanes: 12, RunBlocks: 3, Delay: 4, GlobalBatch: 100, Affinity: order.AffinityRun},
		} {
			for _, memory := range []int64{0, 1 << 20} { // a megabyte is less than any window here: evicts, copies
				o.Epochs, o.Memory = 2, memory
				s, err := ds.Stream(ctx, o)
				if err != nil {
					t.Fatal(err)
				}
				numbers := want(t, s, o, nil)
				for i, w := range numbers {
					b, err := s.Next(ctx)
					if err != nil {
						t.Fatalf("%s %+v: batch %d of %d: %v", name, o, i, len(numbers), err)
					}
					check(t, b, w)
				}
				if _, err := s.Next(ctx); !errors.Is(err, io.EOF) {
					t.Fatalf("%s %+v: after the last batch: %v", name, o, err)
				}
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

func TestStreamEvictsWhenItMust(t *testing.T) {
	ctx := context.Background()
	ds := streamSet(t, mem.New(), 4000, false)
	o := StreamOptions{Shuffle: true, Lanes: 64, Delay: 16, GlobalBatch: 256, Epochs: 1, Memory: 1 << 20, Workers: 1}
	s, err := ds.Stream(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, w := range want(t, s, o, nil) {
		b, err := s.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		check(t, b, w)
		s.buffers.mu.Lock()
		if total := s.buffers.total; total > 4<<20 {
			t.Errorf("%d bytes are held with a budget of %d", total, o.Memory)
		}
		s.buffers.mu.Unlock()
	}
	if s.Stats().Evicted == 0 {
		t.Error("nothing was evicted: the test does not test")
	}
}

func TestStreamResumesAtEveryBatch(t *testing.T) {
	ctx := context.Background()
	ds := streamSet(t, mem.New(), 300, false)
	o := StreamOptions{Shuffle: true, Lanes: 6, Delay: 3, GlobalBatch: 16, Epochs: 2, Seed: 5}
	s, err := ds.Stream(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var marks []order.Checkpoint
	for b, err := range s.Batches(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		cp, err := b.Checkpoint()
		if err != nil {
			t.Fatal(err)
		}
		now, err := s.Checkpoint()
		if err != nil || now.Position != cp.Position || now.Epoch != cp.Epoch {
			t.Fatalf("checkpoints of batch and stream differ: %+v, %+v, %v", cp, now, err)
		}
		marks = append(marks, cp)
	}
	for _, cp := range marks {
		r := StreamOptions{Checkpoint: &cp, Epochs: 2}
		s, err := ds.Stream(ctx, r)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range want(t, s, r, &cp) {
			b, err := s.Next(ctx)
			if err != nil {
				t.Fatal(err)
			}
			check(t, b, w)
		}
		if _, err := s.Next(ctx); !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		s.Close()
	}
}
