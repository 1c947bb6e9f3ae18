package mix

import (
	"math"
	"testing"

	"github.com/shardtool/shardtool/internal/order/uniformity"
	"github.com/shardtool/shardtool/reader/order"
)

// TestMixing: a source of a mix is shuffled as well as one that is read alone, with the same
// parameters and in batches of its share.
func TestMixing(t *testing.T) {
	const global = 512
	samples, shares := []uint64{60_000, 30_000, 120_000}, []uint64{1, 2, 5}
	m := Mix{Seed: 3, Shuffle: true, Tail: order.TailWrap, Epoch: 1e6, Segments: []Segment{{Weights: shares}}}
	var tables []order.Table
	for s, n := range samples {
		table := order.Table{Decoded: n << 10}
		for k := range n / 50 {
			if k%64 == 0 {
				table.ShardFirst = append(table.ShardFirst, int(k))
			}
			table.Samples = append(table.Samples, 50)
		}
		tables = append(tables, table)
		m.Sources = append(m.Sources, Source{Name: string(rune('a' + s)), Units: n, Lanes: 12, RunBlocks: 1, Delay: 20, Head: 4, Affinity: order.AffinityEpoch})
	}
	c, err := mustPlan(t, m).Seek(0, ordersOf(t, &m, tables))
	if err != nil {
		t.Fatal(err)
	}
	meters, ended := make([]*uniformity.Meter, len(samples)), make([]bool, len(samples))
	for s, n := range samples {
		meters[s] = uniformity.NewMeter(uniformity.Parts(n))
	}
	var refs []order.Ref
	for left := len(samples); left > 0; {
		if refs, _, err = c.NextBatch(refs[:0], order.Split{GlobalBatch: global, World: 1}); err != nil {
			t.Fatal(err)
		}
		parts := make([][]order.Ref, len(samples))
		for _, r := range refs {
			parts[r.Source] = append(parts[r.Source], r)
		}
		for s, part := range parts {
			switch {
			case ended[s]:
			case part[len(part)-1].Epoch > 0:
				ended[s] = true
				left--
			default:
				meters[s].Batch(part, len(part))
			}
		}
	}
	for s, n := range samples {
		plan, err := order.New(tables[s], "", m.Params(s))
		if err != nil {
			t.Fatal(err)
		}
		alone, err := uniformity.Measure(plan, uniformity.Parts(n), int(global*shares[s]/8), nil, uniformity.Span{})
		if err != nil {
			t.Fatal(err)
		}
		if got := meters[s].Figures().VIF; math.Abs(got/alone.VIF-1) > 0.05 {
			t.Errorf("source %d has a VIF of %.3f in the mix, %.3f alone", s, got, alone.VIF)
		} else {
			t.Logf("source %d: %.3f and %.3f", s, got, alone.VIF)
		}
	}
}
