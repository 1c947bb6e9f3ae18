package reader

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/order/cost"
	"github.com/shardtool/shardtool/internal/testset"
	"github.com/shardtool/shardtool/internal/testset/programs"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/reader/order"
)

// A case of the second implementation of costs, python/oracle/costs.py, and its answer.
type (
	costCase struct {
		Blocks     []uint32   `json:"blocks"`
		ShardFirst []int      `json:"shard_first_block"`
		Params     costParams `json:"params"`
		Epoch      uint64     `json:"epoch"`
		Position   uint64     `json:"position"`
		Cost       string     `json:"cost"`
		Values     [][2]int64 `json:"values"` // of the attributes a and b
		Steps      []costStep `json:"steps"`
	}
	costParams struct {
		Seed     string         `json:"seed"`
		Shuffle  bool           `json:"shuffle"`
		V        uint32         `json:"V"`
		E        uint32         `json:"E"`
		W        uint32         `json:"W"`
		H        uint32         `json:"H"`
		T        uint32         `json:"T"`
		Affinity order.Affinity `json:"affinity"`
		Tail     order.Tail     `json:"tail"`
	}
	costStep struct {
		GlobalBatch int `json:"global_batch"`
		World       int `json:"world_size"`
		Group       int `json:"group"`
		Micro       int `json:"micro_batches"`
	}
	costAnswer struct {
		Batches []costBatch `json:"batches"`
	}
	costBatch struct {
		Next  [2]uint64     `json:"next"`
		Ranks [][][2]uint64 `json:"ranks"` // places in the batch, and samples
	}
)

// randomCosts returns a case, and its order.
func randomCosts(t *testing.T, r *rand.Rand) (costCase, *order.Plan) {
	c := costCase{Values: [][2]int64{}, Cost: []string{"a", "a + b/3", "0.35*b + a^2", "b"}[r.IntN(4)]}
	total := uint64(0)
	for range 1 + r.IntN(40) {
		if len(c.Blocks) == 0 || r.IntN(5) == 0 {
			c.ShardFirst = append(c.ShardFirst, len(c.Blocks))
		}
		n := uint32(r.IntN(12))
		c.Blocks, total = append(c.Blocks, n), total+uint64(n)
	}
	for range total {
		c.Values = append(c.Values, [2]int64{int64(r.IntN(1 + r.IntN(1000))), int64(r.IntN(20))})
	}
	p := order.Params{
		Seed: r.Uint64(), Shuffle: r.IntN(5) > 0, Lanes: uint32([]int{1, 2, 3, 6, 12}[r.IntN(5)]), RunBlocks: uint32(1 + r.IntN(3)),
		Delay: uint32(1 + r.IntN(5)), Head: 1, Affinity: []order.Affinity{order.AffinityEpoch, order.AffinityRun}[r.IntN(2)],
		Tail: []order.Tail{order.TailShort, order.TailDrop, order.TailWrap, order.TailPad}[r.IntN(4)],
	}
	if !p.Shuffle {
		p.Delay = 1
	}
	plan, err := order.New(order.Table{Samples: c.Blocks, ShardFirst: c.ShardFirst}, "", p)
	if err != nil {
		t.Fatal(err)
	}
	c.Params = costParams{fmt.Sprint(p.Seed), p.Shuffle, p.Lanes, p.RunBlocks, p.Delay, p.Head, 0, p.Affinity, p.Tail}
	c.Epoch, c.Position = uint64(r.IntN(3)), r.Uint64N(total+1)
	for range 1 + r.IntN(8) {
		group := 1 + r.IntN(6)
		step := costStep{1 + r.IntN(40), group * (1 + r.IntN(3)), group, 1}
		if most := step.GlobalBatch / step.World; most > 1 && r.IntN(3) > 0 {
			step.Micro = 1 + r.IntN(min(most, 5))
		}
		c.Steps = append(c.Steps, step)
	}
	c.ShardFirst = append(c.ShardFirst, len(c.Blocks))
	return c, plan
}

// ofCase returns the costs of a case.
func (c *costCase) costs(t *testing.T) *costs {
	e, err := cost.Parse(c.Cost)
	if err != nil {
		t.Fatal(err)
	}
	out := &costs{expr: e, of: [][]uint64{nil}, micro: 1}
	for _, v := range c.Values {
		values := map[string]int64{"a": v[0], "b": v[1]}
		var given []int64
		for _, name := range e.Names {
			given = append(given, values[name])
		}
		x, err := e.Cost(given)
		if err != nil {
			t.Fatal(err)
		}
		out.of[0] = append(out.of[0], x)
	}
	return out
}

