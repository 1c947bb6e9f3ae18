package order_test

import (
	"errors"
	"fmt"
	"io"

	"github.com/shardtool/shardtool/reader/order"
)

// A reader asks for the samples of its rank, batch by batch, and keeps where the next batch begins.
func ExamplePlan_Seek() {
	table := order.Table{Samples: []uint32{3, 3, 3, 3}, ShardFirst: []int{0, 2}, Decoded: 4 << 20}
	params, err := order.Choose(table, order.Choice{Shuffle: true, Seed: 7, Lanes: 2, Delay: 2, Tail: order.TailShort})
	if err != nil {
		fmt.Println(err)
		return
	}
	plan, err := order.New(table, "example", params)
	if err != nil {
		fmt.Println(err)
		return
	}
	cursor, err := plan.Seek(0, 0)
	if err != nil {
		fmt.Println(err)
		return
	}
	cursor.Until(1)
	var refs []order.Ref
	for {
		var batch order.Batch
		refs, batch, err = cursor.NextBatch(refs[:0], order.Split{GlobalBatch: 5, Rank: 0, World: 1})
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Print(batch.Position, ":")
		for _, r := range refs {
			fmt.Print(" ", r.Number)
		}
		fmt.Println()
	}
	// Output:
	// 0: 10 8 7 3 4
	// 5: 6 9 2 5 0
	// 10: 11 1
}
