package reader

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/shardtool/shardtool/internal/testset"
	"github.com/shardtool/shardtool/objstore"
)

// BenchmarkLayers compares a base of images of 100 KB and a layer of captions of 100 B with the
// base alone, shuffled, and the captions read by the layer with the same captions packed alone. The
// goals are in the names.
func BenchmarkLayers(b *testing.B) {
	const samples = 4000
	caption := func(key string) []testset.Field {
		return []testset.Field{{Name: "caption", Data: fmt.Appendf(nil, "%-100s", "a photo of "+key)}}
	}
	image := make([]byte, 100<<10)
	random := rand.New(rand.NewPCG(1, 2))
	base, layer, packed := inDir(b), inDir(b), inDir(b)
	all := func(fields func(i int, key string) []testset.Field) func(func(testset.Sample) bool) {
		return func(yield func(testset.Sample) bool) {
			for i := range samples {
				key := fmt.Sprintf("k%06d", i)
				if !yield(testset.Sample{Key: key, Fields: fields(i, key)}) {
					return
				}
			}
		}
	}
	set, err := testset.Build(b.Context(), base, all(func(int, string) []testset.Field {
		for k := 0; k < len(image); k += 8 {
			v := random.Uint64()
			for j := range 8 {
				image[k+j] = byte(v >> (8 * j))
			}
		}
		return []testset.Field{{Name: "jpg", Data: image}}
	}), testset.Options{Raw: true})
	if err != nil {
		b.Fatal(err)
	}
	if _, err := testset.Layer(b.Context(), layer, set, nil, caption, testset.Options{}); err != nil {
		b.Fatal(err)
	}
	if _, err := testset.Build(b.Context(), packed, all(func(_ int, key string) []testset.Field { return caption(key) }), testset.Options{}); err != nil {
		b.Fatal(err)
	}
	reads := func(store objstore.Store, fields []string, layers ...Layer) side {
		return func(b testing.TB) int64 {
			d, err := Open(b.Context(), store, Options{Workers: 1, Fields: fields, Layers: layers})
			if err != nil {
				b.Fatal(err)
			}
			defer d.Close()
			streamAllRanks(b, d, 1, benchOrder)
			return samples * streamEpochs * 100 << 10
		}
	}
	of := Layer{Name: "captions", Store: layer}
	b.Run("both-to-base/goal=0.95", func(b *testing.B) { compare(b, reads(base, nil, of), reads(base, nil)) })
	b.Run("captions-to-packed/goal=0.5", func(b *testing.B) {
		compare(b, reads(base, []string{"caption"}, of), reads(packed, nil))
	})
}
