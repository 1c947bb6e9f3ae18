package uniformity_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/shardtool/shardtool/internal/curate/view"
	"github.com/shardtool/shardtool/internal/order/mix"
	"github.com/shardtool/shardtool/internal/order/uniformity"
	"github.com/shardtool/shardtool/internal/order/units"
	"github.com/shardtool/shardtool/reader/order"
)

// stored is a data set of 100 classes, stored class by class in blocks as the writer makes them.
type stored struct {
	name                  string
	blocks, perBlock, len int // len: decoded bytes of a block
}

func (d stored) table() order.Table {
	t := order.Table{Decoded: uint64(d.blocks) * uint64(d.len)}
	for b := range d.blocks {
		if b%250 == 0 {
			t.ShardFirst = append(t.ShardFirst, b)
		}
		t.Samples = append(t.Samples, uint32(d.perBlock))
	}
	return t
}

// orderOf is batches, and what they are measured by.
type orderOf struct {
	seek   func() uniformity.Batches // in the middle of an epoch
	labels []*uniformity.Labels
	plans  []*order.Plan
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// alone is an order of samples.
func alone(t order.Table, labels *uniformity.Labels, c order.Choice) orderOf {
	plan := must(order.New(t, "", must(order.Choose(t, c))))
	seek := func() uniformity.Batches { return must(plan.Seek(0, plan.Samples()/2)) }
	return orderOf{seek, []*uniformity.Labels{labels.In(plan, 0)}, []*order.Plan{plan}}
}

// balanced draws as many samples of each class, of which the last has 199 times those of the first.
func balanced(d stored, c order.Choice) orderOf {
	t, n := d.table(), d.blocks*d.perBlock
	of, count, u := make([]uint16, n), [100]uint32{}, make([]uint32, n)
	for i, class := 0, 0; i < n; i++ {
		for class < 99 && i*10_000 >= (class+1)*(class+1)*n {
			class++
		}
		of[i] = uint16(class)
		count[class]++
	}
	for i, class := range of {
		u[i] = 1 << 28 / count[class]
	}
	t.View = must(view.Weights(t.Samples, u, uint64(n)))
	return alone(t, uniformity.NewLabels(of), c)
}

// packed has sequences of about eight samples. The error tells a memory that is too small.
func packed(t *testing.T, d stored, c order.Choice) (orderOf, error) {
	table, lengths, rnd := d.table(), make([]uint32, d.blocks*d.perBlock), rand.New(rand.NewPCG(1, 2))
	for i := range lengths {
		lengths[i] = 50 + rnd.Uint32N(100)
	}
	params, unit, err := units.Choose(table, c, units.Params{Kind: units.Pack, Size: 800, Long: units.LongError, By: "tokens"})
	if err != nil {
		return orderOf{}, err
	}
	plan := must(order.New(table, "", params))
	u := must(units.New(plan, lengths, unit))
	epochs := map[uint64]*units.Plan{}
	plans := func(epoch uint64) (*units.Plan, error) {
		var err error
		if epochs[epoch] == nil {
			epochs[epoch], err = u.Plan(t.Context(), epoch, 2, nil)
		}
		return epochs[epoch], err
	}
	seek := func() uniformity.Batches { return must(u.Seek(0, must(plans(0)).Units()/2, plans)) }
	return orderOf{seek, []*uniformity.Labels{uniformity.Parts(plan.Stored())}, []*order.Plan{plan}}, nil
}

// mixed reads two such data sets in equal shares.
func mixed(d stored, c order.Choice) orderOf {
	m := mix.Mix{Seed: c.Seed, Shuffle: c.Shuffle, Tail: c.Tail, Segments: []mix.Segment{{}}}
	c.Memory /= 2
	p := must(order.Choose(d.table(), c))
	for _, name := range []string{"a", "b"} {
		n := uint64(d.blocks * d.perBlock)
		m.Sources = append(m.Sources, mix.Source{Name: name, Units: n, Lanes: p.Lanes, RunBlocks: p.RunBlocks, Delay: p.Delay, Head: p.Head, Affinity: p.Affinity})
		m.Segments[0].Weights, m.Epoch = append(m.Segments[0].Weights, n), m.Epoch+n
	}
	orders, plan := must(m.Orders([]order.Table{d.table(), d.table()})), must(mix.New(m))
	seek := func() uniformity.Batches { return must(plan.Seek(m.Epoch/2, orders)) }
	labels := uniformity.Parts(orders[0].Stored())
	return orderOf{seek, []*uniformity.Labels{labels, labels}, orders}
}

// TestTable prints the variance inflation of batches and of a rank's part of eight, with -v for
// smaller shuffle memories too: `go test ./internal/order/uniformity -run TestTable -v`. At the
// default memory it is that of a uniform permutation for small data, and of larger data 1.3 at most
// where batches have up to 1,024 samples that are drawn alike.
func TestTable(t *testing.T) {
	memories := []uint64{order.DefaultMemory}
	if testing.Verbose() {
		memories = append(memories, 64<<20, 16<<20)
		fmt.Println("| samples | read as | shuffle memory | 64: batch, rank, 16 batches | 256 | 1,024 |\n|---|---|---|---|---|---|")
	}
	for _, d := range []stored{
		{"200,000 of 200 B", 782, 256, 257 << 10}, {"200,000 of 1 KB", 1170, 171, 257 << 10}, {"200,000 of 3 KB", 2703, 74, 257 << 10},
		{"1,000,000 of 3 KB", 13_514, 74, 257 << 10}, {"200,000 of 100 KB", 18_182, 11, 1100 << 10},
	} {
		for _, kind := range []string{"single", "mix", "balanced view", "packed"} {
			for _, memory := range memories {
				var o orderOf
				var err error
				switch c := (order.Choice{Shuffle: true, Seed: 3, Memory: memory, Tail: order.TailWrap}); kind {
				case "single":
					o = alone(d.table(), uniformity.Parts(uint64(d.blocks*d.perBlock)), c)
				case "mix":
					o = mixed(d, c)
				case "balanced view":
					o = balanced(d, c)
				case "packed":
					o, err = packed(t, d, c)
				}
				row := " does not fit | | |"
				if err == nil {
					row = o.row(t, d.name+", "+kind, kind == "single" || kind == "mix", memory == order.DefaultMemory)
				}
				if testing.Verbose() {
					fmt.Printf("| %s | %s | %d MiB |%s\n", d.name, kind, memory>>20, row)
				}
			}
		}
	}
}

// row measures an order. alike: all samples are drawn alike, one at a time.
func (o orderOf) row(t *testing.T, name string, alike, defaults bool) (row string) {
	t.Helper()
	for _, g := range []int{64, 256, 1024} {
		whole := order.Split{GlobalBatch: g, World: 1}
		batch, rank := o.worst(t, whole, 1), o.worst(t, order.Split{GlobalBatch: g, Rank: 3, World: 8}, 1)
		row += fmt.Sprintf(" %.2f, %.2f, %.2f |", batch, rank, o.worst(t, whole, uniformity.Accumulated))
		switch v := max(batch, rank); {
		case defaults && o.plans[0].Whole() && v > 1.1: // few batches of thousands of samples: their mean strays
			t.Errorf("%s, batches of %d: VIF %.2f, of a rank's part %.2f of a uniform permutation", name, g, batch, rank)
		case defaults && alike && v > 1.3:
			t.Errorf("%s, batches of %d: VIF %.2f, of a rank's part %.2f", name, g, batch, rank)
		}
	}
	return row
}

// worst is the variance inflation of the source that is mixed least.
func (o orderOf) worst(t *testing.T, s order.Split, together int) (worst float64) {
	t.Helper()
	vif, err := uniformity.MeasureParts(o.seek(), o.labels, s, together, max(1<<17, s.GlobalBatch<<8), func() error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range vif {
		worst = max(worst, v)
	}
	return worst
}
