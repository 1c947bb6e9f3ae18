package viewstore

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/curate/viewfile"
)

// TestSelection compares the samples of views with a list of them.
func TestSelection(t *testing.T) {
	const samples = 9001
	of := Content{Digest: format.Hash{7}, Samples: samples}
	rnd := rand.New(rand.NewPCG(1, 2))
	for name, weight := range map[string]func(i int) uint32{
		"spread":    func(int) uint32 { return uint32(rnd.IntN(2)) },
		"clustered": func(i int) uint32 { return uint32(min(i/5000, 1)) },
		"one":       func(i int) uint32 { return uint32(i / (samples - 1)) },
		"all":       func(int) uint32 { return 1 },
		"rare":      func(i int) uint32 { return uint32(i % 700 / 699) },
	} {
		subset := &viewfile.View{Digest: of.Digest, Samples: samples, Chosen: make([]byte, (samples+7)/8)}
		weights := &viewfile.View{Digest: of.Digest, Samples: samples, Draws: 12_345}
		var want, left []uint64
		for i := range samples {
			w := weight(i)
			weights.Weights = append(weights.Weights, 3*w)
			if w > 0 {
				subset.Chosen[i/8] |= 1 << (i % 8)
				want = append(want, uint64(i))
			} else {
				left = append(left, uint64(i))
			}
		}
		for _, v := range []*viewfile.View{subset, weights} {
			s, err := Select(v, of)
			if err != nil {
				t.Fatal(err)
			}
			length := uint64(len(want))
			if v == weights {
				length = 12_345
			}
			if s.Len() != length || s.Distinct() != uint64(len(want)) || s.ID() != v.ID() || s.View() != v || !slices.Equal(s.LeftOut(), left) {
				t.Errorf("%s: %d samples an epoch of %d, %d left out; want %d of %d, %d", name, s.Len(), s.Distinct(), len(s.LeftOut()), length, len(want), len(left))
			}
			for i, number := range want {
				if got := s.Number(uint64(i)); got != number || !s.Has(number) {
					t.Fatalf("%s: %d is %d, want %d", name, i, got, number)
				}
			}
		}
	}
	whole := All(samples)
	if whole.Len() != samples || whole.Distinct() != samples || whole.Number(17) != 17 || !whole.Has(17) || whole.LeftOut() != nil || whole.ID() != "" || whole.View() != nil {
		t.Errorf("the whole data set: %+v", whole)
	}
	if v, err := whole.Order([]uint32{samples}); v != nil || err != nil {
		t.Errorf("the whole data set has an order of a view: %v, %v", v, err)
	}
	if _, err := Select(&viewfile.View{Samples: samples, Digest: format.Hash{8}}, of); !errors.Is(err, ErrGeneration) {
		t.Errorf("a view of other content: %v", err)
	}
}
