package reader

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/testset"
	"github.com/shardtool/shardtool/objstore"
)

// TestBlocks: from any sample to any other the blocks between come, each once and whole, with the
// samples that were packed.
func TestBlocks(t *testing.T) {
	samples := mixed(300)
	eachKind(t, samples, func(t *testing.T, store objstore.Store) {
		d := open(t, store, Options{Workers: 3})
		for _, span := range [][2]uint64{{0, 0}, {0, 1}, {299, 300}, {7, 7}, {13, 14}, {40, 222}, {151, 0}} {
			to := span[1]
			if to == 0 {
				to = 300
			}
			next := uint64(0)
			for b, err := range d.Blocks(t.Context(), BlockOptions{From: span[0], To: span[1]}) {
				if err != nil {
					t.Fatal(err)
				}
				if next == 0 {
					next = b.First
				}
				if b.First != next || b.First >= to || b.First+uint64(b.Samples) <= span[0] {
					t.Fatalf("%v: block of samples %d and %d more, where %d should begin", span, b.First, b.Samples, next)
				}
				p, err := d.Locate(t.Context(), b.First)
				if err != nil || p.Shard != b.Shard || p.Block != b.Number || p.Index != 0 {
					t.Fatalf("%v: block %d of shard %d, sample %d is at %+v, %v", span, b.Number, b.Shard, b.First, p, err)
				}
				for i := range b.Samples {
					s, err := b.Next()
					if err != nil {
						t.Fatal(err)
					}
					if err := equal(s, int(next)+i, samples[int(next)+i]); err != nil {
						t.Fatal(err)
					}
				}
				if _, err := b.Next(); !errors.Is(err, io.EOF) {
					t.Fatalf("behind the last sample of a block: %v", err)
				}
				next += uint64(b.Samples)
			}
			if span[0] < to && next < to {
				t.Fatalf("%v: it ends at %d", span, next)
			}
		}
	})
}

// TestBlocksTake: blocks that are left out are neither read nor yielded, and those between them
// come as ever.
func TestBlocksTake(t *testing.T) {
	samples := mixed(300)
	eachKind(t, samples, func(t *testing.T, store objstore.Store) {
		d := open(t, store, Options{})
		var want, got []uint64
		asked := 0
		take := func(_ context.Context, b *Block) (bool, error) {
			asked++
			if b.First%3 == 0 {
				want = append(want, b.First)
			}
			return b.First%3 == 0, nil
		}
		for b, err := range d.Blocks(t.Context(), BlockOptions{Take: take}) {
			if err != nil {
				t.Fatal(err)
			}
			s, err := b.Next()
			if err != nil {
				t.Fatal(err)
			}
			if err := equal(s, int(b.First), samples[b.First]); err != nil {
				t.Fatal(err)
			}
			got = append(got, b.First)
		}
		if !slices.Equal(got, want) || uint64(asked) != d.Info().Blocks {
			t.Fatalf("asked about %d of %d blocks, got %v, want %v", asked, d.Info().Blocks, got, want)
		}
		stop := errors.New("stop")
		n := 0
		for _, err := range d.Blocks(t.Context(), BlockOptions{Take: func(context.Context, *Block) (bool, error) { return false, stop }}) {
			n++
			if !errors.Is(err, stop) {
				t.Fatal(err)
			}
		}
		if n != 1 {
			t.Fatalf("an error of Take came %d times", n)
		}
	})
}

// TestBlocksDamaged: damage costs the block that it is in, and no other.
func TestBlocksDamaged(t *testing.T) {
	samples := mixed(300)
	for kind, o := range ways {
		t.Run(kind, func(t *testing.T) {
			store := build(t, samples, o)
			d := open(t, store, Options{})
			info, err := d.Shard(t.Context(), 0)
			if err != nil {
				t.Fatal(err)
			}
			data := slices.Clone(object(t, store, info.Name))
			rows, err := d.Rows(t.Context(), 0)
			if err != nil {
				t.Fatal(err)
			}
			row, at := len(rows)/2, 0
			for _, r := range rows[:row] {
				at += int(r.Stored)
			}
			data[at+int(rows[row].Stored)/2] ^= 1
			bad := open(t, damaged(t, store, info.Name, data), Options{})
			next, lost := uint64(0), 0
			for b, err := range bad.Blocks(t.Context(), BlockOptions{}) {
				if b == nil || b.First != next {
					t.Fatalf("block %+v (%v) where sample %d should be", b, err, next)
				}
				next += uint64(b.Samples)
				if err == nil {
					continue
				}
				if lost++; !Damaged(err) {
					t.Fatal(err)
				}
				if _, again := b.Next(); !errors.Is(again, format.ErrCorrupt) {
					t.Fatalf("the samples of a damaged block: %v", again)
				}
			}
			if lost != 1 || next != uint64(len(samples)) {
				t.Fatalf("%d blocks lost, samples up to %d of %d", lost, next, len(samples))
			}
		})
	}
}

// TestBlocksFailing: what is no damage ends the iteration, whatever the loop does.
func TestBlocksFailing(t *testing.T) {
	store := build(t, mixed(300), testset.Options{BlockSize: 2000, ShardSize: 20000})
	d := open(t, store, Options{Workers: 2})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	n, failed := 0, 0
	for _, err := range d.Blocks(ctx, BlockOptions{}) {
		if n++; n == 3 {
			cancel()
		}
		if err != nil {
			failed++
		}
	}
	if failed != 1 || n == int(d.Info().Blocks) {
		t.Fatalf("%d errors in %d blocks of %d", failed, n, d.Info().Blocks)
	}
	for b, err := range d.Blocks(t.Context(), BlockOptions{From: 5, To: 301}) {
		if b != nil || err == nil {
			t.Fatal("samples beyond the last")
		}
	}
}

// TestBlocksLarge: a block larger than the budget is reported and not read; those around it are
// read.
func TestBlocksLarge(t *testing.T) {
	var samples []testset.Sample
	for _, size := range []int{100, 3 << 20, 50, 400 << 10, 3 << 20} {
		samples = append(samples, testset.Sample{Key: string(rune('a' + len(samples))), Fields: []testset.Field{{Name: "bin", Data: bytes.Repeat([]byte{7}, size)}}})
	}
	store := build(t, samples, testset.Options{BlockSize: 4096, FrameSize: 1 << 20})
	d := open(t, store, Options{Memory: 4 << 20})
	large := 0
	next := uint64(0)
	for b, err := range d.Blocks(t.Context(), BlockOptions{}) {
		if err != nil || b.First != next {
			t.Fatalf("block of sample %d, %v", b.First, err)
		}
		next += uint64(b.Samples)
		s, err := b.Next()
		if b.Large {
			large++
			if !errors.Is(err, format.ErrTooLarge) {
				t.Fatal(err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := equal(s, int(b.First), samples[b.First]); err != nil {
			t.Fatal(err)
		}
	}
	if large != 2 || next != 5 {
		t.Fatalf("%d large blocks, samples up to %d", large, next)
	}
}
