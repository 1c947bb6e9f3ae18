package mix_test

import (
	"fmt"
	"math/big"

	"github.com/shardtool/shardtool/internal/order/mix"
	"github.com/shardtool/shardtool/reader/order"
)

// A job reads two data sets, three samples of web for one of code, and resumes with equal shares.
func Example() {
	tables := []order.Table{
		{Samples: []uint32{3, 3, 9}, ShardFirst: []int{0}},
		{Samples: []uint32{5, 7, 6, 8, 4}, ShardFirst: []int{0, 3}},
	}
	weights := func(code, web int64) []mix.Segment {
		w, err := mix.Quantize([]string{"code", "web"}, []*big.Rat{big.NewRat(code, 1), big.NewRat(web, 1)})
		if err != nil {
			panic(err)
		}
		return []mix.Segment{{At: 0, Weights: w}}
	}
	m := mix.Mix{Seed: 7, Shuffle: true, Tail: order.TailWrap, Epoch: 60, Segments: weights(1, 3), Sources: []mix.Source{
		{Name: "code", Units: 15, Lanes: 3, RunBlocks: 1, Delay: 3, Head: 2, Affinity: order.AffinityEpoch},
		{Name: "web", Units: 30, Lanes: 6, RunBlocks: 1, Delay: 2, Head: 2, Affinity: order.AffinityEpoch},
	}}
	read := func(m mix.Mix, position uint64) mix.Checkpoint {
		plan, err := mix.New(m)
		if err != nil {
			panic(err)
		}
		orders, err := m.Orders(tables)
		if err != nil {
			panic(err)
		}
		cursor, err := plan.Seek(position, orders)
		if err != nil {
			panic(err)
		}
		refs, batch, err := cursor.NextBatch(nil, order.Split{GlobalBatch: 8, Rank: 0, World: 1})
		if err != nil {
			panic(err)
		}
		fmt.Print(batch.Position, ":")
		for _, r := range refs {
			fmt.Printf(" %s/%d", m.Sources[r.Source].Name, r.Number)
		}
		fmt.Println()
		checkpoint, err := plan.Checkpoint(batch.NextPosition)
		if err != nil {
			panic(err)
		}
		return checkpoint
	}
	checkpoint := read(m, 0)

	m.Segments = weights(1, 1)
	fmt.Println(checkpoint.Fits(m))
	changed, err := checkpoint.Change(m)
	if err != nil {
		panic(err)
	}
	read(changed, checkpoint.Position)
	// Output:
	// 0: web/6 code/0 web/12 web/27 web/20 code/12 web/24 web/2
	// the checkpoint does not fit: source "code": weight is 25% in the checkpoint, 50% here: continue with the mix of the checkpoint, or allow the mix to change
	// 8: code/7 web/5 code/11 web/11 code/14 web/28 code/5 web/22
}
