package view_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/shardtool/shardtool/internal/curate/view"
	"github.com/shardtool/shardtool/reader/order"
)

// randomClasses are the classes of n samples, some of none, with the weights and sizes of each.
func randomClasses(rnd *rand.Rand, n uint64) (class []uint32, weights, sizes []uint64) {
	of := map[uint32]uint32{}
	spread := 1 + rnd.Uint32N(30)
	for i := range n {
		k := min(rnd.Uint32N(spread), rnd.Uint32N(spread)) // uneven
		if k == 3 && i < n-1 {
			class = append(class, 0)
			continue
		}
		if of[k] == 0 {
			weights, sizes = append(weights, 1+rnd.Uint64N(1<<rnd.Uint64N(40))), append(sizes, 0)
			of[k] = uint32(len(weights))
		}
		class = append(class, of[k])
		sizes[of[k]-1]++
	}
	if rnd.IntN(2) == 0 {
		for k := range weights {
			weights[k] = 1
		}
	}
	return class, weights, sizes
}

// TestClasses: an epoch has exactly the draws asked for, each class the whole number that its
// weight asks for, or one of the two beside it; the samples of a class have the same number of
// draws to within one, in all epochs; and the counts of blocks are those of the lists, and as
// stable as Slack says.
func TestClasses(t *testing.T) {
	rnd := rand.New(rand.NewPCG(8, 9))
	whole := 0
	for range 300 {
		blocks, n := randomBlocks(rnd)
		class, weights, sizes := randomClasses(rnd, n)
		total := uint64(0)
		for _, g := range weights {
			total += g
		}
		draws := 1 + rnd.Uint64N(3*n)
		if rnd.IntN(2) == 0 {
			draws = uint64(len(weights)) * (1 + rnd.Uint64N(n))
		}
		made, err := view.Classes(blocks, class, weights, draws)
		v := mustView(t, made, err)
		least, most := make([]uint32, len(blocks)), make([]uint32, len(blocks))
		for epoch := range uint32(5) {
			c := v.Chosen(rnd.Uint64(), epoch*1000)
			times := make([]uint64, n)
			var first, all uint64
			for b, samples := range blocks {
				list := c.Append(nil, uint32(b), first)
				if uint32(len(list)) != c.Counts()[b] {
					t.Fatalf("block %d of %d: %d, counted %d", b, samples, list, c.Counts()[b])
				}
				for i, k := range list {
					times[first+uint64(k)]++
					if i > 0 && list[i-1] > k {
						t.Fatalf("block %d: %d is not in storage order", b, list)
					}
				}
				if epoch == 0 {
					least[b] = math.MaxUint32
				}
				least[b], most[b] = min(least[b], c.Counts()[b]), max(most[b], c.Counts()[b])
				if most[b]-least[b] > v.Slack() {
					t.Fatalf("block %d has from %d to %d draws, the slack is %d", b, least[b], most[b], v.Slack())
				}
				first += uint64(samples)
				all += uint64(len(list))
			}
			if all != draws || v.Samples() != draws {
				t.Fatalf("%d draws, want %d", all, draws)
			}
			drawn := make([]uint64, len(weights))
			for i, k := range class {
				switch {
				case k == 0 && times[i] > 0:
					t.Fatalf("sample %d is of no class and drawn %d times", i, times[i])
				case k > 0:
					drawn[k-1] += times[i]
					floor := weights[k-1] * draws / total / sizes[k-1]
					if times[i] < floor || times[i] > floor+1 {
						t.Fatalf("sample %d is drawn %d times, want %d or one more", i, times[i], floor)
					}
				}
			}
			for k, got := range drawn {
				want, rest := weights[k]*draws/total, weights[k]*draws%total
				if got != want && (rest == 0 || got != want+1) {
					t.Fatalf("class %d of weight %d of %d has %d of %d draws", k+1, weights[k], total, got, draws)
				}
				if rest == 0 {
					whole++
				}
			}
		}
	}
	if whole < 500 {
		t.Errorf("only %d classes expected a whole number of draws", whole)
	}
}

