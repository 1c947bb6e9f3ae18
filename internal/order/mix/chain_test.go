package mix

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/shardtool/shardtool/reader/order"
)

// unit is a sample of an epoch of one data set of a source.
type unit struct {
	digest string
	epoch  uint32
	number uint64
}

// chain is a run of many starts: what it reads, and what it has delivered.
type chain struct {
	rnd  *rand.Rand
	w    world
	cp   Checkpoint
	own  map[string]*ownOrder // by name and digest
	kept map[string]world     // removed sources, by name
	what map[string]int       // changes made
	all  bool                 // no source is a view
}

// source is a new source.
func (c *chain) source(name string) (Source, order.Table) {
	x, table := randomSource(c.rnd, name)
	if c.all {
		withoutView(&x, &table)
	}
	return x, table
}

// ownOrder is the order of a source read alone, and how far the chain has got in it.
type ownOrder struct {
	cursor *order.Cursor
	next   []unit
	digest string
}

// expect takes the next n units of the source's own order.
func (o *ownOrder) expect(t *testing.T, n int) []unit {
	t.Helper()
	var refs []order.Ref
	for range n {
		var b order.Batch
		var err error
		if refs, b, err = o.cursor.NextBatch(refs[:0], order.Split{GlobalBatch: 1, Rank: 0, World: 1}); err != nil {
			t.Fatal(err)
		}
		o.next = append(o.next, unit{o.digest, uint32(b.Epoch), refs[0].Number})
	}
	taken := o.next
	o.next = nil
	return taken
}

// TestChains: whatever changes between two starts, each source's own order is delivered once, from
// its beginning, without a gap.
func TestChains(t *testing.T) {
	what := map[string]int{}
	for seed := range uint64(60) {
		rnd := rand.New(rand.NewPCG(11, seed))
		c := chain{rnd: rnd, w: randomWorld(rnd), own: map[string]*ownOrder{}, kept: map[string]world{}, what: what}
		c.w.Tail, c.w.Epoch = order.TailWrap, 1e6
		for s := range c.w.Sources {
			c.w.Sources[s].MaxEpochs = 0
			c.alone(t, s, 0)
		}
		var err error
		if c.cp, err = mustPlan(t, c.w.Mix).Checkpoint(0); err != nil {
			t.Fatal(err)
		}
		for range 8 {
			c.run(t)
			c.change(t)
		}
	}
	for _, change := range []string{"weights", "added", "removed", "back", "replaced", "none"} {
		if what[change] < 10 {
			t.Errorf("%s: %d times", change, what[change])
		}
	}
}

// alone begins to read source s by itself, at an epoch.
func (c *chain) alone(t *testing.T, s int, epoch uint64) {
	t.Helper()
	x := c.w.Sources[s]
	o, err := order.New(c.w.tables[s], "", c.w.Params(s))
	if err != nil {
		t.Fatal(err)
	}
	cursor, err := o.Seek(epoch, 0)
	if err != nil {
		t.Fatal(err)
	}
	c.own[x.Name] = &ownOrder{cursor: cursor, digest: x.Digest}
}

// run reads some batches with any number of ranks and any batch sizes, and ends with a checkpoint
// that passed through its text.
func (c *chain) run(t *testing.T) {
	t.Helper()
	cursors := make([]*Cursor, 1+c.rnd.IntN(6))
	live := make([]map[[2]uint64]order.Span, len(cursors))
	for r := range cursors {
		cursors[r], live[r] = c.w.cursor(t, c.cp.Position), map[[2]uint64]order.Span{}
	}
	for range c.rnd.IntN(6) {
		g := 1 + c.rnd.IntN(50)
		batch := map[uint16][]unit{}
		for r, cursor := range cursors {
			refs, b, err := cursor.NextBatch(nil, order.Split{GlobalBatch: g, Rank: r, World: len(cursors)})
			if err != nil {
				t.Fatal(err)
			}
			checkSpans(t, live[r], refs, b)
			for _, ref := range refs {
				batch[ref.Source] = append(batch[ref.Source], unit{c.w.Sources[ref.Source].Digest, ref.Epoch, ref.Number})
			}
		}
		for s, got := range batch {
			want := c.own[c.w.Sources[s].Name].expect(t, len(got))
			if !slices.Equal(sorted(got), sorted(want)) {
				t.Fatalf("%+v: source %d gives %v, its own order %v", c.w.Mix, s, got, want)
			}
		}
	}
	var err error
	if c.cp, err = mustPlan(t, c.w.Mix).Checkpoint(cursors[0].Position()); err != nil {
		t.Fatal(err)
	}
	text, err := AppendCheckpoint(nil, c.cp)
	if err != nil {
		t.Fatal(err)
	}
	if c.cp, err = DecodeCheckpoint(text); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
}

