package units_test

import (
	"context"
	"fmt"

	"github.com/shardtool/shardtool/internal/order/units"
	"github.com/shardtool/shardtool/reader/order"
)

// Pack eight samples into sequences of 10 tokens, in storage order.
func Example() {
	table := order.Table{Samples: []uint32{4, 4}, ShardFirst: []int{0}, Decoded: 1 << 20}
	lengths := []uint32{7, 3, 12, 5, 4, 6, 1, 9}
	params, p, err := units.Choose(table, order.Choice{Epochs: 1}, units.Params{Kind: units.Pack, Size: 10, Long: units.LongSplit})
	if err != nil {
		panic(err)
	}
	plan, err := order.New(table, "", params)
	if err != nil {
		panic(err)
	}
	u, err := units.New(plan, lengths, p)
	if err != nil {
		panic(err)
	}
	plans := func(epoch uint64) (*units.Plan, error) { return u.Plan(context.Background(), epoch, 1, nil) }
	cursor, err := u.Seek(0, 0, plans)
	if err != nil {
		panic(err)
	}
	refs, batch, err := cursor.NextBatch(nil, order.Split{GlobalBatch: 10, World: 1})
	if err != nil {
		panic(err)
	}
	for i, cut := range batch.Cuts {
		fmt.Printf("sequence %d: %d tokens of sample %d from %d on\n", cut.Unit, cut.Length, refs[i].Number, cut.Offset)
	}
	// Output:
	// sequence 0: 10 tokens of sample 2 from 0 on
	// sequence 1: 1 tokens of sample 6 from 0 on
	// sequence 1: 9 tokens of sample 7 from 0 on
	// sequence 2: 7 tokens of sample 0 from 0 on
	// sequence 2: 3 tokens of sample 1 from 0 on
	// sequence 3: 4 tokens of sample 4 from 0 on
	// sequence 3: 6 tokens of sample 5 from 0 on
	// sequence 4: 2 tokens of sample 2 from 10 on
	// sequence 4: 5 tokens of sample 3 from 0 on
}
