package reader

import (
	"errors"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/curate/viewfile"
	"github.com/shardtool/shardtool/internal/curate/viewstore"
	"github.com/shardtool/shardtool/internal/format/names"
	"github.com/shardtool/shardtool/internal/testset"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/reader/order"
)

// subsetOf is a view of the samples for which chosen holds.
func subsetOf(d *Dataset, chosen func(i int) bool) *viewfile.View {
	v := &viewfile.View{Digest: d.Digest(), Samples: d.NumSamples(), Chosen: make([]byte, (d.NumSamples()+7)/8)}
	for i := range int(v.Samples) {
		if chosen(i) {
			v.Chosen[i/8] |= 1 << (i % 8)
		}
	}
	return v
}

func weightsOf(d *Dataset, draws uint64, weight func(i int) uint32) *viewfile.View {
	v := &viewfile.View{Digest: d.Digest(), Samples: d.NumSamples(), Draws: draws}
	for i := range int(v.Samples) {
		v.Weights = append(v.Weights, weight(i))
	}
	return v
}

// classesOf is a view with classes, each of weight 1.
func classesOf(d *Dataset, draws uint64, class func(i int) uint32) *viewfile.View {
	v := weightsOf(d, draws, class)
	v.Classes = slices.Repeat([]uint64{1}, int(slices.Max(v.Weights)))
	v.Compact()
	return v
}

// viewsOf are views of about 3,000 samples: spread over all blocks, in few blocks, in every third
// block, by weight, and by class.
func viewsOf(d *Dataset) map[string]*viewfile.View {
	rnd := rand.New(rand.NewPCG(1, 2))
	n := int(d.NumSamples())
	return map[string]*viewfile.View{
		"spread":    subsetOf(d, func(int) bool { return rnd.IntN(2) == 0 }),
		"clustered": subsetOf(d, func(i int) bool { return i > n/3 && i < n/3+n/50 }),
		"gaps":      subsetOf(d, func(i int) bool { return i/20%5 == 0 }),
		"one":       subsetOf(d, func(i int) bool { return i == n-1 }),
		"weights":   weightsOf(d, uint64(n), func(i int) uint32 { return uint32(i%7) * uint32(i%7) }),
		"few":       weightsOf(d, uint64(n/40), func(i int) uint32 { return uint32(i % 3) }),
		"classes":   classesOf(d, uint64(n), func(i int) uint32 { return uint32(i%7*i%5) + 1 }),
		"rare":      classesOf(d, uint64(n/40), func(i int) uint32 { return uint32(1 + 2*i/n) }),
		"hot":       weightsOf(d, 500, func(i int) uint32 { return uint32(i / (n - 5)) }),
	}
}

// wantedBlocks counts the blocks of a plan that have samples in any of its first epochs, for each
// epoch.
func wantedBlocks(t *testing.T, p *order.Plan, epochs uint64) (n uint64) {
	t.Helper()
	for e := range epochs {
		c, err := p.Seek(e, 0)
		if err != nil {
			t.Fatal(err)
		}
		refs, _, err := c.NextBatch(nil, order.Split{GlobalBatch: int(p.Samples()), World: 1})
		if err != nil {
			t.Fatal(err)
		}
		seen := map[uint32]bool{}
		for _, r := range refs {
			seen[r.Block] = true
		}
		n += uint64(len(seen))
	}
	return n
}

// TestStreamViews: a stream of a view delivers what its order lists, byte for byte, and reads no
// block without samples.
func TestStreamViews(t *testing.T) {
	watch(t)
	for _, remote := range []bool{false, true} {
		store := objstore.Store(mem.New())
		if remote {
			store = remoteStore{store}
		}
		set := newStreamed(t, store, mixed(3000), testset.Options{BlockSize: 16 << 10, ShardSize: 400 << 10})
		for name, v := range viewsOf(set.Dataset) {
			if err := set.UseView(v); err != nil {
				t.Fatal(err)
			}
			for _, o := range []StreamOptions{
				{Shuffle: true, GlobalBatch: 16, Epochs: 3, Order: OrderOptions{Lanes: 4, Delay: 3, RunBlocks: 8}},
				{Shuffle: true, GlobalBatch: 16, Epochs: 2, Order: OrderOptions{Lanes: 1, Delay: 1, WholeShards: true, Affinity: order.AffinityRun}},
				{GlobalBatch: 50, Epochs: 1},
			} {
				o.Tuning.Workers, o.Log = 2, slog.New(slog.DiscardHandler)
				f := set.follow(t, o)
				f.rest(t)
				stats, want := f.Stats(), wantedBlocks(t, f.Info().Plans[0], o.Epochs)
				// A run that the end of a lane cuts, and the turn of an epoch, may read a block again, as may
				// two runs that share one when the first is done before the second begins.
				if most := want + want/16 + o.Epochs*uint64(max(o.Order.Lanes, 1)); stats.Blocks > most || stats.Samples != o.Epochs*set.Selection().Len() {
					t.Errorf("%s, remote %v, %+v: %d blocks were read, %d have samples; %d samples of %d", name, remote, o, stats.Blocks, want, stats.Samples, set.Selection().Len())
				}
				f.Close()
			}
		}
	}
}