// checkSpans holds the spans of a rank's batch against its references: each belongs to a span that
// is open, which has its block, and which no closed one is used again.
func checkSpans(t *testing.T, live map[[2]uint64]order.Span, refs []order.Ref, b order.Batch) {
	t.Helper()
	last := 0
	opened := map[[2]uint64]int{}
	for _, s := range b.Opened {
		if s.Place < last {
			t.Fatalf("opened out of order: %+v", b.Opened)
		}
		last = s.Place
		id := [2]uint64{uint64(s.Source), s.Slot}
		live[id], opened[id] = s, s.Place
	}
	for i, r := range refs {
		id := [2]uint64{uint64(r.Source), r.Slot}
		s, open := live[id]
		if place, now := opened[id]; !open || now && place > i || r.Block < s.Block || r.Block >= s.Block+s.Blocks || s.Epoch != uint64(r.Epoch) {
			t.Fatalf("entry %d, %+v: its span is %+v, open %v", i, r, s, open)
		}
	}
	for _, s := range b.Closed {
		id := [2]uint64{uint64(s.Source), s.Slot}
		if _, open := live[id]; !open {
			t.Fatalf("%+v is closed, but was not open", s)
		}
		delete(live, id)
		for i := s.Place; i < len(refs); i++ {
			if refs[i].Source == s.Source && refs[i].Slot == s.Slot {
				t.Fatalf("%+v is closed before entry %d", s, i)
			}
		}
	}
}

func sorted(units []unit) []unit {
	units = slices.Clone(units)
	slices.SortFunc(units, func(a, b unit) int {
		return slices.Compare([]uint64{uint64(a.epoch), a.number}, []uint64{uint64(b.epoch), b.number})
	})
	return units
}

// change asks for another mix, and continues with it.
func (c *chain) change(t *testing.T) {
	t.Helper()
	asked := world{Mix: c.w.Mix}
	asked.From, asked.Epoch, asked.Sources = 0, 0, nil
	replaced := ""
	left := c.rnd.IntN(3) // that many sources are removed or replaced at most
	for s, x := range c.w.Sources {
		x.Base, x.First, x.Epoch = 0, 0, 0
		table := c.w.tables[s]
		switch old, gone := c.kept[x.Name]; {
		case gone && c.rnd.IntN(2) == 0:
			x, table = old.Sources[0], old.tables[0]
			delete(c.kept, x.Name)
			c.what["back"]++
		case gone:
			continue
		case left > 0 && len(c.w.Sources) > 2 && c.rnd.IntN(3) == 0 && len(c.kept) < 2:
			left--
			c.kept[x.Name] = world{Mix: Mix{Sources: []Source{x}}, tables: []order.Table{table}}
			c.what["removed"]++
			continue
		case left > 0 && replaced == "" && c.rnd.IntN(3) == 0:
			left--
			x, table = c.source(x.Name)
			replaced = x.Name
			c.what["replaced"]++
		}
		asked.Sources, asked.tables = append(asked.Sources, x), append(asked.tables, table)
	}
	if name := sourceNames[c.rnd.IntN(len(sourceNames))]; !slices.ContainsFunc(c.w.Sources, func(s Source) bool { return s.Name == name }) || len(asked.Sources) == 0 {
		if i, found := slices.BinarySearchFunc(asked.Sources, name, func(s Source, name string) int { return slices.Compare([]byte(s.Name), []byte(name)) }); !found && c.own[name] == nil {
			x, table := c.source(name)
			asked.Sources, asked.tables = slices.Insert(asked.Sources, i, x), slices.Insert(asked.tables, i, table)
			c.what["added"]++
		}
	}
	if len(asked.Sources) == 0 {
		return
	}
	asked.Segments = []Segment{{0, randomWeights(c.rnd, len(asked.Sources))}, {c.cp.Position + 1 + c.rnd.Uint64N(60), randomWeights(c.rnd, len(asked.Sources))}}
	c.what["weights"]++
	c.resume(t, asked, replaced)
	// The same mix asked for again changes nothing.
	if err := c.cp.Fits(asked.Mix); err != nil {
		t.Fatal(err)
	}
	c.what["none"]++
}