// spanRules checks the spans of a cursor: serial numbers count up, the references are in open
// spans, and each span closes once.
type spanRules struct {
	last uint64
	open map[uint64]order.Span
}

func (s *spanRules) check(t *testing.T, refs []order.Ref, b *order.Batch) {
	t.Helper()
	for _, span := range b.Opened {
		if s.last++; span.Slot != s.last {
			t.Fatalf("span %d opens after %d", span.Slot, s.last-1)
		}
		if span.Place >= len(refs) || refs[span.Place].Slot != span.Slot {
			t.Fatalf("span %+v opens for %d references", span, len(refs))
		}
		s.open[span.Slot] = span
	}
	for i, r := range refs {
		span, ok := s.open[r.Slot]
		if !r.Padding && (!ok || r.Block < span.Block || r.Block >= span.Block+span.Blocks) {
			t.Fatalf("reference %d %+v is not in its span %+v", i, r, span)
		}
	}
	for _, span := range b.Closed {
		if _, ok := s.open[span.Slot]; !ok || span.Place > len(refs) {
			t.Fatalf("span %+v closes", span)
		}
		for i := span.Place; i < len(refs); i++ {
			if refs[i].Slot == span.Slot && !refs[i].Padding {
				t.Fatalf("span %+v closes before reference %d", span, i)
			}
		}
		delete(s.open, span.Slot)
	}
}

// TestCostsReference compares 200 random orders, dealt out by random costs to changing numbers of
// ranks and micro-batches, with the second implementation.
func TestCostsReference(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 3))
	var cases []costCase
	var plans []*order.Plan
	for range 200 {
		c, plan := randomCosts(t, r)
		cases, plans = append(cases, c), append(plans, plan)
	}
	answers := programs.Answers[costAnswer](t, "../python/cost_check.py", cases)
	batches, divided := 0, 0
	for i := range cases {
		c := &cases[i]
		batches += len(answers[i].Batches)
		of := c.costs(t)
		epoch, position := c.Epoch, c.Position
		for k, step := range c.Steps {
			of.group, of.micro = step.Group, step.Micro
			run := &Run{inputs: []*input{{}}, costs: of}
			for rank := range step.World {
				cursor, err := plans[i].Seek(epoch, position)
				if err != nil {
					t.Fatal(err)
				}
				d, err := run.deals(cursor, order.Split{GlobalBatch: step.GlobalBatch, World: step.World})
				if err != nil {
					t.Fatal(err)
				}
				refs, b, err := d.NextBatch(nil, order.Split{GlobalBatch: step.GlobalBatch, Rank: rank, World: step.World})
				if k >= len(answers[i].Batches) {
					if err == nil {
						t.Fatalf("case %d, step %d: a batch that the reference has not", i, k)
					}
					continue
				}
				if err != nil {
					t.Fatalf("case %d, step %d: %v", i, k, err)
				}
				(&spanRules{open: map[uint64]order.Span{}}).check(t, refs, &b)
				want := answers[i].Batches[k]
				divided += step.Micro - 1
				got := [][2]uint64{}
				for n := range refs {
					got = append(got, [2]uint64{uint64(b.Entry(n)), refs[n].Number})
				}
				if !slices.Equal(got, want.Ranks[rank]) || [2]uint64{b.NextEpoch, b.NextPosition} != want.Next {
					t.Fatalf("case %d, step %d, rank %d of %d: %v, want %v", i, k, rank, step.World, got, want.Ranks[rank])
				}
			}
			if k == len(answers[i].Batches) {
				break // the reference stops at a step without a batch
			}
			epoch, position = answers[i].Batches[k].Next[0], answers[i].Batches[k].Next[1]
		}
	}
	if batches < 500 || divided < 500 {
		t.Errorf("%d batches were compared, with %d micro-batches more than ranks have parts", batches, divided)
	}
}

