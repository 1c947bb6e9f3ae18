package reshard_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/storetest"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reshard"
	"github.com/shardtool/shardtool/writer"
)

// TestPurgeOtherShards: generations that hold purged samples in other shards hold the bytes too:
// with other blocks, plain, without a keys table. Generations without such samples stay.
func TestPurgeOtherShards(t *testing.T) {
	over := func(o writer.Options) writer.Options { o.Mode = writer.ModeOverwrite; return o }
	blocks, plain := over(writer.Options{BlockSize: 4 << 10, ShardSize: 30 << 10}), over(writer.Options{BlockSize: 6000, Plain: true})
	for name, twice := range map[string]bool{"at once": false, "in two steps": true} {
		for _, keys := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, keys table %v", name, keys), func(t *testing.T) {
				s := packed(t, some(500, 40, 200), small) // generation 1 has other samples
				pack(t, s, some(0, 100, 200), over(small))
				pack(t, s, some(0, 100, 200), plain)
				if !keys {
					for object := range objects(t, s) {
						if len(object) > 5 && object[:5] == "keys-" {
							if err := s.Delete(t.Context(), object); err != nil {
								t.Fatal(err)
							}
						}
					}
				}
				pack(t, s, some(0, 100, 200), blocks)
				gone := []int{0, 17, 64, 99}
				run(t, s, reshard.RemoveOptions{}, gone...)
				dry := purge(t, s, writer.PurgeOptions{DryRun: true, Generations: true})
				if twice {
					first := purge(t, s, writer.PurgeOptions{})
					if len(first.Holding) != 4 { // of generations 2 to 5
						t.Errorf("holding %q", first.Holding)
					}
				}
				r := purge(t, s, writer.PurgeOptions{Generations: true})
				if len(r.Holding) != 0 || len(r.Searched) != 1 || r.Unknown != 0 {
					t.Errorf("%+v", r)
				}
				slices.Sort(dry.Deleted)
				if deleted := slices.Sorted(slices.Values(r.Deleted)); keys && !twice && !slices.Equal(dry.Deleted, deleted) {
					t.Errorf("deleted %q, a dry run said %q", deleted, dry.Deleted)
				}
				nowhere(t, s, gone)
				verified(t, s)
				for object := range objects(t, s) {
					if id := generationOf(object); id != "" {
						delivers(t, s, id, gone)
					}
				}
			})
		}
	}
}

// generationOf is the ID of the generation whose tables an object is, else "".
func generationOf(object string) string {
	if len(object) == len("manifest-0123456789abcdef.bin") && object[:9] == "manifest-" {
		return object[9:25]
	}
	return ""
}

// delivers checks that a generation delivers none of the samples.
func delivers(t *testing.T, s objstore.Store, generation string, gone []int) {
	t.Helper()
	d := open(t, s, reader.Options{Generation: generation})
	for sample, err := range d.Samples(t.Context(), reader.Range{}) {
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range gone {
			if string(sample.Key) == key(n) {
				t.Errorf("generation %d delivers sample %d", d.Info().Generation, n)
			}
		}
	}
}

// TestPurgeKeyAgain: a key that was packed again keeps the generations that have the new sample
// alone.
func TestPurgeKeyAgain(t *testing.T) {
	s := packed(t, some(0, 60, 200), small)
	run(t, s, reshard.RemoveOptions{}, 5)
	purge(t, s, writer.PurgeOptions{})
	more := small
	more.Mode = writer.ModeAppend
	again := some(60, 3, 200)
	again[1].Key = key(5)
	pack(t, s, again, more)
	run(t, s, reshard.RemoveOptions{}, 7)
	run(t, s, reshard.RemoveOptions{Restore: true}, 7)
	r := purge(t, s, writer.PurgeOptions{Generations: true})
	if len(r.Holding) != 0 || len(r.Searched) != 0 {
		t.Errorf("%+v", r)
	}
	d := open(t, s, reader.Options{})
	if d.Info().Generation != 6 {
		t.Fatalf("generation %d", d.Info().Generation)
	}
	if _, err := reader.Open(t.Context(), s, reader.Options{Generation: generationOf(d.Info().Parent)}); err != nil {
		t.Errorf("the generation before, which has the new sample: %v", err)
	}
	if numbers, err := d.Lookup(t.Context(), key(5)); err != nil || len(numbers) != 1 || numbers[0] != 61 {
		t.Errorf("%v, %v", numbers, err)
	}
}

// TestPurgeOtherShardsKilled: a purge that is killed at any operation is finished by the next one,
// which still finds the generations with other shards.
func TestPurgeOtherShardsKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("it looks at what is stored after each operation: make test runs it without the race detector")
	}
	over := writer.Options{Mode: writer.ModeOverwrite, BlockSize: 4 << 10, ShardSize: 30 << 10}
	before := packed(t, some(0, 40, 200), small)
	pack(t, before, some(0, 40, 200), over)
	gone := []int{0, 17}
	run(t, before, reshard.RemoveOptions{}, gone...)
	purge(t, before, writer.PurgeOptions{}) // the next one learns the keys from generation 3
	var s *mem.Store
	if n := storetest.EachFault(t, func(*testing.T) objstore.Store { s = before.Clone(); return s }, storetest.Fault{Kill: true, After: true}, func(t *testing.T, f *storetest.Faulty) {
		_, _ = writer.Purge(t.Context(), f, writer.PurgeOptions{Generations: true})
		r := purge(t, s, writer.PurgeOptions{Generations: true})
		if len(r.Holding) != 0 || r.Unknown > 0 && len(r.Searched) > 0 {
			t.Errorf("%+v", r)
		}
		for object := range objects(t, s) {
			if id := generationOf(object); id != "" {
				delivers(t, s, id, gone)
			}
		}
		nowhere(t, s, gone)
	}); n < 20 {
		t.Errorf("%d faults", n)
	}
}
