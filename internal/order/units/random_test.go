package units

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/shardtool/shardtool/reader/order"
)

// world is a random data set with units.
type world struct {
	table   order.Table
	order   order.Params
	lengths []uint32
	units   Params
}

func randomWorld(r *rand.Rand) *world {
	w := &world{}
	blocks := 1 + r.IntN(30)
	w.table.ShardFirst = []int{0}
	n := 0
	for b := range blocks {
		if b > 0 && r.IntN(6) == 0 {
			w.table.ShardFirst = append(w.table.ShardFirst, b)
		}
		s := 1 + r.IntN(9)
		w.table.Samples = append(w.table.Samples, uint32(s))
		n += s
	}
	delay := 1 + uint32(r.IntN(5))
	w.order = order.Params{
		Seed: r.Uint64(), Shuffle: r.IntN(4) > 0, Lanes: 1 + uint32(r.IntN(13)), RunBlocks: uint32(r.IntN(3)),
		Delay: delay, Head: 1 + uint32(r.IntN(int(delay))),
		Affinity: []order.Affinity{order.AffinityEpoch, order.AffinityRun}[r.IntN(2)],
		Tail:     []order.Tail{order.TailShort, order.TailDrop, order.TailWrap, order.TailPad}[r.IntN(4)],
	}
	if !w.order.Shuffle {
		w.order.Delay, w.order.Head = 1, 1
	}
	w.units = Params{
		Kind: []Kind{Pack, Bucket}[r.IntN(2)], Size: 16 + uint32(r.IntN(60)), Window: 1 + uint32(r.IntN(40)),
		Long: []Long{LongSplit, LongTruncate, LongDrop}[r.IntN(3)],
	}
	for range n {
		w.lengths = append(w.lengths, 1+uint32(r.ExpFloat64()*20))
	}
	w.lengths[0] = 1 // so that there is a unit
	return w
}