// TestStreamViewResumes: a checkpoint continues the view that it names, and refuses another one.
func TestStreamViewResumes(t *testing.T) {
	watch(t)
	set := newStreamed(t, mem.New(), mixed(600), testset.Options{BlockSize: 9000, ShardSize: 60_000})
	all := viewsOf(set.Dataset)
	if err := set.UseView(all["weights"]); err != nil {
		t.Fatal(err)
	}
	o := StreamOptions{Shuffle: true, GlobalBatch: 16, Epochs: 2, Seed: 5, Order: OrderOptions{Lanes: 6, Delay: 3}}
	s := set.stream(t, o)
	var middle Checkpoint
	seeds := map[uint64]bool{}
	batches := 0
	for b, err := range s.Batches(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		for i := range b.Samples {
			if seed := b.Samples[i].Seed(); seeds[seed] {
				t.Fatalf("two draws of a sample have the same seed: %+v", b.Samples[i])
			} else {
				seeds[seed] = true
			}
		}
		if batches++; batches == 20 {
			if middle, err = b.Checkpoint(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if want := format.DigestString(set.Digest()) + "#" + all["weights"].ID(); middle.Dataset.Sources[0].Digest != want {
		t.Errorf("the checkpoint has the digest %s, want %s", middle.Dataset.Sources[0].Digest, want)
	}
	o.Checkpoint = &middle
	f := set.follow(t, o)
	f.rest(t)
	for _, v := range []*viewfile.View{all["spread"], nil} {
		set.selection = viewstore.All(set.NumSamples())
		if v != nil {
			if err := set.UseView(v); err != nil {
				t.Fatal(err)
			}
		}
		var mismatch *order.MismatchError
		if _, err := set.Stream(t.Context(), o); !errors.As(err, &mismatch) || mismatch.Field != "view" {
			t.Errorf("with another view: %v", err)
		}
	}
}

// TestLoadView is views by name and by ID, and those that cannot be used.
func TestLoadView(t *testing.T) {
	ctx, store := t.Context(), mem.New()
	set := newStreamed(t, store, mixed(100), testset.Options{BlockSize: 9000})
	put := func(name string, data []byte) {
		t.Helper()
		if _, err := objstore.Put(ctx, store, name, data, objstore.Condition{}); err != nil {
			t.Fatal(err)
		}
	}
	store2 := func(v *viewfile.View, label string) {
		t.Helper()
		file, err := v.Encode()
		if err != nil {
			t.Fatal(err)
		}
		put(names.View(v.ID()), file)
		put(names.Label(label), (&viewfile.Label{Format: viewfile.LabelFormat, View: names.View(v.ID())}).Encode())
	}
	v := subsetOf(set.Dataset, func(i int) bool { return i < 7 })
	store2(v, "few")
	other := subsetOf(set.Dataset, func(i int) bool { return i < 8 })
	other.Digest[3]++
	store2(other, "old")
	for _, name := range []string{"few", v.ID()} {
		d := open(t, store, Options{View: name})
		for i := range uint64(7) {
			if d.Selection().Number(i) != i || !d.Selection().Has(i) || d.Selection().Has(i+7) {
				t.Errorf("the sample chosen as number %d is %d", i, d.Selection().Number(i))
			}
		}
		if d.Selection().ID() != v.ID() || d.Selection().Len() != 7 || d.NumSamples() != 100 {
			t.Errorf("view %s: ID %s with %d samples", name, d.Selection().ID(), d.Selection().Len())
		}
	}
	file, err := v.Encode()
	if err != nil {
		t.Fatal(err)
	}
	put(names.View("0000000000000000"), file)
	put("views/gone.json", (&viewfile.Label{Format: viewfile.LabelFormat, View: names.View("1111111111111111")}).Encode())
	put("views/bad.json", []byte("{"))
	for _, c := range []struct {
		name string
		want error
		text string
	}{
		{"none", fs.ErrNotExist, "there are bad few gone old"},
		{"gone", fs.ErrNotExist, "make it again"},
		{"2222222222222222", fs.ErrNotExist, "2222222222222222"},
		{"old", viewstore.ErrGeneration, "it is of 100 samples"},
		{"bad", format.ErrCorrupt, "views/bad.json"},
		{"0000000000000000", format.ErrCorrupt, "has the ID"},
		{"../few", format.ErrName, "characters"},
	} {
		d, err := Open(ctx, store, Options{View: c.name})
		if err == nil {
			d.Close()
		}
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("view %s: %v, want %v with %q", c.name, err, c.want, c.text)
		}
	}
	if err := set.UseView(other); !errors.Is(err, viewstore.ErrGeneration) {
		t.Errorf("the view of other content was used: %v", err)
	}
}
