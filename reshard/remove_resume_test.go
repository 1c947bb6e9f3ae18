package reshard_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/order"
	"github.com/shardtool/shardtool/reshard"
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
func deliver(t *testing.T, store objstore.Store, o reader.StreamOptions, world, batches int) (out []place, holes int, last reader.Checkpoint) {
	t.Helper()
	for rank := range world {
		o.Rank, o.World = rank, world
		d := open(t, store, reader.Options{})
		s, err := d.Stream(t.Context(), o)
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
	run(t, after, reshard.RemoveOptions{}, removed...)
	gone := after.Clone()
	purge(t, gone, writer.PurgeOptions{Generations: true})
	orders := map[string]reader.StreamOptions{
		"shuffled":   {Epochs: 2, GlobalBatch: 12, Shuffle: true, Seed: 5, Order: reader.OrderOptions{ShuffleMemory: 40 << 10}},
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

// TestResumeNewest: a job resumes on the newest generation with the samples of its checkpoint,
// which may have removed more samples, or have restored some.
func TestResumeNewest(t *testing.T) {
	o := reader.StreamOptions{Epochs: 1, GlobalBatch: 10, Shuffle: true, Seed: 5}
	restore, deep := reshard.RemoveOptions{Restore: true}, writer.PurgeOptions{Generations: true}
	var meanwhile []writer.Sample
	for i := 0; i < 120; i += 2 { // other samples: nothing begins as the data set did
		meanwhile = append(meanwhile, some(i, 1, 200)...)
	}
	over, more := small, small
	over.Mode, more.Mode = writer.ModeOverwrite, writer.ModeAppend
	type store = objstore.Store
	for name, c := range map[string]struct {
		then       func(t *testing.T, s store) // after the checkpoint, which is of generation 2 and lacks 5 and 6
		generation uint64
		holes      []int
	}{
		"nothing":            {func(t *testing.T, s store) {}, 2, []int{5, 6}},
		"restored":           {func(t *testing.T, s store) { run(t, s, restore, 5, 6) }, 3, nil},
		"more removed":       {func(t *testing.T, s store) { run(t, s, reshard.RemoveOptions{}, 7) }, 3, []int{5, 6, 7}},
		"purged":             {func(t *testing.T, s store) { run(t, s, restore, 6); purge(t, s, writer.PurgeOptions{}) }, 4, []int{5}},
		"purged, generation": {func(t *testing.T, s store) { purge(t, s, deep) }, 3, []int{5, 6}},
		"appended":           {func(t *testing.T, s store) { pack(t, s, some(120, 9, 200), more) }, 2, []int{5, 6}},
		"appended, then restored": {func(t *testing.T, s store) {
			pack(t, s, some(120, 9, 200), more)
			run(t, s, restore, 5)
			run(t, s, reshard.RemoveOptions{}, 7, 121)
		}, 2, []int{6, 7}},
		"appended, then purged": {func(t *testing.T, s store) {
			pack(t, s, some(120, 9, 200), more)
			purge(t, s, writer.PurgeOptions{})
		}, 2, []int{5, 6}},
		"restored, then overwritten": {func(t *testing.T, s store) {
			run(t, s, restore, 5)
			run(t, s, reshard.RemoveOptions{}, 7)
			pack(t, s, meanwhile, over)
			run(t, s, reshard.RemoveOptions{}, 8)
		}, 4, []int{6, 7}},
		"overwritten":             {func(t *testing.T, s store) { pack(t, s, meanwhile, over) }, 2, []int{5, 6}},
		"overwritten with itself": {func(t *testing.T, s store) { pack(t, s, some(0, 120, 200), over) }, 3, nil},
	} {
		t.Run(name, func(t *testing.T) {
			whole, _, _ := deliver(t, packed(t, some(0, 120, 200), small), o, 1, 0)
			s := packed(t, some(0, 120, 200), small)
			run(t, s, reshard.RemoveOptions{}, 5, 6)
			_, _, cp := deliver(t, s, o, 1, 3)
			c.then(t, s)
			d, err := reader.OpenResumed(t.Context(), s, reader.Options{}, cp.Dataset.Tables)
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			if d.Info().Generation != c.generation {
				t.Errorf("it continues on generation %d, want %d", d.Info().Generation, c.generation)
			}
			from := o
			from.Checkpoint = &cp
			stream, err := d.Stream(t.Context(), from)
			if err != nil {
				t.Fatal(err)
			}
			defer stream.Close()
			var got, want []int
			for b, err := range stream.Batches(t.Context()) {
				if err != nil {
					t.Fatal(err)
				}
				for i := range b.Samples {
					got = append(got, int(b.Samples[i].Number))
				}
			}
			for _, p := range whole[30:] {
				if !slices.Contains(c.holes, int(p.number)) {
					want = append(want, int(p.number))
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("samples %v, want %v", got, want)
			}
		})
	}
}

// TestResumeRefused: a current generation that cannot be read may have removed samples, so a job
// does not go back to the generation before it.
func TestResumeRefused(t *testing.T) {
	s := packed(t, some(0, 20, 200), small)
	before := open(t, s, reader.Options{}).Info().Tables
	r := run(t, s, reshard.RemoveOptions{}, 5)
	if err := s.Delete(t.Context(), r.Tables); err != nil {
		t.Fatal(err)
	}
	if d, err := reader.OpenResumed(t.Context(), s, reader.Options{}, before); !errors.Is(err, format.ErrCorrupt) {
		t.Fatalf("%v, %v", d, err)
	}
	if err := s.Delete(t.Context(), format.ManifestName); err != nil {
		t.Fatal(err)
	}
	d, err := reader.OpenResumed(t.Context(), s, reader.Options{}, before)
	if err != nil || d.Info().Tables != before {
		t.Fatal(err)
	}
	d.Close()
}
