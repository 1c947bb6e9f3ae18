package mix

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/shardtool/shardtool/internal/order/units"
	"github.com/shardtool/shardtool/reader/order"
)

// unitSource is a source of units with what they are made from.
type unitSource struct {
	table   order.Table
	lengths []uint32
}

// line makes the units of a source of a mix.
func (u *unitSource) line(t testing.TB, m *Mix, s int) *units.Line {
	t.Helper()
	x := &m.Sources[s]
	o, err := order.New(u.table, x.Digest, m.Params(s))
	if err != nil {
		t.Fatal(err)
	}
	made, err := units.New(o, u.lengths, x.Unit)
	if err != nil {
		t.Fatal(err)
	}
	x.Lengths = made.Hash()
	return made.Line(func(epoch uint64) (*units.Plan, error) { return made.Plan(context.Background(), epoch, 1, nil) })
}

// unitWorld is a mix of units.
type unitWorld struct {
	Mix
	sources map[string]*unitSource
}

func randomUnitSource(rnd *rand.Rand, name string, kind units.Kind, size uint32) (Source, *unitSource) {
	x, table := randomSource(rnd, name)
	u := &unitSource{table: table}
	for _, n := range table.Samples {
		for range n {
			u.lengths = append(u.lengths, 1+uint32(rnd.ExpFloat64()*20))
		}
	}
	u.lengths[0] = 1 // so that there is a unit
	x.Unit = units.Params{Kind: kind, Size: size, Window: 1 + rnd.Uint32N(20), By: "tokens", Long: []units.Long{units.LongSplit, units.LongTruncate, units.LongDrop}[rnd.IntN(3)]}
	if table.View != nil && x.Unit.Long == units.LongDrop { // it may choose long samples alone
		x.Unit.Long = units.LongSplit
	}
	return x, u
}

// lay gives every source its Line, and new ones the units of epoch 0.
func (w *unitWorld) lay(t testing.TB) {
	t.Helper()
	for s := range w.Sources {
		x := &w.Sources[s]
		x.line = w.sources[x.Name].line(t, &w.Mix, s)
		var err error
		if x.Units, err = x.line.Len(0); err != nil {
			t.Fatal(err)
		}
	}
}

func randomUnitWorld(t testing.TB, rnd *rand.Rand) *unitWorld {
	w := &unitWorld{sources: map[string]*unitSource{}}
	w.Seed, w.Shuffle, w.Epoch, w.Tail = rnd.Uint64(), rnd.IntN(5) > 0, 1+rnd.Uint64N(60), order.TailWrap
	kind, size := []units.Kind{units.Pack, units.Bucket}[rnd.IntN(2)], 16+rnd.Uint32N(60)
	for _, name := range sourceNames[:2+rnd.IntN(4)] {
		x, u := randomUnitSource(rnd, name, kind, size)
		if !w.Shuffle {
			x.Delay, x.Head = 1, 1
		}
		if rnd.IntN(4) == 0 {
			x.MaxEpochs = 1 + rnd.Uint64N(3)
		}
		w.Sources, w.sources[name] = append(w.Sources, x), u
	}
	w.Sources[0].MaxEpochs = 0
	w.Segments = []Segment{{0, randomWeights(rnd, len(w.Sources))}, {1 + rnd.Uint64N(100), randomWeights(rnd, len(w.Sources))}}
	for i := range w.Segments {
		w.Segments[i].Weights[0]++ // the stream has no end
	}
	w.lay(t)
	return w
}

