package mix

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/reader/order"
)

// counted is a chain of starts that counts each sample it delivers.
type counted struct {
	chain
	batch  int
	steps  Steps
	left   []Range
	seen   map[[2]string]map[uint64]uint64 // by name and digest, then sample number
	tables map[[2]string]order.Table
	saved  []Checkpoint
}

// read delivers n batches on one rank and saves a checkpoint.
func (c *counted) read(t *testing.T, n int) {
	t.Helper()
	for s, x := range c.w.Sources {
		c.tables[[2]string{x.Name, x.Digest}] = c.w.tables[s]
	}
	if c.steps.GlobalBatch != c.batch {
		step, err := c.w.Step(cmpSteps(c.steps), c.cp.Position)
		if err != nil {
			t.Fatal(err)
		}
		c.steps = Steps{step, c.cp.Position, c.batch}
	}
	if step, err := c.w.Step(c.steps, c.cp.Position); err == nil && c.rnd.IntN(2) == 0 {
		if r, err := c.w.LeaveOut(c.steps, step+c.rnd.Uint64N(4), step+4+c.rnd.Uint64N(6)); err == nil && len(c.left) < 8 {
			if r.From = max(r.From, c.cp.Position); r.From < r.To {
				c.left = Join(c.left, r)
			}
		}
	}
	cursor := c.w.cursor(t, c.cp.Position)
	if err := cursor.LeaveOut(c.left); err != nil {
		t.Fatal(err)
	}
	end := c.cp.Position
	for range n {
		refs, b, err := cursor.NextBatch(nil, order.Split{GlobalBatch: c.batch, World: 1})
		if err != nil {
			break // a batch that reaches into a range left out, or the end
		}
		end = b.NextPosition
		for _, r := range refs {
			x := c.w.Sources[r.Source]
			id := [2]string{x.Name, x.Digest}
			if c.seen[id] == nil {
				c.seen[id] = map[uint64]uint64{}
			}
			if !r.Padding {
				c.seen[id][r.Number]++
			}
		}
	}
	c.save(t, end)
}

func cmpSteps(s Steps) Steps {
	s.GlobalBatch = cmp.Or(s.GlobalBatch, 1)
	return s
}

func lastIndex(list []Checkpoint, is func(Checkpoint) bool) int {
	for i := len(list) - 1; i >= 0; i-- {
		if is(list[i]) {
			return i
		}
	}
	return -1
}

func (c *counted) save(t *testing.T, position uint64) {
	t.Helper()
	var err error
	if c.cp, err = mustPlan(t, c.w.Mix).Checkpoint(position); err != nil {
		t.Fatal(err)
	}
	c.cp.Steps, c.cp.LeftOut = c.steps, c.left
	c.saved = append(c.saved, c.cp)
}

func (c *counted) order(s Source, p order.Params) (*order.Plan, error) {
	return order.New([]order.Source{{Table: c.tables[[2]string{s.Name, s.Digest}], Digest: s.Digest}}, p)
}

// check compares the coverage with what was counted.
func (c *counted) check(t *testing.T, all []Coverage) {
	t.Helper()
	named := map[[2]string]bool{}
	for _, got := range all {
		id := [2]string{got.Source, got.Digest}
		named[id] = true
		want := map[uint64]uint64{}
		var given uint64
		for _, n := range c.seen[id] {
			want[n]++
			given += n
		}
		if never := got.Samples - uint64(len(c.seen[id])); never > 0 {
			want[0] = never
		}
		have := map[uint64]uint64{}
		for _, s := range got.Seen {
			have[s.Times] += s.Samples
		}
		if got.Samples > 0 && fmt.Sprint(have) != fmt.Sprint(want) || got.Delivered != given {
			t.Fatalf("%v: %+v, counted %v, %d in all", id, got, want, given)
		}
	}
	for id := range c.seen {
		if !named[id] {
			t.Fatalf("nothing of %v", id)
		}
	}
}

// TestCoverage compares runs with other weights, sources, data sets and batch sizes, and with steps
// left out, with a count of every sample that they delivered.
func TestCoverage(t *testing.T) {
	what, listed, whole := map[string]int{}, 0, 0
	for seed := range uint64(150) {
		rnd := rand.New(rand.NewPCG(17, seed))
		c := counted{
			chain: chain{rnd: rnd, w: randomWorld(rnd), own: map[string]*ownOrder{}, kept: map[string]world{}, what: what, all: true},
			seen:  map[[2]string]map[uint64]uint64{}, tables: map[[2]string]order.Table{}, batch: 1 + rnd.IntN(40),
		}
		for i := range c.w.Sources {
			withoutView(&c.w.Sources[i], &c.w.tables[i])
		}
		c.w.Tail = []order.Tail{order.TailWrap, order.TailShort, order.TailPad, order.TailDrop}[rnd.IntN(4)]
		c.w.Epoch = 100 + rnd.Uint64N(1000)
		c.save(t, 0)
		for range 1 + rnd.IntN(6) {
			for range 1 + rnd.IntN(3) {
				c.read(t, rnd.IntN(12))
			}
			if rnd.IntN(3) == 0 {
				c.batch = 1 + rnd.IntN(40)
			}
			if rnd.IntN(2) == 0 {
				c.change(t)
				c.save(t, c.cp.Position) // with the new mix, as the first batch would
			}
		}
		c.read(t, 5)
		distinct := !slices.ContainsFunc(c.saved, func(a Checkpoint) bool {
			return slices.IndexFunc(c.saved, func(b Checkpoint) bool { return a.Position == b.Position && a.From == b.From }) !=
				lastIndex(c.saved, func(b Checkpoint) bool { return a.Position == b.Position && a.From == b.From })
		})
		if distinct {
			rnd.Shuffle(len(c.saved), func(i, k int) { c.saved[i], c.saved[k] = c.saved[k], c.saved[i] })
		}
		all, err := Cover(c.saved, c.order)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		c.check(t, all)
		if _, err := Cover(c.saved, nil); errors.Is(err, ErrOrder) {
			listed++
		} else if err != nil {
			t.Fatal(err)
		} else {
			whole++
		}
	}
	if listed < 20 || whole < 10 || what["replaced"] < 10 || what["removed"] < 10 {
		t.Errorf("%d runs were listed, %d were not, %v", listed, whole, what)
	}
}