func (c *chain) resume(t *testing.T, asked world, replaced string) {
	t.Helper()
	differences, err := c.cp.Differences(asked.Mix)
	if err != nil || len(differences) == 0 {
		t.Fatalf("%v: %d differences", err, len(differences))
	}
	changed, err := c.cp.Change(asked.Mix)
	if err != nil {
		t.Fatal(err)
	}
	before, err := mustPlan(t, c.cp.Mix).Counts(nil, c.cp.Position)
	if err != nil {
		t.Fatal(err)
	}
	old := c.w
	c.w = world{Mix: changed}
	for s, x := range changed.Sources {
		i := slices.IndexFunc(asked.Sources, func(a Source) bool { return a.Name == x.Name })
		k := slices.IndexFunc(old.Sources, func(o Source) bool { return o.Name == x.Name })
		if i >= 0 {
			c.w.tables = append(c.w.tables, asked.tables[i])
		} else {
			c.w.tables = append(c.w.tables, old.tables[k])
		}
		switch {
		case k < 0:
			c.alone(t, s, 0)
		case x.Name == replaced:
			// It starts at the first unit of an epoch: of the one it stood in only where that is
			// still whole.
			epoch := uint64(0)
			was := c.cp.Sources[k]
			if was.Units > 0 {
				place := uint64(0)
				if epoch, place, _ = was.Place(before[k]); place > 0 {
					epoch++
					left := was.Units - place
					if !slices.ContainsFunc(differences, func(d Difference) bool { return d.Source == x.Name && d.Field == "digest" && d.LeftOut == left }) {
						t.Fatalf("%+v: %d units of %s are left out", differences, left, x.Name)
					}
				}
			}
			c.alone(t, s, epoch)
		}
	}
	if c.cp, err = mustPlan(t, c.w.Mix).Checkpoint(c.cp.Position); err != nil {
		t.Fatal(err)
	}
}

// TestRanks: the parts of the ranks are the batch of one rank, wherever it begins, and a cursor
// that ran there has what one that was set there has.
func TestRanks(t *testing.T) {
	rnd := rand.New(rand.NewPCG(13, 14))
	for range 60 {
		w := randomWorld(rnd)
		w.Tail = order.TailShort
		one := []*Cursor{w.cursor(t, 0)}
		for range 12 {
			position, g := one[0].Position(), 1+rnd.IntN(60)
			want, at, ok := next(t, one, g)
			if !ok {
				break
			}
			ranks := make([]*Cursor, 1+rnd.IntN(9))
			for r := range ranks {
				ranks[r] = w.cursor(t, position)
			}
			got, b, _ := next(t, ranks, g)
			for i := range want {
				want[i].Slot, got[i].Slot = 0, 0
			}
			if !slices.Equal(got, want) || b.Position != at.Position {
				t.Fatalf("%+v: %d ranks at %d have\n%s, one has\n%s", w.Mix, len(ranks), position, fmt.Sprint(got), fmt.Sprint(want))
			}
		}
	}
}
