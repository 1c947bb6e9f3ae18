package view_test

import (
	"errors"
	"io"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/shardtool/shardtool/internal/curate/view"
	"github.com/shardtool/shardtool/reader/order"
)

// randomBlocks has empty blocks too.
func randomBlocks(rnd *rand.Rand) (blocks []uint32, n uint64) {
	for range 1 + rnd.IntN(30) {
		blocks = append(blocks, rnd.Uint32N(20))
		n += uint64(blocks[len(blocks)-1])
	}
	return append(blocks, 3), n + 3
}

func randomWeights(rnd *rand.Rand, n uint64) (u []uint32, total uint64) {
	for range n {
		x := rnd.Uint32N(3) * rnd.Uint32N(1<<rnd.Uint32N(32))
		u = append(u, x)
		total += uint64(x)
	}
	if total == 0 {
		u[0], total = 1, 1
	}
	return u, total
}

func mustView(t testing.TB, v order.View, err error) order.View {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestDraws: an epoch has exactly the draws asked for, each sample ⌊u·n/T⌋ of them or one more, and
// the counts of blocks are those of the lists.
func TestDraws(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		blocks, n := randomBlocks(rnd)
		u, total := randomWeights(rnd, n)
		draws := 1 + rnd.Uint64N(3*n)
		made, err := view.Weights(blocks, u, draws)
		v := mustView(t, made, err)
		c := v.Chosen(rnd.Uint64(), rnd.Uint32())
		var first, all uint64
		for b, samples := range blocks {
			list := c.Append(nil, uint32(b), first)
			if uint32(len(list)) != c.Counts()[b] || !slices.IsSorted(list) {
				t.Fatalf("block %d of %d: %d, counted %d", b, samples, list, c.Counts()[b])
			}
			all += uint64(len(list))
			times := make([]int64, samples)
			for _, i := range list {
				times[i]++
			}
			for i, got := range times {
				least := new(big.Int).Mul(big.NewInt(int64(u[first+uint64(i)])), new(big.Int).SetUint64(draws))
				least.Div(least, new(big.Int).SetUint64(total))
				if over := got - least.Int64(); over < 0 || over > 1 {
					t.Fatalf("sample %d of weight %d of %d has %d of %d draws", first+uint64(i), u[first+uint64(i)], total, got, draws)
				}
			}
			first += uint64(samples)
		}
		if all != draws || v.Samples() != draws {
			t.Fatalf("%d draws, want %d", all, draws)
		}
	}
}

// TestLimits of 128-bit arithmetic: T and n near 2^63.
func TestDrawsNearTheLimits(t *testing.T) {
	u := make([]uint32, 1<<12)
	for i := range u {
		u[i] = 1<<32 - 1
	}
	blocks := make([]uint32, len(u))
	for i := range blocks {
		blocks[i] = 1
	}
	const n = 1 << 31 // 2^19 draws a sample, and a product of 2^75
	made, err := view.Weights(blocks, u, n)
	c := mustView(t, made, err).Chosen(1<<63+5, 7)
	for b := range blocks {
		if c.Counts()[b] != n>>12 {
			t.Fatalf("block %d has %d draws", b, c.Counts()[b])
		}
	}
	if _, err := view.Weights(blocks, u, n*2+1); err == nil {
		t.Error("more than 2^20 draws in a block were accepted")
	}
	if _, err := view.Weights(blocks, u, 1<<63); err == nil {
		t.Error("2^63 draws were accepted")
	}
}

// TestPlan: an epoch in the order of a view is its samples, at the places that the table has for
// them, and a cursor that starts anywhere continues with the same ones.
func TestPlan(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for k := range 400 {
		blocks, n := randomBlocks(rnd)
		table := order.Table{Samples: blocks, ShardFirst: []int{0, rnd.IntN(len(blocks))}}
		u, _ := randomWeights(rnd, n)
		chosen := make([]byte, (n+7)/8)
		for i, x := range u {
			if x > 0 {
				chosen[i/8] |= 1 << (i % 8)
			}
		}
		made, err := view.Subset(blocks, chosen)
		if k%2 == 0 {
			made, err = view.Weights(blocks, u, 1+rnd.Uint64N(2*n))
		}
		if k%5 == 0 {
			class, weights, _ := randomClasses(rnd, n)
			made, err = view.Classes(blocks, class, weights, 1+rnd.Uint64N(2*n))
		}
		table.View = mustView(t, made, err)
		delay := 1 + rnd.Uint32N(4)
		p := order.Params{
			Seed: rnd.Uint64(), Shuffle: true, Lanes: 1 + rnd.Uint32N(6), RunBlocks: rnd.Uint32N(4), Delay: delay, Head: 1 + rnd.Uint32N(delay),
			Affinity: []order.Affinity{order.AffinityEpoch, order.AffinityRun}[k/2%2], Tail: order.TailShort,
		}
		if k%8 > 5 {
			p.Shuffle, p.Delay, p.Head = false, 1, 1
		}
		checkPlan(t, rnd, table, p)
	}
}

