package uniformity

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/shardtool/shardtool/reader/order"
)

func newPlan(t *testing.T, table order.Table, p order.Params) *order.Plan {
	t.Helper()
	plan, err := order.New(table, "", p)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

func params(tail order.Tail) order.Params {
	return order.Params{Seed: 3, Shuffle: true, Lanes: 12, RunBlocks: 1, Delay: 4, Head: 2, Affinity: order.AffinityEpoch, Tail: tail}
}

// randomSet is 60 blocks of up to 30 samples with 7 labels of different frequency, in runs.
func randomSet() (order.Table, []uint16) {
	rnd := rand.New(rand.NewPCG(1, 2))
	var table order.Table
	var of []uint16
	for b := range 60 {
		if b%9 == 0 {
			table.ShardFirst = append(table.ShardFirst, b)
		}
		n := rnd.IntN(31)
		table.Samples = append(table.Samples, uint32(n))
		label := uint16(rnd.IntN(7) * rnd.IntN(7) / 6)
		for range n {
			of = append(of, label)
		}
	}
	return table, of
}

// straight is the definition: the mean over labels of (c − g·p)² / (g·p·(1−p)·(N−g)/(N−1)).
func straight(of []uint16, numbers []uint64) float64 {
	var share, count [7]float64
	for _, l := range of {
		share[l] += 1 / float64(len(of))
	}
	for _, x := range numbers {
		count[of[x]]++
	}
	g, n := float64(len(numbers)), float64(len(of))
	var sum, labels float64
	for l, p := range share {
		if p > 0 {
			d := count[l] - g*p
			sum, labels = sum+d*d/(g*p*(1-p)*(n-g)/(n-1)), labels+1
		}
	}
	return sum / labels
}

// near compares figures that were added up in another order.
func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*max(1, math.Abs(b)) }

// TestFigures counts everything again from the numbers that each rank gets, straight from the
// definitions.
func TestFigures(t *testing.T) {
	table, of := randomSet()
	const g = 40
	for _, tail := range []order.Tail{order.TailShort, order.TailDrop, order.TailWrap, order.TailPad} {
		plan := newPlan(t, table, params(tail))
		n := plan.Samples()
		f, err := Measure(plan, NewLabels(of), g, []int{1, 3, 8}, Span{Epoch: 2})
		if err != nil {
			t.Fatal(err)
		}
		for w, size := range []int{1, 3, 8} {
			var all, seen, same, pairs float64
			perBatch := make([][]float64, 1000)
			least := 99
			for rank := range size {
				refs, batches := refsOf(t, plan, 2, order.Split{GlobalBatch: g, Rank: rank, World: size}, n)
				labels := map[uint16]bool{}
				for i, r := range refs {
					labels[of[r.Number]] = true
					if i > 0 {
						pairs++
						if refs[i-1].Block == r.Block {
							same++
						}
					}
				}
				seen, least = seen+float64(len(labels))/float64(size), min(least, len(labels))
				for i, numbers := range batches {
					if len(numbers) > 0 {
						perBatch[i] = append(perBatch[i], straight(of, numbers))
					}
				}
				alone, samples, err := Rank(plan, NewLabels(of), order.Split{GlobalBatch: g, Rank: rank, World: size}, Span{Epoch: 2})
				if err != nil || samples != uint64(len(refs)) || alone.LabelsLeast != len(labels) || size == 1 && alone != f.Worlds[w] {
					t.Errorf("%s, rank %d of %d: %+v of %d samples, %v; all ranks: %+v", tail, rank, size, alone, samples, err, f.Worlds[w])
				}
			}
			count := 0.0
			for i, parts := range perBatch {
				for _, v := range parts {
					if i >= 10 {
						all += v / float64(len(parts))
					}
				}
				if i >= 10 && len(parts) > 0 {
					count++
				}
			}
			got := f.Worlds[w]
			want := World{Size: size, Ranks: size, VIF: all / count, LabelsLeast: least, LabelsMean: seen, SameBlock: same / pairs}
			if got.Size != size || got.Ranks != size || got.LabelsLeast != least || !near(got.VIF, want.VIF) || !near(got.LabelsMean, seen) || !near(got.SameBlock, want.SameBlock) {
				t.Errorf("%s, %d ranks: %+v, want %+v", tail, size, got, want)
			}
		}
		_, batches := refsOf(t, plan, 2, order.Split{GlobalBatch: g, World: 1}, n)
		var pooled, of16 []float64
		for i := 0; i+Accumulated <= len(batches); i += Accumulated {
			pooled = append(pooled, straight(of, slices.Concat(batches[i:i+Accumulated]...)))
		}
		if of16 = pooled; len(pooled) > 10 {
			of16 = pooled[10:]
		}
		mean := 0.0
		for _, v := range of16 {
			mean += v / float64(len(of16))
		}
		if len(pooled) == 0 || !near(f.Pooled, mean) {
			t.Errorf("%s: %.3f of %d batches together, want %.3f of %d", tail, f.Pooled, Accumulated, mean, len(pooled))
		}
		if !near(f.VIF, f.Worlds[0].VIF) || len(f.First) != 10 || f.Samples != n && tail != order.TailDrop {
			t.Errorf("%s: %+v of %d samples", tail, f, n)
		}
	}
}

