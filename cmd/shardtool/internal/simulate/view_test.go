package simulate

import (
	"testing"

	"github.com/shardtool/shardtool/internal/curate/view"
	"github.com/shardtool/shardtool/internal/order/mix"
	"github.com/shardtool/shardtool/internal/order/uniformity"
	"github.com/shardtool/shardtool/reader/order"
)

// TestViews: an epoch of a view is complete, alone and in a mix, and its mix is compared with what
// the view has, not with what is stored.
func TestViews(t *testing.T) {
	blocks := make([]uint32, 300)
	for i := range blocks {
		blocks[i] = 20
	}
	const n = 6000
	late, weights := make([]byte, n/8), make([]uint32, n)
	for i := range n {
		if i >= n*9/10 {
			late[i/8] |= 1 << (i % 8)
		}
		weights[i] = uint32(i % 50)
	}
	subset, err := view.Subset(blocks, late)
	if err != nil {
		t.Fatal(err)
	}
	drawn, err := view.Weights(blocks, weights, 2*n)
	if err != nil {
		t.Fatal(err)
	}
	for name, v := range map[string]order.View{"subset": subset, "weights": drawn} {
		table := order.Table{Samples: blocks, ShardFirst: []int{0}, View: v}
		plan, err := order.New(table, "", order.Params{
			Seed: 1, Shuffle: true, Lanes: 4, RunBlocks: 1, Delay: 100, Head: 4, Affinity: order.AffinityEpoch, Tail: order.TailShort,
		})
		if err != nil {
			t.Fatal(err)
		}
		data := Source{Blocks: uint64(len(blocks)), Labels: uniformity.Parts(n)}
		r, err := Epoch(t.Context(), plan, data, Options{Epoch: 1, GlobalBatch: 64, Worlds: []int{1, 4}})
		if err != nil {
			t.Fatal(err)
		}
		if !r.ExactlyOnce || r.Samples != v.Samples() {
			t.Errorf("%s: %+v", name, r)
		}
		m := mix.Mix{Shuffle: true, Tail: order.TailShort, Epoch: v.Samples(), Segments: []mix.Segment{{Weights: []uint64{1}}}, Sources: []mix.Source{
			{Name: "a", Digest: "d", Units: v.Samples(), Lanes: 4, RunBlocks: 1, Delay: 100, Head: 4, Affinity: order.AffinityEpoch},
		}}
		mixed, err := mix.New(m)
		if err != nil {
			t.Fatal(err)
		}
		orders, err := m.Orders([]order.Table{table})
		if err != nil {
			t.Fatal(err)
		}
		of, err := Mix(t.Context(), mixed, 0, orders, []Source{data}, Options{GlobalBatch: 64, Steps: 3 * v.Samples() / 64})
		if err != nil || !of.ExactlyOnce || of.Sources[0].VIF > 2 {
			t.Errorf("%s in a mix: %+v, %v", name, of, err)
		}
		own := data.Labels.In(plan, 1)
		if m, err := uniformity.Measure(plan, own, 64, nil, uniformity.Span{Epoch: 1}); err != nil || m.VIF > 2 {
			t.Errorf("%s: VIF %v, %v", name, m.VIF, err)
		}
	}
}