func (w *world) make(t testing.TB) *Units {
	t.Helper()
	u, err := New(mustOrder(t, w.table, w.order), w.lengths, w.units)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// An epoch has every token once, whatever the batches, the ranks and the places where a job was
// resumed: the chain of starts delivers the units of one cursor that reads on. Units obey their
// size. Every reference names an open span.
func TestElasticChains(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 150 {
		w := randomWorld(r)
		w.order.Tail = order.TailShort
		u := w.make(t)
		whole := readOn(t, u, 0, 2)
		checkTokens(t, w, whole)
		if got := chain(t, r, u, 2); !reflect.DeepEqual(got, whole) {
			t.Fatalf("%+v, %+v: a chain of starts delivers\n%v, one cursor\n%v", w.order, w.units, got, whole)
		}
	}
}

// readOn lists the units of epochs in the order of their positions.
func readOn(t *testing.T, u *Units, epoch, until uint64) (units [][]piece) {
	t.Helper()
	c, err := u.Seek(epoch, 0, plansOf(t, u))
	if err != nil {
		t.Fatal(err)
	}
	c.Until(until)
	spans := spanCheck{t: t, open: map[uint64]bool{}}
	for {
		refs, b, err := c.NextBatch(nil, order.Split{GlobalBatch: 1, World: 1})
		if errors.Is(err, io.EOF) {
			if len(spans.open) > 0 {
				t.Fatalf("%d spans are open at the end", len(spans.open))
			}
			return units
		}
		if err != nil {
			t.Fatal(err)
		}
		spans.batch(refs, &b)
		units = append(units, pieces(refs, b.Cuts)...)
	}
}

// chain reads with starts at random places, in batches and ranks of random sizes. The units of a
// batch are sorted by their arc, so each batch is put back into the order of positions.
func chain(t *testing.T, r *rand.Rand, u *Units, until uint64) (units [][]piece) {
	t.Helper()
	var epoch, position uint64
	for {
		world := 1 + r.IntN(4)
		cursors := make([]*Cursor, world)
		spans := make([]spanCheck, world)
		for rank := range cursors {
			var err error
			if cursors[rank], err = u.Seek(epoch, position, plansOf(t, u)); err != nil {
				t.Fatal(err)
			}
			cursors[rank].Until(until)
			spans[rank] = spanCheck{t: t, open: map[uint64]bool{}}
		}
		for range 1 + r.IntN(4) {
			s := order.Split{GlobalBatch: 1 + r.IntN(20), World: world}
			var batch [][]piece
			var last order.Batch
			for rank, c := range cursors {
				s.Rank = rank
				refs, b, err := c.NextBatch(nil, s)
				if errors.Is(err, io.EOF) {
					return units
				}
				if err != nil {
					t.Fatal(err)
				}
				if b.First != len(batch) {
					t.Fatalf("rank %d begins at %d, the ranks before have %d units", rank, b.First, len(batch))
				}
				spans[rank].batch(refs, &b)
				batch, last = append(batch, pieces(refs, b.Cuts)...), b
			}
			if len(batch) != last.Global {
				t.Fatalf("ranks have %d units of %d", len(batch), last.Global)
			}
			units = append(units, byPosition(u, &last, batch)...)
			epoch, position = last.NextEpoch, last.NextPosition
		}
	}
}

// byPosition sorts the units of a batch by position.
func byPosition(u *Units, b *order.Batch, batch [][]piece) [][]piece {
	o, out, at := u.Order(), make([][]piece, len(batch)), 0
	v := uint64(o.Params().Lanes)
	for l := range int(v) {
		turn := turnOf(o, l)
		for k := o.ArcIndex(b.Position, l); k < o.ArcIndex(b.Position+uint64(len(batch)), l); k++ {
			out[k*v+turn-b.Position] = batch[at]
			at++
		}
	}
	return out
}

func turnOf(o *order.Plan, l int) uint64 {
	for x := uint64(0); ; x++ {
		if o.ArcIndex(x+1, l) > 0 {
			return x
		}
	}
}

// checkTokens counts the tokens of two epochs, by sample and offset.
func checkTokens(t *testing.T, w *world, units [][]piece) {
	t.Helper()
	seen := make([][]int, len(w.lengths))
	for i, n := range w.lengths {
		seen[i] = make([]int, n)
	}
	for _, unit := range units {
		var sum, longest uint64
		for _, p := range unit {
			sum, longest = sum+p[2], max(longest, p[2])
			for k := range p[2] {
				seen[p[0]][p[1]+k]++
			}
		}
		if w.units.Kind == Bucket {
			sum = longest * uint64(len(unit))
		}
		if len(unit) == 0 || sum > uint64(w.units.Size) {
			t.Fatalf("%+v: unit %v", w.units, unit)
		}
	}
	for i, n := range w.lengths {
		for k, times := range seen[i] {
			want := 2
			switch {
			case n <= w.units.Size || w.units.Long == LongSplit:
			case w.units.Long == LongDrop, k >= int(w.units.Size):
				want = 0
			}
			if times != want {
				t.Fatalf("%+v: token %d of sample %d of %d comes %d times in two epochs, want %d", w.units, k, i, n, times, want)
			}
		}
	}
}

// spanCheck follows the spans of a cursor.
type spanCheck struct {
	t    *testing.T
	open map[uint64]bool
	last uint64
}

func (s *spanCheck) batch(refs []order.Ref, b *order.Batch) {
	s.t.Helper()
	for _, o := range b.Opened {
		if s.last++; o.Slot != s.last {
			s.t.Fatalf("span %d opened after %d", o.Slot, s.last-1)
		}
		s.open[o.Slot] = true
	}
	for _, r := range refs {
		if !r.Padding && !s.open[r.Slot] {
			s.t.Fatalf("sample %d has span %d, which is not open", r.Number, r.Slot)
		}
	}
	for _, c := range b.Closed {
		if !s.open[c.Slot] {
			s.t.Fatalf("span %d is closed, but was not open", c.Slot)
		}
		delete(s.open, c.Slot)
	}
}

// The fast best fit agrees with one that looks at every sequence, at ties in particular.
func TestBestFitAgreesWithSearch(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		size, n := 1+uint32(r.IntN(1<<uint(1+r.IntN(20)))), r.IntN(300)
		f := newFormer(Params{Kind: Pack, Size: size, Long: LongError})
		var lengths []uint32
		for i := range n {
			lengths = append(lengths, 1+r.Uint32N(min(size, 1+r.Uint32N(size))))
			f.add(uint32(i), lengths[i])
		}
		got, want := f.form(), searchedFit(lengths, size)
		if sequences := slices.Max(append(want, 0)); n > 0 && got != int(sequences)+1 || !slices.Equal(f.unit[:n], want) {
			t.Fatalf("%v in %d: got %d, %v, want %v", lengths, size, got, f.unit[:n], want)
		}
	}
}

func searchedFit(lengths []uint32, size uint32) []uint32 {
	items := make([]int, len(lengths))
	for i := range items {
		items[i] = i
	}
	slices.SortStableFunc(items, func(a, b int) int { return int(lengths[b]) - int(lengths[a]) })
	unit := make([]uint32, len(lengths))
	var used []uint32
	for _, i := range items {
		best := -1
		for s, u := range used {
			if u+lengths[i] <= size && (best < 0 || u > used[best]) {
				best = s
			}
		}
		if best < 0 {
			best = len(used)
			used = append(used, 0)
		}
		used[best] += lengths[i]
		unit[i] = uint32(best)
	}
	return unit
}

