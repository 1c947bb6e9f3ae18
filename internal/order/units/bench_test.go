package units

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/shardtool/shardtool/reader/order"
)

// logNormal is n lengths of a log-normal distribution, at least 1.
func logNormal(n int, mu, sigma float64) []uint32 {
	r := rand.New(rand.NewPCG(7, 8))
	out := make([]uint32, n)
	for i := range out {
		out[i] = uint32(max(1, min(math.Exp(mu+sigma*r.NormFloat64()), 1<<30)))
	}
	return out
}

// BenchmarkPlan is the planning of an epoch on one core: the order of the samples and best fit.
func BenchmarkPlan(b *testing.B) {
	for _, n := range []int{1e5, 1e6, 1e7} {
		lengths := logNormal(n, 6.2, 1.2)
		var table order.Table
		for i := 0; i < n; i += 250 {
			if i%(250*256) == 0 {
				table.ShardFirst = append(table.ShardFirst, len(table.Samples))
			}
			table.Samples = append(table.Samples, uint32(min(250, n-i)))
		}
		table.Decoded = uint64(len(table.Samples)) << 20
		for _, params := range []Params{{Kind: Pack, Size: 8192, Long: LongSplit}, {Kind: Bucket, Size: 65536, Long: LongSplit}} {
			p, params, err := Choose(table, order.Choice{Shuffle: true}, params)
			if err != nil {
				b.Fatal(err)
			}
			u, err := New(mustOrder(b, table, p), lengths, params)
			if err != nil {
				b.Fatal(err)
			}
			b.Run(fmt.Sprintf("kind=%s/samples=%d/window=%d", params.Kind, n, u.Params().Window), func(b *testing.B) {
				b.ReportAllocs()
				var plan *Plan
				for b.Loop() {
					if plan, err = u.Plan(context.Background(), 1, 1, nil); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "samples/s")
				if params.Kind == Pack {
					b.ReportMetric(100*float64(u.Summary().Tokens)/float64(plan.Units()*uint64(params.Size)), "fill-%")
				}
			})
		}
	}
}
