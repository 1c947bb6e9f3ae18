package mix_test

import (
	"fmt"

	"github.com/shardtool/shardtool/reader/order"
	"github.com/shardtool/shardtool/reader/order/mix"
)

// A run of two sources has read 250 samples: what has each of them been seen?
func ExampleCover() {
	source := func(name string, units uint64) mix.Source {
		return mix.Source{Name: name, Units: units, Lanes: 1, Delay: 1, Head: 1, Affinity: order.AffinityEpoch}
	}
	plan, err := mix.New(mix.Mix{
		Tail: order.TailWrap, Epoch: 100, Sources: []mix.Source{source("code", 40), source("web", 1000)}, Segments: []mix.Segment{{Weights: []uint64{2, 3}}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	checkpoint, err := plan.Checkpoint(250)
	if err != nil {
		fmt.Println(err)
		return
	}
	all, err := mix.Cover([]mix.Checkpoint{checkpoint}, nil)
	for _, c := range all {
		for _, seen := range c.Seen {
			fmt.Printf("%s: %d samples seen %d times\n", c.Source, seen.Samples, seen.Times)
		}
	}
	fmt.Println(err)
	// Output:
	// code: 20 samples seen 2 times
	// code: 20 samples seen 3 times
	// web: 850 samples seen 0 times
	// web: 150 samples seen 1 times
	// <nil>
}
