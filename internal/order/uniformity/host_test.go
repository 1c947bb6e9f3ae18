package uniformity

import (
	"testing"

	"github.com/shardtool/shardtool/reader/order"
)

// TestHost measures data that is stored class by class and that a host holds whole with the default
// memory: batches, the parts of ranks and 16 batches together vary as at random. Where each rank
// holds it by itself, some vary more.
func TestHost(t *testing.T) {
	worst := 0.0
	for _, c := range []struct{ samples, bytes int }{{400_000, 4 << 10}, {100_000, 20 << 10}, {20_000, 100 << 10}} {
		per := max((1<<20)/c.bytes, 1)
		table := order.Table{Samples: make([]uint32, c.samples/per), Decoded: uint64(c.samples/per*per) * uint64(c.bytes)}
		for i := range table.Samples {
			table.Samples[i] = uint32(per)
			if i%64 == 0 {
				table.ShardFirst = append(table.ShardFirst, i)
			}
		}
		for _, g := range []int{64, 256, 1024} {
			for _, host := range []bool{true, false} {
				p, err := order.Choose(table, order.Choice{Shuffle: true, Epochs: 1, Host: host, GlobalBatch: g, World: 8})
				if err != nil {
					t.Fatal(err)
				}
				plan := newPlan(t, table, p)
				f, err := Measure(plan, Parts(plan.Stored()).In(plan, 0), g, []int{8}, Span{})
				if err != nil {
					t.Fatal(err)
				}
				most := max(f.VIF, f.Worlds[0].VIF)
				if c.samples/g/Accumulated > 20 { // else chance decides
					most = max(most, f.Pooled)
				}
				if host && most > 1.05 {
					t.Errorf("%d samples of %d bytes in batches of %d: %+v", c.samples, c.bytes, g, f)
				}
				if !host {
					worst = max(worst, most)
				}
				t.Logf("%7d x %6d, G %4d, host %v: %.3f, a rank %.3f, 16 together %.3f", c.samples, c.bytes, g, host, f.VIF, f.Worlds[0].VIF, f.Pooled)
			}
		}
	}
	if worst < 1.6 {
		t.Errorf("alone, the variance is %.2f times that at random at most", worst)
	}
}