func checkPlan(t *testing.T, rnd *rand.Rand, table order.Table, p order.Params) {
	t.Helper()
	plan, err := order.New(table, "", p)
	if err != nil {
		t.Fatal(err)
	}
	const epochs = 3
	split := order.Split{GlobalBatch: 1 + rnd.IntN(9), World: 1}
	all := read(t, plan, 0, 0, split, epochs)
	if uint64(len(all)) != epochs*plan.Samples() {
		t.Fatalf("%d samples in %d epochs of %d", len(all), epochs, plan.Samples())
	}
	for e := range uint32(epochs) {
		epoch := slices.Clone(all[uint64(e)*plan.Samples():][:plan.Samples()])
		from := e
		if p.Affinity == order.AffinityRun {
			from = 0
		}
		slices.SortFunc(epoch, func(a, b order.Ref) int {
			return int(int64(a.Number)-int64(b.Number))*1000 + int(a.Draw) - int(b.Draw)
		})
		c, first := table.View.Chosen(p.Seed, from), uint64(0)
		for b, samples := range table.Samples {
			for i, index := range c.Append(nil, uint32(b), first) {
				r := epoch[0]
				if r.Number != first+uint64(index) || r.Index != index || r.Block != uint32(b) || r.Epoch != e {
					t.Fatalf("epoch %d: draw %d of block %d is %+v, want index %d", e, i, b, r, index)
				}
				if r.Draw > 0 && epochBefore(all, r) == false {
					t.Fatalf("%+v has no draw before it", r)
				}
				epoch = epoch[1:]
			}
			first += uint64(samples)
		}
	}
	at := rnd.Uint64N(uint64(len(all)))
	if later := read(t, plan, at/plan.Samples(), at%plan.Samples(), order.Split{GlobalBatch: 1, World: 1}, epochs); p.Lanes == 1 && !same(later, all[at:]) {
		t.Fatalf("from %d on the order differs", at)
	}
}

// epochBefore reports whether the draw before r is in the order.
func epochBefore(all []order.Ref, r order.Ref) bool {
	return slices.ContainsFunc(all, func(x order.Ref) bool {
		return x.Epoch == r.Epoch && x.Number == r.Number && x.Draw+1 == r.Draw
	})
}

func same(a, b []order.Ref) bool {
	return slices.EqualFunc(a, b, func(x, y order.Ref) bool { return x.Number == y.Number && x.Epoch == y.Epoch && x.Draw == y.Draw })
}

// read lists the order in batches.
func read(t *testing.T, plan *order.Plan, epoch, position uint64, split order.Split, until uint64) (all []order.Ref) {
	t.Helper()
	c, err := plan.Seek(epoch, position)
	if err != nil {
		t.Fatal(err)
	}
	c.Until(until)
	for {
		refs, _, err := c.NextBatch(nil, split)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, refs...)
	}
}

// TestSplit: ranks together read what one reads.
func TestSplit(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	for range 50 {
		blocks, n := randomBlocks(rnd)
		u, _ := randomWeights(rnd, n)
		made, err := view.Weights(blocks, u, 1+rnd.Uint64N(2*n))
		table := order.Table{Samples: blocks, ShardFirst: []int{0}, View: mustView(t, made, err)}
		plan, err := order.New(table, "", order.Params{
			Seed: 7, Shuffle: true, Lanes: 3, RunBlocks: 2, Delay: 2, Head: 1, Affinity: order.AffinityEpoch, Tail: order.TailShort,
		})
		if err != nil {
			t.Fatal(err)
		}
		world := 1 + rnd.IntN(4)
		for e := range uint64(2) {
			one, err := plan.Seek(e, 0)
			if err != nil {
				t.Fatal(err)
			}
			want, _, err := one.NextBatch(nil, order.Split{GlobalBatch: int(plan.Samples()), World: 1})
			if err != nil {
				t.Fatal(err)
			}
			var got []order.Ref
			for r := range world {
				c, err := plan.Seek(e, 0)
				if err != nil {
					t.Fatal(err)
				}
				if got, _, err = c.NextBatch(got, order.Split{GlobalBatch: int(plan.Samples()), Rank: r, World: world}); err != nil {
					t.Fatal(err)
				}
			}
			if !same(got, want) {
				t.Fatalf("%d ranks read %v, one %v", world, got, want)
			}
		}
	}
}

// TestRefused is views that cannot be.
func TestRefused(t *testing.T) {
	blocks := []uint32{3, 0, 6}
	for name, f := range map[string]func() (order.View, error){
		"no samples":       func() (order.View, error) { return view.Subset(blocks, []byte{0, 0}) },
		"too few bits":     func() (order.View, error) { return view.Subset(blocks, []byte{1}) },
		"too many bits":    func() (order.View, error) { return view.Subset(blocks, []byte{1, 0, 0}) },
		"a bit past":       func() (order.View, error) { return view.Subset(blocks, []byte{1, 2}) },
		"all zero":         func() (order.View, error) { return view.Weights(blocks, make([]uint32, 9), 5) },
		"too few weights":  func() (order.View, error) { return view.Weights(blocks, make([]uint32, 8), 5) },
		"too many weights": func() (order.View, error) { return view.Weights(blocks, make([]uint32, 10), 5) },
		"no draws":         func() (order.View, error) { return view.Weights(blocks, []uint32{1, 1, 1, 1, 1, 1, 1, 1, 1}, 0) },
	} {
		if _, err := f(); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := view.Subset(blocks, []byte{0, 0}); !errors.Is(err, view.ErrEmpty) {
		t.Errorf("a view without samples gives %v", err)
	}
}

// BenchmarkWeights is the plan of an epoch of a view with weights: 1e8 samples in blocks of 256.
func BenchmarkWeights(b *testing.B) {
	const n, per = 100_000_000, 256
	blocks := make([]uint32, n/per)
	for i := range blocks {
		blocks[i] = per
	}
	u := make([]uint32, n/per*per)
	for i := range u {
		u[i] = uint32(i%1000) + 1
	}
	made, err := view.Weights(blocks, u, n/2)
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
