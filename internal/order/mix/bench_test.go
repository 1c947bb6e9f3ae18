package mix

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/shardtool/shardtool/reader/order"
)

// largeMix is n sources of 1.5e7 samples each, in blocks of 300 to 366, with the parameters that a
// shuffle memory of 2 GiB gives them.
func largeMix(b testing.TB, n int) (Mix, []order.Table) {
	b.Helper()
	const samples = 15_000_000
	rnd := rand.New(rand.NewPCG(1, 2))
	m := Mix{Seed: 7, Shuffle: true, Tail: order.TailWrap, Epoch: 1e9, Segments: []Segment{{}}}
	var tables []order.Table
	for s := range n {
		var t order.Table
		for left, k := uint64(samples), 0; left > 0; k++ {
			if k%256 == 0 {
				t.ShardFirst = append(t.ShardFirst, k)
			}
			size := min(left, 300+rnd.Uint64N(67))
			t.Samples = append(t.Samples, uint32(size))
			left -= size
		}
		t.Decoded = uint64(len(t.Samples)) << 20
		p, err := order.Choose(t, order.Choice{Shuffle: true, Memory: order.DefaultMemory / uint64(n)})
		if err != nil {
			b.Fatal(err)
		}
		m.Sources = append(m.Sources, Source{
			Name: fmt.Sprintf("s%03d", s), Units: samples, Lanes: p.Lanes, RunBlocks: p.RunBlocks, Delay: p.Delay, Head: p.Head, Affinity: p.Affinity,
		})
		m.Segments[0].Weights = append(m.Segments[0].Weights, 1+rnd.Uint64N(1<<26))
		tables = append(tables, t)
	}
	return m, tables
}

// BenchmarkStart is what a start costs before its first read: the plans, a seek and the references
// of a rank's first batch. alloc-MB is all that was allocated on the way with the tables, an upper
// bound of the peak.
func BenchmarkStart(b *testing.B) {
	m, tables := largeMix(b, 64)
	var held float64
	for _, t := range tables {
		held += float64(4*len(t.Samples) + 8*len(t.ShardFirst))
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var rounds float64
	for b.Loop() {
		orders := ordersOf(b, &m, tables)
		c, err := mustPlan(b, m).Seek(512_345_678, orders)
		if err != nil {
			b.Fatal(err)
		}
		if _, _, err = c.NextBatch(nil, order.Split{GlobalBatch: 4096, Rank: 3, World: 8}); err != nil {
			b.Fatal(err)
		}
		rounds++
	}
	runtime.ReadMemStats(&after)
	b.ReportMetric((held+float64(after.TotalAlloc-before.TotalAlloc)/rounds)/1e6, "alloc-MB")
}

func BenchmarkCounts(b *testing.B) {
	for _, n := range []int{2, 64, 1000} {
		b.Run(fmt.Sprintf("sources=%d", n), func(b *testing.B) {
			rnd := rand.New(rand.NewPCG(3, 4))
			m := Mix{Seed: 7, Tail: order.TailWrap, Epoch: 1e9, Segments: []Segment{{}}}
			for s := range n {
				m.Sources = append(m.Sources, Source{Name: fmt.Sprintf("s%03d", s), Units: 1e7, Lanes: 1, Delay: 1, Head: 1, Affinity: order.AffinityEpoch})
				m.Segments[0].Weights = append(m.Segments[0].Weights, 1+rnd.Uint64N(1<<26))
			}
			st := mustPlan(b, m).first
			var counts []uint64
			b.ReportAllocs()
			for q := uint64(1e9); b.Loop(); q += 4096 {
				counts = st.counts(counts, q)
			}
		})
	}
}

// BenchmarkBatch is the references of one rank's slice.
func BenchmarkBatch(b *testing.B) {
	for _, n := range []int{1, 64} {
		b.Run(fmt.Sprintf("sources=%d", n), func(b *testing.B) {
			m, tables := largeMix(b, n)
			c, err := mustPlan(b, m).Seek(512_345_678, ordersOf(b, &m, tables))
			if err != nil {
				b.Fatal(err)
			}
			var refs []order.Ref
			s := order.Split{GlobalBatch: 4096, Rank: 3, World: 8}
			for range 50 { // past the sources' first ticks
				if refs, _, err = c.NextBatch(refs[:0], s); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				if refs, _, err = c.NextBatch(refs[:0], s); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
