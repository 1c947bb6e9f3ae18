package sequences

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/shardtool/shardtool/internal/order/units"
	"github.com/shardtool/shardtool/internal/testset"
	"github.com/shardtool/shardtool/reader"
)

// BenchmarkSequences copies the tokens of a data set in memory, as packed sequences and sample by
// sample. Bytes are those of tokens.
func BenchmarkSequences(b *testing.B) {
	const size = 8192
	r := rand.New(rand.NewPCG(1, 2))
	lengths, total := map[string]int64{}, int64(0)
	var samples []testset.Sample
	for i := range 20_000 {
		n := int(min(max(1, math.Exp(6.2+1.2*r.NormFloat64())), 50_000))
		data := make([]byte, 0, 4*n)
		for range n {
			data = binary.LittleEndian.AppendUint32(data, r.Uint32()) // not compressed
		}
		key := fmt.Sprintf("%06d", i)
		lengths[key], total = int64(n), total+4*int64(n)
		samples = append(samples, testset.Sample{Key: key, Fields: []testset.Field{{Name: "ids.npy", Data: testset.Npy("<i4", n, data)}}})
	}
	set, _ := build(b, samples, testset.Options{Integer: func(key string) (int64, bool) { return lengths[key], true }})
	q, err := New(size, []Field{{Name: "ids.npy"}})
	if err != nil {
		b.Fatal(err)
	}
	row := make([]byte, 16*4*size)
	for _, packed := range []bool{false, true} {
		o := reader.StreamOptions{Shuffle: true, GlobalBatch: 128, Epochs: 1, Tuning: reader.Tuning{Workers: 2}}
		if packed {
			o.GlobalBatch, o.Units = 16, units.Params{Kind: units.Pack, Size: size, Long: units.LongSplit, By: "tokens"}
		}
		b.Run(fmt.Sprintf("packed=%v", packed), func(b *testing.B) {
			b.SetBytes(total)
			for b.Loop() {
				s, err := set.Stream(b.Context(), o)
				if err != nil {
					b.Fatal(err)
				}
				for batch, err := range s.Batches(b.Context()) {
					if err != nil {
						b.Fatal(err)
					}
					if !packed {
						for i := range batch.Samples {
							copy(row, batch.Samples[i].Fields[0].Data)
						}
						continue
					}
					if err := q.Set(batch); err != nil {
						b.Fatal(err)
					}
					q.Tokens(0, row[:q.Size(0)])
				}
				s.Close()
			}
		})
	}
}