// TestCoverageOfDataset compares runs of one data set with a count.
func TestCoverageOfDataset(t *testing.T) {
	rnd := rand.New(rand.NewPCG(19, 20))
	for range 40 {
		x, table := randomSource(rnd, "a")
		withoutView(&x, &table)
		if x.Units == 0 {
			continue
		}
		p := order.Params{Seed: 5, Shuffle: true, Lanes: x.Lanes, RunBlocks: x.RunBlocks, Delay: x.Delay, Head: x.Head, Affinity: x.Affinity}
		p.Tail = []order.Tail{order.TailWrap, order.TailShort, order.TailPad, order.TailDrop}[rnd.IntN(4)]
		plan, err := order.New([]order.Source{{Table: table, Digest: "x"}}, p)
		if err != nil {
			t.Fatal(err)
		}
		cursor, err := plan.Seek(0, 0)
		if err != nil {
			t.Fatal(err)
		}
		g := int(1 + rnd.Uint64N(x.Units))
		seen := map[uint64]uint64{}
		var run []order.Checkpoint
		for range 1 + rnd.IntN(30) {
			refs, b, err := cursor.NextBatch(nil, order.Split{GlobalBatch: g, World: 1})
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range refs {
				if !r.Padding {
					seen[r.Number]++
				}
			}
			cp, err := plan.Checkpoint(b.NextEpoch, b.NextPosition)
			if err != nil {
				t.Fatal(err)
			}
			cp.GlobalBatch = g
			run = append(run, cp)
		}
		if rnd.IntN(2) == 0 {
			run = run[len(run)-1:]
		}
		got, err := CoverDataset(run, func(p order.Params) (*order.Plan, error) {
			return order.New([]order.Source{{Table: table, Digest: "x"}}, p)
		})
		if err != nil {
			t.Fatal(err)
		}
		c := counted{seen: map[[2]string]map[uint64]uint64{{"", "x"}: seen}}
		c.check(t, []Coverage{got})
	}
}

// TestCoverageHistory: checkpoints that leave open what the run read are refused, with what to add.
func TestCoverageHistory(t *testing.T) {
	m := twoSources()
	first, later := checkpointOf(t, m, 50), checkpointOf(t, m, 250) // the weights change at 200
	left := []Range{{30, 40}}
	for _, c := range []struct {
		name, want string
		run        func() []Checkpoint
	}{
		{"none", "give one", func() []Checkpoint { return nil }},
		{"left out before", "samples were left out at 30, but the first checkpoint knows its run from 219 on", func() []Checkpoint {
			late := later
			late.LeftOut = left
			return []Checkpoint{late}
		}},
		{"another seed", "other seeds, tails or epochs", func() []Checkpoint {
			other := m
			other.Seed++
			return []Checkpoint{first, checkpointOf(t, other, 250)}
		}},
		{"another branch", "which is not on the way to that at 250", func() []Checkpoint {
			other := m
			other.Segments = []Segment{{0, []uint64{1, 9}}, {200, []uint64{1, 1}}}
			return []Checkpoint{checkpointOf(t, other, 240), later}
		}},
		{"replaced", `source "web": its data set was replaced before position`, func() []Checkpoint {
			asked := m
			asked.Sources = slices.Clone(m.Sources)
			asked.Sources[1].Digest = "sha256:new"
			changed, err := first.Change(asked)
			if err != nil {
				t.Fatal(err)
			}
			return []Checkpoint{checkpointOf(t, changed, 300)}
		}},
		{"drop", "batch size before position 90 is not known", func() []Checkpoint {
			other := m
			other.Tail = order.TailDrop
			cp := checkpointOf(t, other, 250)
			cp.Steps = Steps{3, 90, 20} // the epoch ends at 45
			return []Checkpoint{cp}
		}},
	} {
		if _, err := Cover(c.run(), nil); !errors.Is(err, ErrHistory) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
	}
	of := later
	of.Sources = slices.Clone(of.Sources)
	of.Sources[0].View = "0123456789abcdef"
	if _, err := Cover([]Checkpoint{of}, nil); !errors.Is(err, ErrWhole) {
		t.Errorf("a view: %v", err)
	}
	first.LeftOut, later.LeftOut = left, left
	if all, err := Cover([]Checkpoint{later, first}, nil); err != nil && !errors.Is(err, ErrOrder) || err == nil && all[0].LeftOut+all[1].LeftOut != 10 {
		t.Errorf("with the one before: %+v, %v", all, err)
	}
}