// TestClassesOverEpochs: which samples have one more is drawn anew, and so are the classes that do;
// no two samples or classes go together.
func TestClassesOverEpochs(t *testing.T) {
	blocks := []uint32{8, 8, 8}
	class := make([]uint32, 24) // classes of 12, 6, 3 and 3 samples
	for i := range class {
		class[i] = []uint32{1, 2, 1, 3, 1, 2, 1, 4}[i%8]
	}
	made, err := view.Classes(blocks, class, []uint64{1, 1, 1, 1}, 14) // 3.5 of each class
	v := mustView(t, made, err)
	const epochs = 8000
	var times [24]int
	var together [24][24]int // of samples of class 1
	var more [4][4]int       // classes with four draws
	for e := range uint32(epochs) {
		c := v.Chosen(11, e)
		var drawn [4]int
		var has [24]bool
		for b := range blocks {
			for _, i := range c.Append(nil, uint32(b), uint64(8*b)) {
				has[8*b+int(i)] = true
				times[8*b+int(i)]++
				drawn[class[8*b+int(i)]-1]++
			}
		}
		for i := range has {
			for j := range i {
				if has[i] && has[j] {
					together[i][j]++
				}
			}
		}
		for k := range drawn {
			for l := range k {
				if drawn[k] == 4 && drawn[l] == 4 {
					more[k][l]++
				}
			}
		}
	}
	near := func(what string, got int, share float64) {
		t.Helper()
		if want := share * epochs; math.Abs(float64(got)-want) > 5*math.Sqrt(want) {
			t.Errorf("%s: %d of %d, want about %.0f", what, got, epochs, want)
		}
	}
	for i, got := range times {
		near("draws of a sample", got, []float64{3.5 / 12, 3.5 / 6, 3.5 / 3, 3.5 / 3}[class[i]-1])
	}
	for k := range more {
		for l := range k {
			near("two classes with one more", more[k][l], 1./6) // two of four have it
		}
	}
	for i := range class {
		for j := range i {
			if class[i] == 1 && class[j] == 1 && together[i][j] < epochs/50 {
				t.Errorf("samples %d and %d are in %d epochs together", i, j, together[i][j])
			}
		}
	}
}

func TestClassesRefused(t *testing.T) {
	blocks := []uint32{3, 0, 2}
	good := []uint32{1, 2, 0, 1, 2}
	for name, f := range map[string]func() (order.View, error){
		"too few samples":  func() (order.View, error) { return view.Classes(blocks, good[:4], []uint64{1, 1}, 5) },
		"too many samples": func() (order.View, error) { return view.Classes(blocks[:1], good, []uint64{1, 1}, 5) },
		"no such class":    func() (order.View, error) { return view.Classes(blocks, good, []uint64{1}, 5) },
		"an empty class":   func() (order.View, error) { return view.Classes(blocks, good, []uint64{1, 1, 1}, 5) },
		"a weight of 0":    func() (order.View, error) { return view.Classes(blocks, good, []uint64{1, 0}, 5) },
		"weights of 2^63":  func() (order.View, error) { return view.Classes(blocks, good, []uint64{1 << 62, 1 << 62}, 5) },
		"no draws":         func() (order.View, error) { return view.Classes(blocks, good, []uint64{1, 1}, 0) },
		"2^63 draws":       func() (order.View, error) { return view.Classes(blocks, good, []uint64{1, 1}, 1<<63) },
		"draws in a block": func() (order.View, error) { return view.Classes(blocks, good, []uint64{1, 1}, 1<<21+1) },
	} {
		if _, err := f(); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := view.Classes(blocks, make([]uint32, 5), nil, 5); !errors.Is(err, view.ErrEmpty) {
		t.Errorf("a view without classes gives %v", err)
	}
	// Near the limits of 128-bit products: T and n.
	single := make([]uint32, 1<<12)
	class := make([]uint32, 1<<12)
	for i := range single {
		single[i], class[i] = 1, uint32(i%2)+1
	}
	made, err := view.Classes(single, class, []uint64{1 << 61, 1 << 61}, 1<<31)
	for _, n := range mustView(t, made, err).Chosen(1<<63+5, 7).Counts() {
		if n != 1<<19 {
			t.Fatalf("a block has %d draws", n)
		}
	}
}

// BenchmarkClasses is BenchmarkWeights for a view with 1,000 classes.
func BenchmarkClasses(b *testing.B) {
	const n, per = 100_000_000, 256
	blocks := make([]uint32, n/per)
	for i := range blocks {
		blocks[i] = per
	}
	class := make([]uint32, n/per*per)
	rnd := rand.New(rand.NewPCG(1, 1))
	for i := range class {
		class[i] = rnd.Uint32N(1000) + 1
	}
	weights := make([]uint64, 1000)
	for k := range weights {
		weights[k] = 1
	}
	made, err := view.Classes(blocks, class, weights, n/2)
	plan, err2 := order.New(order.Table{Samples: blocks, ShardFirst: []int{0}, View: made}, "", order.Params{
		Seed: 1, Shuffle: true, Lanes: 96, RunBlocks: 1, Delay: 12, Head: 4, Affinity: order.AffinityEpoch, Tail: order.TailWrap,
	})
	if err := errors.Join(err, err2); err != nil {
		b.Fatal(err)
	}
	epoch := uint64(0)
	for b.Loop() {
		epoch++
		if _, err := plan.Seek(epoch, 0); err != nil {
			b.Fatal(err)
		}
	}
}