func (w *unitWorld) cursor(t testing.TB, position uint64) *Cursor {
	t.Helper()
	c, err := mustPlan(t, w.Mix).Seek(position, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// piece is a sample of an epoch of a source, or a piece of one.
type piece struct {
	epoch          uint32
	number         uint64
	offset, length uint32
}

// given is a unit of a source.
type given struct {
	source int
	pieces string
}

// unitsOf are the units of a rank's part, each with its source.
func unitsOf(t testing.TB, refs []order.Ref, cuts []order.Cut, entries int) (all []given) {
	t.Helper()
	var list []piece
	for i, cut := range cuts {
		if int(cut.Unit) != len(all) {
			t.Fatalf("cut %d is of unit %d after %d units", i, cut.Unit, len(all))
		}
		list = append(list, piece{refs[i].Epoch, refs[i].Number, cut.Offset, cut.Length})
		if i+1 == len(cuts) || cuts[i+1].Unit != cut.Unit {
			all = append(all, given{int(refs[i].Source), fmt.Sprint(list)})
			list = nil
		} else if refs[i+1].Source != refs[i].Source {
			t.Fatalf("unit %d has samples of several sources", cut.Unit)
		}
	}
	if len(refs) != len(cuts) || len(all) != entries {
		t.Fatalf("%d references, %d cuts, %d units for %d entries", len(refs), len(cuts), len(all), entries)
	}
	return all
}

// alone reads the units of a source by themselves.
type alone struct {
	cursor *units.Cursor
}

func (a *alone) next(t testing.TB) string {
	t.Helper()
	refs, b, err := a.cursor.NextPart(nil, 0, 1, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	return unitsOf(t, refs, b.Cuts, 1)[0].pieces
}

// TestUnitChains: whatever changes between two starts, each source's own line of units is delivered
// once, from its beginning, without a gap: so no token is lost or repeated.
func TestUnitChains(t *testing.T) {
	what := map[string]int{}
	for seed := range uint64(100) {
		rnd := rand.New(rand.NewPCG(21, seed))
		w := randomUnitWorld(t, rnd)
		own := map[string]*alone{}
		begin := func(name string, epoch uint64) {
			s := slices.IndexFunc(w.Sources, func(x Source) bool { return x.Name == name })
			cursor, err := w.Sources[s].line.Seek(epoch, 0)
			if err != nil {
				t.Fatal(err)
			}
			own[name] = &alone{cursor}
		}
		for _, x := range w.Sources {
			begin(x.Name, 0)
		}
		cp, err := mustPlan(t, w.Mix).Checkpoint(0)
		if err != nil {
			t.Fatal(err)
		}
		for range 6 {
			cp = unitRun(t, rnd, w, cp, own)
			w.change(t, rnd, &cp, begin, what)
		}
	}
	for _, change := range []string{"weights", "removed", "length", "epochs", "none"} {
		if what[change] < 10 {
			t.Errorf("%s: %d times", change, what[change])
		}
	}
}

// unitRun reads some batches with any number of ranks and any batch sizes from a checkpoint on, and
// ends with a checkpoint that passed through its text.
func unitRun(t *testing.T, rnd *rand.Rand, w *unitWorld, cp Checkpoint, own map[string]*alone) Checkpoint {
	t.Helper()
	cursors := make([]*Cursor, 1+rnd.IntN(6))
	live := make([]map[[2]uint64]order.Span, len(cursors))
	for r := range cursors {
		cursors[r], live[r] = w.cursor(t, cp.Position), map[[2]uint64]order.Span{}
	}
	for range rnd.IntN(6) {
		g := 1 + rnd.IntN(30)
		batch := map[int][]string{}
		var position uint64
		for r, cursor := range cursors {
			from, to := order.Share(uint64(g), r, len(cursors)), order.Share(uint64(g), r+1, len(cursors))
			refs, b, err := cursor.NextBatch(nil, order.Split{GlobalBatch: g, Rank: r, World: len(cursors)})
			if err != nil {
				t.Fatal(err)
			}
			checkSpans(t, live[r], refs, b)
			position = b.Position
			for i, u := range unitsOf(t, refs, b.Cuts, int(to-from)) {
				counts := must2(mustPlan(t, w.Mix).Counts(nil, position+from+uint64(i)))
				after := must2(mustPlan(t, w.Mix).Counts(nil, position+from+uint64(i)+1))
				if after[u.source] != counts[u.source]+1 {
					t.Fatalf("entry %d at %d is of source %d", i, position, u.source)
				}
				batch[u.source] = append(batch[u.source], u.pieces)
			}
		}
		for s, got := range batch { // of a batch, the list is arc by arc
			var want []string
			for range got {
				want = append(want, own[w.Sources[s].Name].next(t))
			}
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Fatalf("%+v: source %d gives\n%v, its own line\n%v", w.Mix, s, got, want)
			}
		}
	}
	cp = must2(mustPlan(t, w.Mix).Checkpoint(cursors[0].Position()))
	text, err := AppendCheckpoint(nil, cp)
	if err != nil {
		t.Fatal(err)
	}
	again, err := DecodeCheckpoint(text)
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	for s := range cp.Sources {
		cp.Sources[s].line = nil
	}
	for s := range again.Sources {
		if again.Sources[s].MaxEpochs == maxEpochs && cp.Sources[s].MaxEpochs == 0 {
			again.Sources[s].MaxEpochs = 0
		}
	}
	if !reflect.DeepEqual(again, cp) {
		t.Fatalf("%+v after its text is %+v", cp, again)
	}
	return again
}

func must2[T any](x T, err error) T {
	if err != nil {
		panic(err)
	}
	return x
}

// change asks for other weights, limits or sizes, and continues with the mix of that.
func (w *unitWorld) change(t *testing.T, rnd *rand.Rand, cp *Checkpoint, begin func(string, uint64), what map[string]int) {
	t.Helper()
	asked := unitWorld{Mix: w.Mix, sources: w.sources}
	asked.From, asked.Epoch, asked.Sources = 0, 0, slices.Clone(w.Sources)
	counts := must2(mustPlan(t, w.Mix).Counts(nil, cp.Position))
	epochs := map[string]uint64{} // of sources that begin anew
	resize := rnd.IntN(4) == 0
	for s := range asked.Sources {
		x := &asked.Sources[s]
		epoch, place := x.Epoch, uint64(0)
		if counts[s] > 0 {
			epoch, place, _ = w.Sources[s].Place(counts[s])
		}
		x.Base, x.First, x.Epoch = 0, 0, 0
		if rnd.IntN(5) == 0 && s > 0 {
			x.MaxEpochs = 1 + rnd.Uint64N(4)
			what["epochs"]++
		}
		if resize {
			x.Unit.Size += 5
		} else if rnd.IntN(8) > 0 {
			continue
		}
		x.Unit.Window++
		what["length"]++
		if place > 0 {
			epoch++
		}
		epochs[x.Name] = epoch
	}
	asked.lay(t)
	asked.Segments = []Segment{{0, randomWeights(rnd, len(asked.Sources))}}
	asked.Segments[0].Weights[0]++
	if slices.Contains(asked.Segments[0].Weights, 0) {
		what["removed"]++
	}
	cp.Attach(asked.Mix)
	if d := must2(cp.Differences(asked.Mix)); len(d) == 0 {
		what["none"]++
		w.Mix = cp.Mix
		return
	}
	what["weights"]++
	w.Mix = must2(cp.Change(asked.Mix))
	*cp = must2(mustPlan(t, w.Mix).Checkpoint(cp.Position))
	for name, epoch := range epochs {
		begin(name, epoch)
	}
	again := *cp
	for s := range again.Sources {
		again.Sources[s].line = nil
	}
	again.Attach(asked.Mix)
	if err := again.Fits(asked.Mix); err != nil {
		t.Fatal(err)
	}
	what["none"]++
}

// TestUnitTails: a tail means what it means for samples, and ranks share what one rank has.
func TestUnitTails(t *testing.T) {
	for seed := range uint64(60) {
		rnd := rand.New(rand.NewPCG(23, seed))
		w := randomUnitWorld(t, rnd)
		w.Tail = []order.Tail{order.TailShort, order.TailDrop, order.TailWrap, order.TailPad}[rnd.IntN(4)]
		one := w.cursor(t, 0)
		for range 8 {
			position, g, world := one.Position(), 1+rnd.IntN(int(w.Epoch)), 1+rnd.IntN(5)
			refs, b, err := one.NextBatch(nil, order.Split{GlobalBatch: g, World: 1})
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			want := unitsOf(t, refs, b.Cuts, b.Global)
			padding := 0
			for i := range refs {
				if refs[i].Padding {
					padding++
				}
			}
			if w.Tail != order.TailPad && padding > 0 || w.Tail != order.TailShort && b.Global != g {
				t.Fatalf("%s: %d entries of %d, %d references are padding", w.Tail, b.Global, g, padding)
			}
			if n := int(b.NextPosition - b.Position); n < b.Global && !slices.Equal(want[n:min(2*n, b.Global)], want[:min(n, b.Global-n)]) {
				t.Fatalf("padding is %v, the batch %v", want[n:], want[:n])
			}
			var got []given
			for r := range world {
				refs, b, err := w.cursor(t, position).NextBatch(nil, order.Split{GlobalBatch: g, Rank: r, World: world})
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, unitsOf(t, refs, b.Cuts, int(order.Share(uint64(b.Global), r+1, world))-b.First)...)
			}
			if !slices.Equal(got, want) {
				t.Fatalf("%+v: %d ranks at %d have\n%v, one has\n%v", w.Mix, world, position, got, want)
			}
		}
	}
}

// TestUnitLimit: a source has weight 0 from where it has given the units of its first epochs.
func TestUnitLimit(t *testing.T) {
	for seed := range uint64(40) {
		rnd := rand.New(rand.NewPCG(24, seed))
		w := randomUnitWorld(t, rnd)
		var total uint64
		for s := range w.Sources {
			w.Sources[s].MaxEpochs = 1 + rnd.Uint64N(3)
			for epoch := range w.Sources[s].MaxEpochs {
				total += must2(w.Sources[s].line.Len(epoch))
			}
			for i := range w.Segments {
				w.Segments[i].Weights[s]++
			}
		}
		p := mustPlan(t, w.Mix)
		if end := must2(p.End()); end != total {
			t.Fatalf("it ends at %d, its sources have %d", end, total)
		}
		for st := range p.Stretches(0) {
			for _, s := range st.Ended {
				before, after := must2(p.Counts(nil, st.To-1)), must2(p.Counts(nil, st.To))
				epoch, place, err := w.Sources[s].Place(after[s])
				if err != nil || after[s] != before[s]+1 || place != 0 || epoch != w.Sources[s].MaxEpochs {
					t.Fatalf("source %d of at most %d epochs ends in epoch %d at %d, %v", s, w.Sources[s].MaxEpochs, epoch, place, err)
				}
			}
		}
	}
}

// TestUnitRefusals: units that do not fit each other, or that lack what they need.
func TestUnitRefusals(t *testing.T) {
	w := randomUnitWorld(t, rand.New(rand.NewPCG(25, 1)))
	for what, spoil := range map[string]func(m *Mix){
		"other sizes":     func(m *Mix) { m.Sources[1].Unit.Size++; m.Sources[1].line = nil },
		"samples beside":  func(m *Mix) { m.Sources[1].Unit, m.Sources[1].line, m.Sources[1].Lengths = units.Params{}, nil, "" },
		"lengths without": func(m *Mix) { m.Sources[1].Unit, m.Sources[1].line = units.Params{}, nil },
		"another line":    func(m *Mix) { m.Sources[1].Unit.Window++ },
		"no window":       func(m *Mix) { m.Sources[1].Unit.Window = 0; m.Sources[1].line = nil },
	} {
		m := w.Mix
		m.Sources = slices.Clone(m.Sources)
		m.Segments = []Segment{{0, slices.Repeat([]uint64{1}, len(m.Sources))}}
		spoil(&m)
		var of *SourceError
		if _, err := New(m); !errors.As(err, &of) || of.Source != m.Sources[1].Name {
			t.Errorf("%s: %v", what, err)
		}
	}
	m := w.Mix
	m.Sources = slices.Clone(m.Sources)
	m.Segments = []Segment{{0, slices.Repeat([]uint64{1}, len(m.Sources))}}
	m.Sources[1].line, m.Sources[1].MaxEpochs = nil, 0
	if _, err := mustPlan(t, m).Seek(0, nil); !errors.Is(err, errLine) {
		t.Error(err)
	}
	planFails := errors.New("no plan")
	m = w.Mix
	m.Sources = slices.Clone(m.Sources)
	x := &m.Sources[1]
	x.line = x.line.Units().Line(func(uint64) (*units.Plan, error) { return nil, planFails })
	x.MaxEpochs = 2
	m.Segments = []Segment{{0, slices.Repeat([]uint64{1}, len(m.Sources))}}
	if _, err := New(m); !errors.Is(err, planFails) {
		t.Error(err)
	}
}