// refsOf is what a rank gets of an epoch, as one list and by batch. Padding and samples of the next
// epoch are left out.
func refsOf(t *testing.T, plan *order.Plan, epoch uint64, s order.Split, n uint64) (all []order.Ref, batches [][]uint64) {
	t.Helper()
	c, err := plan.Seek(epoch, 0)
	if err != nil {
		t.Fatal(err)
	}
	c.Until(epoch + 1)
	for {
		refs, b, err := c.NextBatch(nil, s)
		if err != nil {
			return all, batches
		}
		var numbers []uint64
		for i, r := range refs {
			if b.Position+uint64(b.First+i) < n {
				all, numbers = append(all, r), append(numbers, r.Number)
			}
		}
		batches = append(batches, numbers)
	}
}

// TestUniform: what a whole window shuffles is 1, for ranks too; storage order is as bad as can be.
func TestUniform(t *testing.T) {
	d := sorted{500, 40, mib, 50}
	p := params(order.TailDrop)
	p.Lanes, p.Delay, p.Head = 1, 4096, 4096
	f, err := Measure(newPlan(t, d.table(), p), d.labels(), 200, []int{4}, Span{})
	if err != nil || f.VIF < 0.9 || f.VIF > 1.1 || f.Worlds[0].VIF < 0.9 || f.Worlds[0].VIF > 1.1 || f.Worlds[0].LabelsLeast != 50 {
		t.Errorf("uniform: %+v, %v", f, err)
	}
	if math.Abs(f.Adjacent-f.Expected) > 0.005 || !near(f.Expected, 1./50) || f.Worlds[0].SameBlock > 0.01 {
		t.Errorf("neighbours of a uniform permutation: %+v", f)
	}
	p.Shuffle, p.Delay, p.Head = false, 1, 1
	f, err = Measure(newPlan(t, d.table(), p), d.labels(), 200, []int{4}, Span{})
	if err != nil || f.VIF < 150 || f.Adjacent < 0.99 || f.Worlds[0].SameBlock < 0.9 {
		t.Errorf("storage order: %+v, %v", f, err)
	}
}

// TestSmallBlocks: where each of eight ranks reads a part of a small data set, it sees a part of
// the classes, and more of them in smaller blocks.
func TestSmallBlocks(t *testing.T) {
	var seen []float64
	for _, d := range []sorted{{196, 300, mib, 100}, {784, 75, 256 * kib, 100}} {
		p, err := order.Choose(d.table(), order.Choice{Shuffle: true, Lanes: 96})
		if err != nil {
			t.Fatal(err)
		}
		f, err := Measure(newPlan(t, d.table(), p), Parts(uint64(d.blocks*d.perBlock)), 256, []int{8}, Span{})
		if err != nil {
			t.Fatal(err)
		}
		seen = append(seen, f.Worlds[0].LabelsMean)
	}
	if seen[0] > 50 || seen[1] < 1.5*seen[0] {
		t.Errorf("classes that a rank sees: %.1f in blocks of 1 MiB, %.1f in blocks of 256 KiB", seen[0], seen[1])
	}
}

// TestSampled: a large epoch is measured in part, in bounded time, and close to what the whole has.
func TestSampled(t *testing.T) {
	d := sorted{4000, 50, mib, 100}
	plan := newPlan(t, d.table(), params(order.TailShort))
	whole, err := Measure(plan, d.labels(), 128, []int{4}, Span{})
	if err != nil {
		t.Fatal(err)
	}
	part, err := Measure(plan, d.labels(), 128, []int{4}, Span{Most: 50_000})
	if err != nil || part.Samples < 50_000 || part.Samples > 50_000+128 || part.First != nil || math.Abs(part.VIF/whole.VIF-1) > 0.15 {
		t.Errorf("%+v, %v; the whole: %+v", part, err, whole)
	}
	_, samples, err := Rank(plan, d.labels(), order.Split{GlobalBatch: 1, Rank: 3, World: 1000}, Span{Most: 100})
	if err != nil || samples > 100 {
		t.Errorf("a rank that gets nothing of most batches: %d samples, %v", samples, err)
	}
	stop := errors.New("stop")
	if _, err := Measure(plan, d.labels(), 128, nil, Span{Stop: func() error { return stop }}); !errors.Is(err, stop) {
		t.Errorf("stopped: %v", err)
	}
	if f, err := Measure(newPlan(t, order.Table{}, params(order.TailShort)), Parts(0), 128, []int{4}, Span{}); err != nil || f.Samples != 0 {
		t.Errorf("no samples: %+v, %v", f, err)
	}
}

// TestParts: parts of storage are as equal as can be, and their counts are those of their labels.
func TestParts(t *testing.T) {
	for _, n := range []uint64{1, 7, 99, 100, 101, 12345} {
		l := Parts(n)
		count := make([]uint64, l.Len())
		for x := range n {
			count[l.Of(x)]++
		}
		for i, c := range count {
			if c != l.count[i] || c < n/uint64(l.Len()) || c > n/uint64(l.Len())+1 {
				t.Errorf("%d samples: part %d has %d, told %d", n, i, c, l.count[i])
			}
		}
	}
	if l := Parts(math.MaxInt64); l.Of(math.MaxInt64-1) != 99 {
		t.Error("the last sample of a large data set is not in the last part")
	}
}