func TestRefused(t *testing.T) {
	o := mustOrder(t, order.Table{Samples: []uint32{3, 2}, ShardFirst: []int{0}},
		order.Params{Lanes: 1, RunBlocks: 1, Delay: 1, Head: 1, Affinity: order.AffinityEpoch, Tail: order.TailDrop})
	good := Params{Kind: Pack, Size: 8, Long: LongError, Window: 4}
	lengths := []uint32{1, 2, 3, 4, 5}
	with := func(change func(*Params)) Params { p := good; change(&p); return p }
	for name, c := range map[string]struct {
		lengths []uint32
		params  Params
		err     string
	}{
		"kind":     {lengths, with(func(p *Params) { p.Kind = "box" }), `kind "box": give pack or bucket`},
		"size":     {lengths, with(func(p *Params) { p.Size = 0 }), "a length of 0: give 1 to 2147483647"},
		"window":   {lengths, with(func(p *Params) { p.Window = MaxWindow + 1 }), "a window of 1048577 samples: give 1 to 1048576"},
		"long":     {lengths, with(func(p *Params) { p.Long = "" }), `long "": give error, split, truncate or drop`},
		"few":      {lengths[:4], good, "4 lengths for 5 samples"},
		"zero":     {[]uint32{1, 2, 0, 4, 5}, good, "sample 2 has length 0: lengths are at least 1"},
		"large":    {[]uint32{1, 2, 3, 1 << 31, 5}, good, "sample 3 has length 2147483648: lengths are at most 2147483647"},
		"too long": {lengths, with(func(p *Params) { p.Size = 3 }), "2 of 5 samples are longer than the length of 3, the first is sample 3, the longest has 5: split them, truncate them, drop them, or give a length of 5"},
		"all long": {[]uint32{9, 9, 9, 9, 9}, with(func(p *Params) { p.Long = LongDrop }), "length of 8: every sample is longer than a unit and is dropped: give a larger one"},
	} {
		if _, err := New(o, c.lengths, c.params); err == nil || err.Error() != c.err {
			t.Errorf("%s: got %v, want %s", name, err, c.err)
		}
	}
	u, err := New(o, lengths, good)
	if err != nil {
		t.Fatal(err)
	}
	plans := plansOf(t, u)
	if _, err := u.Seek(0, mustPlan(t, u, 0).Units()+1, plans); err == nil {
		t.Error("a position past the epoch was accepted")
	}
	c, err := u.Seek(0, 0, plans)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err = c.NextBatch(nil, order.Split{GlobalBatch: 9, World: 1}); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("drop with a batch larger than an epoch: %v", err)
	}
	if c, err = u.Seek(0, 0, func(uint64) (*Plan, error) { return u.Plan(context.Background(), 1, 1, nil) }); err != nil {
		t.Fatal(err)
	}
	if _, _, err = c.NextBatch(nil, order.Split{GlobalBatch: 1, World: 1}); err == nil {
		t.Error("the plan of another epoch was accepted")
	}
}

// A plan that was kept is the plan; text that is not one is refused.
func TestKeptPlan(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for range 50 {
		u := randomWorld(r).make(t)
		p := mustPlan(t, u, 1)
		text := AppendPlan(nil, p)
		again, err := u.DecodePlan(1, text)
		if err != nil || !reflect.DeepEqual(p, again) || int64(len(text)) > u.MaxPlan() {
			t.Fatalf("%v: %v, want %v; %d bytes, at most %d", err, again, p, len(text), u.MaxPlan())
		}
		if u.Key(0) == u.Key(1) {
			t.Error("two epochs have the same key")
		}
		for _, bad := range [][]byte{nil, text[:len(text)-1], append(slices.Clone(text), 0), slices.Repeat([]byte{0xFF}, len(text)+9)} {
			if p, err := u.DecodePlan(1, bad); err == nil {
				t.Errorf("accepted %x: %+v", bad, p)
			}
		}
		// A plan with other units is refused where the first unit is wanted.
		text[0]++
		if other, err := u.DecodePlan(1, text); err == nil {
			c, err := u.Seek(1, 0, func(uint64) (*Plan, error) { return other, nil })
			if err != nil {
				t.Fatal(err)
			}
			for err == nil {
				_, _, err = c.NextBatch(nil, order.Split{GlobalBatch: 1000, World: 1})
			}
			if errors.Is(err, io.EOF) {
				t.Error("a foreign plan was read to its end")
			}
		}
	}
}