// TestCostsWalk walks through two epochs with one cursor for each rank. The batches have the
// entries that they have without costs, and the spans of each rank follow the rules.
func TestCostsWalk(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 3))
	for i := range 60 {
		c, plan := randomCosts(t, r)
		of, step := c.costs(t), c.Steps[0]
		of.group, of.micro = step.Group, step.Micro
		run := &Run{inputs: []*input{{}}, costs: of}
		ranks, rules := make([]batches, step.World), make([]spanRules, step.World)
		for rank := range ranks {
			cursor, err := plan.Seek(0, 0)
			if err == nil {
				ranks[rank], err = run.deals(cursor, order.Split{GlobalBatch: step.GlobalBatch, World: step.World})
			}
			if err != nil {
				t.Fatal(err)
			}
			rules[rank].open = map[uint64]order.Span{}
		}
		plain, err := plan.Seek(0, 0)
		if err != nil {
			t.Fatal(err)
		}
		for range 50 {
			want, b, err := plain.NextBatch(nil, order.Split{GlobalBatch: step.GlobalBatch, World: 1})
			if err != nil || b.Epoch > 1 {
				break
			}
			of, err := run.Ranks(want, &b, step.World)
			if err != nil {
				t.Fatal(err)
			}
			got := make([]order.Ref, len(want))
			for rank := range ranks {
				refs, own, err := ranks[rank].NextBatch(nil, order.Split{GlobalBatch: step.GlobalBatch, Rank: rank, World: step.World})
				if err != nil {
					t.Fatal(err)
				}
				rules[rank].check(t, refs, &own)
				for n := range refs {
					if entry := own.Entry(n); of[entry] != int32(rank) {
						t.Fatalf("case %d: rank %d has the entry of rank %d", i, rank, of[entry])
					} else {
						got[entry] = refs[n]
					}
				}
			}
			for n := range want {
				if g, w := &got[n], &want[n]; g.Number != w.Number || g.Epoch != w.Epoch || g.Index != w.Index || g.Padding != w.Padding {
					t.Fatalf("case %d: entry %d is %+v, want %+v", i, n, g, w)
				}
			}
		}
	}
}

// lengthOf is an attribute for samples of any key: lengths whose logarithms are normal, sigma 1.
func lengthOf(key string) (int64, bool) {
	r := rand.New(rand.NewPCG(uint64(crc32.ChecksumIEEE([]byte(key))), 5))
	return 1 + int64(500*math.Exp(r.NormFloat64())), true
}

// TestCostsBalance: text with lognormal lengths, 8 ranks of 8 samples. Without costs the costliest
// rank has 1.7 times the mean, with them it is within 1.05 of the bound. So are micro-batches.
func TestCostsBalance(t *testing.T) {
	set := newStreamed(t, mem.New(), mixed(4000), testset.Options{BlockSize: 20_000, ShardSize: 400_000, Integer: lengthOf})
	for _, c := range []struct {
		cost                 string
		world, global, group int
		micro                int
		without              float64
	}{
		{"tokens", 8, 64, 0, 0, 1.5},
		{"tokens", 8, 64, 4, 0, 1.5},
		{"tokens", 8, 256, 0, 0, 1.2},
		{"tokens + 0.0005*tokens^2", 8, 64, 0, 0, 1.7},
		{"tokens", 8, 256, 0, 4, 1.2},
		{"tokens", 8, 256, 4, 4, 1.2},
		{"tokens", 8, 512, 0, 16, 1.1},
		{"tokens", 8, 64, 0, 8, 1.5},
	} {
		s := set.stream(t, StreamOptions{Shuffle: true, Seed: 3, Cost: c.cost, CostGroup: c.group, GlobalBatch: c.global, MicroBatches: c.micro})
		b, err := s.run.Load().Balance(t.Context(), c.global, c.world, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%+v: %+v", c, *b)
		if most := 1.05; b.Steps != uint64((4000+c.global-1)/c.global) || b.Without.Mean < c.without || b.With.Mean > most*b.Bound.Mean || b.With.Most > 1.2*b.Bound.Most {
			t.Errorf("%+v: %+v", c, *b)
		}
		m := b.MicroBatches
		if m == nil && c.micro == 0 {
			continue
		}
		t.Logf("of micro-batches: %+v", *m)
		if m.Count != c.micro || m.Without.Mean < c.without || m.With.Mean > 1.05*m.Bound.Mean || m.With.Most > 1.2*m.Bound.Most {
			t.Errorf("%+v: of micro-batches: %+v", c, *m)
		}
	}
}

// TestCostsRefused: expressions, attributes and values that make no cost, and groups that are none.
func TestCostsRefused(t *testing.T) {
	set := newStreamed(t, mem.New(), mixed(60), testset.Options{BlockSize: 2000, ShardSize: 9000, Integer: func(key string) (int64, bool) {
		n, _ := lengthOf(key)
		return n, key[len(key)-1] != '7'
	}})
	whole := newStreamed(t, mem.New(), mixed(60), testset.Options{BlockSize: 2000, ShardSize: 9000, Integer: lengthOf})
	for _, c := range []struct {
		set  *streamed
		o    StreamOptions
		want string
	}{
		{whole, StreamOptions{Cost: "tokens +"}, "write a number"},
		{whole, StreamOptions{Cost: "patches"}, `no integer attribute "patches", it has ["tokens"]`},
		{set, StreamOptions{Cost: "tokens"}, `has no value of attribute "tokens"`},
		{whole, StreamOptions{Cost: "100 - tokens"}, "has no cost: it is below 0"},
		{whole, StreamOptions{Cost: "tokens^16"}, "has no cost: it is 2^47 or more"},
		{whole, StreamOptions{Cost: "1/(tokens-tokens)"}, "has no cost: it divides by 0"},
		{whole, StreamOptions{Cost: "tokens", CostGroup: 3, World: 8}, "8 ranks are no whole number"},
		{whole, StreamOptions{Cost: "tokens", CostGroup: -1}, "groups of -1"},
		{whole, StreamOptions{CostGroup: 2, World: 8}, "no cost: give one"},
		{whole, StreamOptions{MicroBatches: 2, World: 8}, "2 micro-batches whose costs are balanced, and no cost: give one"},
		{whole, StreamOptions{Cost: "tokens", MicroBatches: -1}, "-1 micro-batches: give 1 to 4096"},
		{whole, StreamOptions{Cost: "tokens", MicroBatches: 4097}, "4097 micro-batches: give 1 to 4096"},
		{whole, StreamOptions{Cost: "tokens", MicroBatches: 5, World: 8, GlobalBatch: 39}, "5 micro-batches of each of 8 ranks, of a batch of 39: some would be empty"},
	} {
		s, err := c.set.Stream(t.Context(), c.o)
		if err == nil {
			s.Close()
		}
		if !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.o, err, c.want)
		}
	}
}

