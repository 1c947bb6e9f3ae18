package order

import (
	"errors"
	"io"
	"slices"
	"testing"
)

// sortedByClass is a labelled data set: classes one after the other, as a packer leaves it that
// does not shuffle.
type sortedByClass struct {
	table    Table
	perClass uint64
	classes  int
}

func newSortedByClass(samples, perBlock, blocksPerShard, classes int) sortedByClass {
	d := sortedByClass{perClass: uint64(samples / classes), classes: classes}
	for b := 0; b < samples/perBlock; b++ {
		if b%blocksPerShard == 0 {
			d.table.ShardFirst = append(d.table.ShardFirst, b)
		}
		d.table.Samples = append(d.table.Samples, uint32(perBlock))
	}
	return d
}

// variance is the variance inflation of each batch of an epoch: Σ over classes of (count −
// expected)², divided by what a uniform permutation of the data set gives on average. The mean over
// batches is the VIF.
func (d *sortedByClass) variance(t testing.TB, p Params, g int) []float64 {
	t.Helper()
	plan := mustPlan(t, d.table, p)
	c, err := plan.Seek(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	c.Until(1)
	share := 1 / float64(d.classes)
	n := float64(plan.Samples())
	// A hypergeometric count has the variance G·p·(1−p)·(N−G)/(N−1).
	uniform := float64(g) * share * (1 - share) * (n - float64(g)) / (n - 1) * float64(d.classes)
	var inflation []float64
	counts := make([]int, d.classes)
	var refs []Ref
	for {
		refs, _, err = c.NextBatch(refs[:0], Split{g, 0, 1})
		if errors.Is(err, io.EOF) {
			return inflation
		}
		if err != nil {
			t.Fatal(err)
		}
		clear(counts)
		for _, r := range refs {
			counts[r.Number/d.perClass]++
		}
		var sum float64
		for _, k := range counts {
			x := float64(k) - float64(g)*share
			sum += x * x
		}
		inflation = append(inflation, sum/uniform)
	}
}

func mean(x []float64) float64 {
	var sum float64
	for _, v := range x {
		sum += v
	}
	return sum / float64(len(x))
}

// TestQuality is the promise of order.md: 1.28 M samples sorted by class, 10 to a block, batches of
// 1024. It is exact and repeatable, so it is asserted.
func TestQuality(t *testing.T) {
	const g = 1024
	d := newSortedByClass(1_280_000, 10, 130, 1000)
	p := Params{Seed: 1, Shuffle: true, Lanes: 96, RunBlocks: 1, Head: 4, Affinity: AffinityEpoch, Tail: TailDrop}
	for _, c := range []struct {
		delay uint32
		limit float64
	}{{16, 1.20}, {24, 1.05}} {
		p.Delay = c.delay
		inflation := d.variance(t, p, g)
		// A lane's head is its first W runs of 10: G·10 samples hold the heads of all lanes for W up to
		// 100.
		const head = 10
		vif := mean(inflation[head:])
		t.Logf("V=96 E=1 W=%d G=%d: VIF %.3f after the head; first ten batches %.2f", c.delay, g, vif, inflation[:head])
		if vif > c.limit {
			t.Errorf("W=%d: VIF %.3f, at most %.2f", c.delay, vif, c.limit)
		}
	}
	// The measure itself: storage order is as bad as can be, and shuffled labels are 1.
	unshuffled, err := Choose(d.table, Choice{Tail: TailDrop})
	if err != nil {
		t.Fatal(err)
	}
	if vif := mean(d.variance(t, unshuffled, g)); vif < 100 {
		t.Errorf("unshuffled VIF %.1f", vif)
	}
	p.Delay, p.Lanes = 4096, 960 // the window is the whole epoch
	if vif := mean(d.variance(t, p, g)); vif < 0.95 || vif > 1.05 {
		t.Errorf("one window for the whole epoch: VIF %.3f", vif)
	}
}

// TestEpochsDiffer: no two epochs or seeds share an order, under either affinity.
func TestEpochsDiffer(t *testing.T) {
	d := newSortedByClass(4000, 10, 20, 10)
	for _, affinity := range []Affinity{AffinityEpoch, AffinityRun} {
		var orders [][]uint64
		for seed := range uint64(2) {
			p := Params{Seed: seed, Shuffle: true, Lanes: 12, RunBlocks: 1, Delay: 4, Head: 4, Affinity: affinity, Tail: TailShort}
			plan := mustPlan(t, d.table, p)
			for epoch := range uint64(3) {
				orders = append(orders, slices.Concat(batchesOf(t, plan, epoch, 0, epoch+1, Split{100, 0, 1})...))
			}
		}
		for i := range orders {
			for j := range i {
				var same int
				for k := range orders[i] {
					if orders[i][k] == orders[j][k] {
						same++
					}
				}
				if same > 40 { // 1 is expected of random permutations
					t.Errorf("affinity %s: orders %d and %d agree at %d of 4000 positions", affinity, i, j, same)
				}
			}
		}
	}
}
