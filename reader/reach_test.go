package reader

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/internal/order/units"
	"github.com/shardtool/shardtool/internal/testset"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/reader/order"
)

// TestNeverASample: a stream without an end is refused when it opens where the rank would never get
// a sample. The same rank of a stream that ends gets none.
func TestNeverASample(t *testing.T) {
	watch(t)
	set := newStreamed(t, mem.New(), mixed(30), testset.Options{BlockSize: 4000, ShardSize: 40_000})
	docs, _ := newDocuments(t, 20)
	in := []source{newSource(t, "a", mem.New(), 30)}
	long := mixOf(1, in, 1)
	short := long
	short.Epoch, short.Tail = 3, order.TailShort
	gone, err := Open(t.Context(), set.Store(), Options{Removed: slices.Collect(func(yield func(uint64) bool) {
		for i := range uint64(30) {
			if !yield(i) {
				return
			}
		}
	})})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { gone.Close() })
	pack := units.Params{Kind: units.Pack, Size: 1 << 20, Long: units.LongSplit, Window: 32, By: "tokens"}
	of := func(d *Dataset) func(o StreamOptions) (*Stream, error) {
		return func(o StreamOptions) (*Stream, error) { return d.Stream(t.Context(), o) }
	}
	ofMix := func(m Mix) func(o StreamOptions) (*Stream, error) {
		return func(o StreamOptions) (*Stream, error) { return OpenMix(t.Context(), m, o) }
	}
	longMix, _ := joined(t, long, in)
	shortMix, _ := joined(t, short, in)
	for name, c := range map[string]struct {
		open  func(StreamOptions) (*Stream, error)
		order StreamOptions
		want  string
	}{
		"batch below ranks":     {of(set.Dataset), StreamOptions{GlobalBatch: 4, World: 8}, "rank 0 never gets a sample: a global batch of 4 has fewer samples than there are ranks, 8: give a global batch of at least 8"},
		"another rank":          {of(set.Dataset), StreamOptions{GlobalBatch: 4, World: 8, Rank: 6, Tail: order.TailPad}, "rank 6 never gets"},
		"a rank that has one":   {of(set.Dataset), StreamOptions{GlobalBatch: 4, World: 8, Rank: 7}, ""},
		"short epochs":          {of(set.Dataset), StreamOptions{GlobalBatch: 100, World: 40, Tail: order.TailShort}, "rank 0 of 40 never gets a sample: an epoch has 30"},
		"their last rank":       {of(set.Dataset), StreamOptions{GlobalBatch: 100, World: 40, Rank: 39, Tail: order.TailShort}, ""},
		"of the last batch":     {of(set.Dataset), StreamOptions{GlobalBatch: 4, World: 5, Rank: 2, Tail: order.TailShort}, ""}, // 30 = 7·4 + 2
		"short epochs that pad": {of(set.Dataset), StreamOptions{GlobalBatch: 100, World: 40, Tail: order.TailPad}, ""},
		"drop":                  {of(set.Dataset), StreamOptions{GlobalBatch: 31, Tail: order.TailDrop}, "delivers nothing of 30 samples"},
		"all removed":           {of(gone), StreamOptions{GlobalBatch: 4}, "all samples were removed"},
		"a mix":                 {ofMix(longMix), StreamOptions{GlobalBatch: 4, World: 8}, "rank 0 never gets a sample: a global batch of 4"},
		"short epochs of a mix": {ofMix(shortMix), StreamOptions{GlobalBatch: 8, World: 8, Rank: 1}, "rank 1 of 8 never gets a sample: an epoch has 3"},
		"units":                 {of(docs.Dataset), StreamOptions{GlobalBatch: 4, World: 8, Units: pack}, "rank 0 never gets a sample: a global batch of 4"},
		"short epochs of units": {of(docs.Dataset), StreamOptions{GlobalBatch: 64, World: 64, Units: pack, Tail: order.TailShort}, "rank 0 of 64 never gets a sample: an epoch has "},
		"drop of units":         {of(docs.Dataset), StreamOptions{GlobalBatch: 64, Units: pack, Tail: order.TailDrop}, "global batch 64 with tail drop delivers nothing of the "},
	} {
		for _, epochs := range []uint64{0, 1} {
			o := c.order
			o.Epochs = epochs
			s, err := c.open(o)
			switch refused := c.want != "" && (epochs == 0 || name == "drop"); {
			case !refused && err != nil:
				t.Errorf("%s, %d epochs: %v", name, epochs, err)
			case refused && (!errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), c.want)):
				t.Errorf("%s, %d epochs: %v, want %s", name, epochs, err, c.want)
			}
			if s != nil {
				s.Close()
			}
		}
	}
}