// TestCostsKept: costs that are kept are those that were read, of the same expression.
func TestCostsKept(t *testing.T) {
	set := newStreamed(t, mem.New(), mixed(60), testset.Options{BlockSize: 2000, ShardSize: 9000, Integer: lengthOf})
	o := StreamOptions{Cost: "tokens", Tuning: Tuning{Plans: t.TempDir()}, World: 4, GlobalBatch: 8}
	first := set.stream(t, o)
	again := set.stream(t, o)
	o.Cost = "tokens*2"
	other := set.stream(t, o)
	if a, b, c := first.Info().CostHash, again.Info().CostHash, other.Info().CostHash; a == "" || a != b || a == c {
		t.Errorf("hashes %q, %q, %q", a, b, c)
	}
	if !slices.Equal(first.run.Load().costs.of[0], again.run.Load().costs.of[0]) || len(globbed(t, o.Tuning.Plans)) != 2 {
		t.Error("kept costs differ")
	}
}

// TestCostsDelivered compares every byte that ranks with costs deliver with a stream of one rank,
// under every tail, also where memory is scarce. Removed samples are holes that keep their cost:
// the others stay where they are, also in their micro-batches.
func TestCostsDelivered(t *testing.T) {
	watch(t)
	whole := newStreamed(t, mem.New(), mixed(300), testset.Options{BlockSize: 4000, ShardSize: 40_000, Integer: lengthOf})
	removed := []uint64{3, 4, 77, 150, 151, 152, 299}
	less := &streamed{open(t, whole.Store(), Options{Removed: removed}), whole.samples}
	for i, tail := range []order.Tail{order.TailPad, order.TailWrap, order.TailShort, order.TailDrop} {
		o := StreamOptions{Shuffle: true, Seed: 5, Tail: tail, Epochs: 2, GlobalBatch: 36, Order: OrderOptions{Lanes: 6, Delay: 3}, Hold: 100}
		o.Tuning.Memory = []int64{0, 1 << 20}[i%2]
		one := whole.stream(t, o)
		o.World, o.Cost, o.CostGroup, o.MicroBatches = 6, "0.01*tokens^2", []int{0, 3}[i/2], []int{0, 2, 4, 6}[i]
		var ranks, left []*Stream
		for o.Rank = range o.World {
			ranks, left = append(ranks, whole.stream(t, o)), append(left, less.stream(t, o))
		}
		for {
			want, err := one.Next(t.Context())
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			came := 0
			for r := range ranks {
				got, err := ranks[r].Next(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				part, err := left[r].Next(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				came += got.Len()
				for m := range o.MicroBatches {
					checkMicro(t, got, part, m, want.Len(), r*o.MicroBatches+m, o.World*o.MicroBatches, removed)
				}
				kept := 0
				for n := range got.Samples {
					a, b := &got.Samples[n], &want.Samples[got.Entry(n)]
					if a.Number != b.Number || a.Padding != b.Padding || string(a.Key) != string(b.Key) || !slices.EqualFunc(a.Fields, b.Fields, sameField) {
						t.Fatalf("%s: rank %d has sample %d as entry %d, want %d", tail, r, a.Number, got.Entry(n), b.Number)
					}
					if slices.Contains(removed, a.Number) {
						continue
					}
					if kept == part.Len() || part.Ref(kept).Number != a.Number || part.Entry(part.Place(kept)) != got.Entry(n) {
						t.Fatalf("%s: rank %d: sample %d moved because others were removed", tail, r, a.Number)
					}
					kept++
				}
				if kept != part.Len() || part.Holes != got.Len()-kept {
					t.Fatalf("%s: rank %d has %d samples and %d holes, want %d", tail, r, part.Len(), part.Holes, kept)
				}
				got.Release()
				part.Release()
			}
			if came != want.Len() {
				t.Fatalf("%s: %d samples of %d came", tail, came, want.Len())
			}
			want.Release()
		}
		for _, s := range append(ranks, left...) {
			if _, err := s.Next(t.Context()); !errors.Is(err, io.EOF) {
				t.Fatalf("%s: a rank goes on: %v", tail, err)
			}
		}
	}
}

// checkMicro checks micro-batch m of a rank's batch, the bin-th of all: how many entries it has, that
// they have the order of the batch with padding last, and that those that were not removed are the
// ones of the batch with holes.
func checkMicro(t *testing.T, whole, holed *Batch, m, global, bin, bins int, removed []uint64) {
	t.Helper()
	from, to := whole.MicroBatch(m), whole.MicroBatch(m+1)
	if n := int(order.Share(uint64(global), bin+1, bins) - order.Share(uint64(global), bin, bins)); to-from != n {
		t.Fatalf("micro-batch %d of %d has %d samples, want %d", bin, bins, to-from, n)
	}
	var left []uint64
	for i := from; i < to; i++ {
		a := &whole.Samples[i]
		if i > from {
			before := &whole.Samples[i-1]
			if before.Padding && !a.Padding || before.Padding == a.Padding && whole.Entry(i-1) >= whole.Entry(i) {
				t.Fatalf("micro-batch %d of %d has entry %d after %d", bin, bins, whole.Entry(i), whole.Entry(i-1))
			}
		}
		if !slices.Contains(removed, a.Number) {
			left = append(left, a.Number)
		}
	}
	var got []uint64
	for i := holed.MicroBatch(m); i < holed.MicroBatch(m+1); i++ {
		got = append(got, holed.Samples[i].Number)
	}
	if !slices.Equal(got, left) {
		t.Fatalf("micro-batch %d of %d has samples %d beside holes, want %d", bin, bins, got, left)
	}
}

func sameField(a, b format.FieldView) bool {
	return string(a.Name) == string(b.Name) && string(a.Data) == string(b.Data)
}

// TestCostsOfMix: a mix of text and of images with text, whose patches come in few sizes. It is
// within 1.05 of the bound. A source without the attribute is refused by its name.
func TestCostsOfMix(t *testing.T) {
	patches := func(key string) (int64, bool) {
		n, _ := lengthOf(key)
		return 64 + []int64{0, 256, 576, 1152, 2880}[n%5] + n/4, true
	}
	spec := Spec{Name: "mix.yaml", Order: order.Choice{Shuffle: true, Seed: 2, GlobalBatch: 64, Epochs: 1}, Cost: "tokens"}
	for name, of := range map[string]func(string) (int64, bool){"text": lengthOf, "images": patches, "bare": nil} {
		set := newStreamed(t, mem.New(), mixed(1500), testset.Options{BlockSize: 20_000, ShardSize: 400_000, Integer: of})
		spec.Sources = append(spec.Sources, SourceSpec{Name: name, Set: set.Dataset})
	}
	slices.SortFunc(spec.Sources, func(a, b SourceSpec) int { return strings.Compare(a.Name, b.Name) })
	resolve := func() (*Run, error) {
		x, err := OpenSources(t.Context(), spec, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		return x.Resolve(t.Context(), spec, nil, Change{}, Planning{})
	}
	_, err := resolve()
	var without *CostError
	if !errors.As(err, &without) || without.Attribute != "tokens" || !strings.Contains(err.Error(), `source "bare"`) {
		t.Errorf("a source without the attribute: %v", err)
	}
	spec.Sources = spec.Sources[1:]
	run, err := resolve()
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	b, err := run.Balance(t.Context(), 64, 8, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", *b)
	if b.Steps < 40 || b.Without.Mean < 1.3 || b.With.Mean > 1.05*b.Bound.Mean {
		t.Errorf("%+v", *b)
	}
}
