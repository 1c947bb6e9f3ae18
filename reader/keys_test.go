package reader

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/shardtool/shardtool/internal/testset"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
)

// TestKeysAtOnce: keys take all requests that a store allows, and give them back.
func TestKeysAtOnce(t *testing.T) {
	samples := mixed(600)
	built := build(t, samples, testset.Options{BlockSize: 2000, ShardSize: 20_000})
	store := &elastic{far: far{Store: built, requests: 2, delay: time.Millisecond}, most: 9}
	d := open(t, store, Options{Workers: 1})
	var numbers []uint64
	for i := range uint64(60) {
		numbers = append(numbers, 599-10*i)
	}
	keys, err := d.Keys(t.Context(), numbers)
	if err != nil {
		t.Fatal(err)
	}
	for i, number := range numbers {
		if keys[i] != samples[number].Key {
			t.Fatalf("the key of %d is %q, want %q", number, keys[i], samples[number].Key)
		}
	}
	if most := store.mostFlying.Load(); most < 3 || store.asked != 7 || store.allowed != 0 {
		t.Errorf("%d requests at once, %d more asked for, %d kept", most, store.asked, store.allowed)
	}
}

// TestKeys compares the keys of samples with those that were packed, where blocks are read and
// where the index is: blocks of few bytes beside a large index, blocks of many, and blocks of
// several frames.
func TestKeys(t *testing.T) {
	for _, o := range []testset.Options{
		{BlockSize: 2000, ShardSize: 400_000}, {BlockSize: 60_000, ShardSize: 200_000, Raw: true}, {BlockSize: 4000, FrameSize: 1024, ShardSize: 20_000},
		{BlockSize: 4000, Plain: true},
	} {
		t.Run(fmt.Sprintf("%d in %d", o.BlockSize, o.FrameSize), func(t *testing.T) {
			samples := mixed(600)
			s := newStreamed(t, mem.New(), samples, o)
			rng := rand.New(rand.NewPCG(1, 2))
			for _, n := range []int{0, 1, 3, 50, 900} {
				numbers := make([]uint64, n)
				for i := range numbers {
					numbers[i] = rng.Uint64N(600)
				}
				keys, err := s.Keys(t.Context(), numbers)
				if err != nil {
					t.Fatal(err)
				}
				for i, number := range numbers {
					if keys[i] != samples[number].Key {
						t.Fatalf("the key of %d is %q, want %q", number, keys[i], samples[number].Key)
					}
				}
			}
			// Removed samples have empty keys, and the others theirs.
			var all, removed []uint64
			for i := range uint64(600) {
				if all = append(all, i); rng.Uint64N(4) == 0 {
					removed = append(removed, i)
				}
			}
			d := open(t, s.Store(), Options{Removed: removed})
			for _, numbers := range [][]uint64{all, all[7:20], all[400:401], removed, all[300:]} {
				keys, err := d.Keys(t.Context(), numbers)
				if err != nil {
					t.Fatal(err)
				}
				for i, number := range numbers {
					want := samples[number].Key
					if slices.Contains(removed, number) {
						want = ""
					}
					if keys[i] != want {
						t.Fatalf("the key of %d is %q, want %q", number, keys[i], want)
					}
				}
			}
			if _, err := s.Keys(t.Context(), []uint64{3, 600}); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("sample 600 of 600: %v", err)
			}
		})
	}
}

// TestKeysOfMissingShard: a block that cannot be read is an error, not an empty key.
func TestKeysOfMissingShard(t *testing.T) {
	store := mem.New()
	s := newStreamed(t, store, mixed(600), testset.Options{BlockSize: 60_000, ShardSize: 200_000, Raw: true})
	first, err := s.Shard(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Delete(t.Context(), first.Name); err != nil {
		t.Fatal(err)
	}
	if keys, err := open(t, store, Options{}).Keys(t.Context(), []uint64{0}); err == nil {
		t.Errorf("%q without an error", keys)
	}
}
