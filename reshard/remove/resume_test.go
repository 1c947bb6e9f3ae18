package remove

import (
	"fmt"
	"slices"
	"testing"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/order"
	"github.com/shardtool/shardtool/writer"
)

// place is where a sample is delivered.
type place struct {
	epoch, position uint64 // of the global batch
	place           int    // in the global batch
	number          uint64
}

// deliver reads up to the given number of batches of all ranks, and returns their samples in the
// order of the global batches, with a checkpoint after the last batch. holes counts the samples
// that were missing.
func deliver(t *testing.T, store objstore.Store, o reader.Order, world, batches int) (out []place, holes int, last order.Checkpoint) {
	t.Helper()
	for rank := range world {
		o.Rank, o.World = rank, world
		d := open(t, store, reader.Options{})
		s, err := d.Stream(t.Context(), reader.StreamOptions{Order: o})
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for b, err := range s.Batches(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			for i := range b.Samples {
				if string(b.Samples[i].Key) != key(int(b.Samples[i].Number)) {
					t.Fatalf("sample %d has the key %q", b.Samples[i].Number, b.Samples[i].Key)
				}
				out = append(out, place{b.Epoch, b.Position, b.First + b.Place(i), b.Samples[i].Number})
			}
			holes += b.Holes
			if last, err = b.Checkpoint(); err != nil {
				t.Fatal(err)
			}
			if n++; n == batches {
				break
			}
		}
		s.Close()
	}
	slices.SortFunc(out, func(a, b place) int {
		switch {
		case a.epoch != b.epoch:
			return int(a.epoch) - int(b.epoch)
		case a.position != b.position:
			return int(a.position) - int(b.position)
		}
		return a.place - b.place
	})
	return out, holes, last
}

// TestResume: a job that was stopped, and resumes after samples were removed and after they were
// purged, delivers what it would have delivered, at the same places, without those samples. The
// number of ranks may change meanwhile.
func TestResume(t *testing.T) {
	base := packed(t, some(0, 120, 200), small)
	removed := []int{0, 17, 18, 19, 64, 65, 119}
	after := base.Clone()
	run(t, after, Options{}, removed...)
	gone := after.Clone()
	purge(t, gone, writer.PurgeOptions{Generations: true})
	orders := map[string]reader.Order{
		"shuffled":   {Epochs: 2, GlobalBatch: 12, Shuffle: true, Seed: 5, ShuffleMemory: 40 << 10},
		"in storage": {Epochs: 1, GlobalBatch: 10, Tail: order.TailShort},
	}
	for name, o := range orders {
		for _, worlds := range [][2]int{{1, 1}, {1, 3}, {2, 2}, {3, 1}, {4, 2}} {
			whole, _, _ := deliver(t, base, o, worlds[0], 0) // the parameters follow the world of the start
			for _, steps := range []int{1, 3, 9} {
				t.Run(fmt.Sprintf("%s, %d to %d ranks, step %d", name, worlds[0], worlds[1], steps), func(t *testing.T) {
					begun, _, cp := deliver(t, base, o, worlds[0], steps)
					for i, store := range []objstore.Store{after, gone} {
						from := o
						from.Checkpoint = &cp
						rest, holes, _ := deliver(t, store, from, worlds[1], 0)
						var want []place
						missing := 0
						for _, p := range whole[len(begun):] {
							if slices.Contains(removed, int(p.number)) {
								missing++
							} else {
								want = append(want, p)
							}
						}
						if !slices.Equal(rest, want) || holes != missing {
							t.Errorf("purged %v: %d samples and %d holes, want %d and %d", i == 1, len(rest), holes, len(want), missing)
						}
					}
				})
			}
		}
		whole, _, _ := deliver(t, base, o, 2, 0)
		// A job that begins on the new generation has the same places too.
		for _, store := range []objstore.Store{after, gone} {
			got, _, _ := deliver(t, store, o, 2, 0)
			want := slices.DeleteFunc(slices.Clone(whole), func(p place) bool { return slices.Contains(removed, int(p.number)) })
			if !slices.Equal(got, want) {
				t.Errorf("%s: a new job delivers %d samples, want %d at their places", name, len(got), len(want))
			}
		}
	}
}
