package mix

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/reader/order"
)

// TestSteps: steps and positions are those of the batches that a cursor gives.
func TestSteps(t *testing.T) {
	rnd := rand.New(rand.NewPCG(15, 16))
	for range 100 {
		w := randomWorld(rnd)
		g := 1 + rnd.IntN(30)
		if w.Tail == order.TailDrop {
			g = min(g, int(w.Epoch))
		}
		c := []*Cursor{w.cursor(t, 0)}
		for range rnd.IntN(4) {
			next(t, c, 1+rnd.IntN(int(w.Epoch)))
		}
		at := Steps{Step: 100, Position: c[0].Position(), GlobalBatch: g}
		for step := uint64(100); step < 140; step++ {
			_, b, ok := next(t, c, g)
			if !ok {
				break
			}
			if position, err := w.Position(at, step); err != nil || position != b.Position {
				t.Fatalf("%+v, %+v: step %d begins at %d, %v, its batch at %d", w.Mix, at, step, position, err, b.Position)
			}
			if got, err := w.Next(at, b.NextPosition); err != nil || got != step+1 {
				t.Fatalf("%+v, %+v: the batch after position %d is step %d, %v, want %d", w.Mix, at, b.NextPosition, got, err, step+1)
			}
			for _, position := range []uint64{b.Position, b.NextPosition - 1} {
				if got, err := w.Step(at, position); err != nil || got != step {
					t.Fatalf("%+v, %+v: position %d is in step %d, %v, want %d", w.Mix, at, position, got, err, step)
				}
			}
		}
	}
}

// TestLeaveOut: the steps that are not left out have what they have without.
func TestLeaveOut(t *testing.T) {
	rnd := rand.New(rand.NewPCG(17, 18))
	for range 100 {
		w := randomWorld(rnd)
		g := 1 + rnd.IntN(20)
		if w.Tail == order.TailDrop {
			g = min(g, int(w.Epoch))
		}
		at := Steps{GlobalBatch: g}
		first := rnd.Uint64N(6)
		last := first + rnd.Uint64N(20)
		r, err := w.LeaveOut(at, first, last)
		if err != nil {
			t.Fatal(err)
		}
		all, some := []*Cursor{w.cursor(t, 0)}, []*Cursor{w.cursor(t, 0), w.cursor(t, 0)}
		for _, c := range some {
			if err := c.LeaveOut([]Range{r}); err != nil {
				t.Fatal(err)
			}
		}
		for step := uint64(0); step < 40; step++ {
			want, b, more := next(t, all, g)
			if step >= first && step <= last {
				continue
			}
			got, again, ok := next(t, some, g)
			if ok != more || again.Position != b.Position || again.NextPosition != b.NextPosition {
				t.Fatalf("%+v: without steps %d to %d, step %d is %+v, want %+v", w.Mix, first, last, step, again, b)
			}
			if !slices.Equal(entriesOf(got), entriesOf(want)) {
				t.Fatalf("%+v: without steps %d to %d, step %d differs", w.Mix, first, last, step)
			}
		}
	}
}

// TestLeaveOutRefusals: a range that a batch would reach into is refused, not cut or passed over.
func TestLeaveOutRefusals(t *testing.T) {
	w := randomWorld(rand.New(rand.NewPCG(19, 20)))
	w.Tail = order.TailWrap
	for s := range w.Sources {
		w.Sources[s].MaxEpochs = 0
	}
	c := w.cursor(t, 0)
	if err := c.LeaveOut([]Range{{10, 20}}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.NextBatch(nil, order.Split{GlobalBatch: 11, World: 1}); err == nil || !strings.Contains(err.Error(), "10 to 19 are left out") {
		t.Errorf("a batch into what is left out: %v", err)
	}
	if c.Position() != 0 {
		t.Errorf("the refusal moved the cursor to %d", c.Position())
	}
	for _, size := range []int{5, 5} {
		if _, _, err := c.NextBatch(nil, order.Split{GlobalBatch: size, World: 1}); err != nil {
			t.Fatal(err)
		}
	}
	if _, b, err := c.NextBatch(nil, order.Split{GlobalBatch: 11, World: 1}); err != nil || b.Position != 20 {
		t.Errorf("the batch after 10 to 20: %+v, %v", b, err)
	}
	for _, ranges := range [][]Range{{{5, 5}}, {{6, 5}}, {{5, 7}, {7, 9}}, {{5, 7}, {1, 2}}, {{0, maxPosition + 1}}, make([]Range, maxLeftOut+1)} {
		if c.LeaveOut(ranges) == nil {
			t.Errorf("%v is taken", ranges)
		}
	}
}

func TestJoin(t *testing.T) {
	rnd := rand.New(rand.NewPCG(35, 36))
	for range 500 {
		var ranges []Range
		var in [60]bool
		for range 1 + rnd.IntN(6) {
			from := rnd.Uint64N(50)
			r := Range{from, from + 1 + rnd.Uint64N(9)}
			for g := r.From; g < r.To; g++ {
				in[g] = true
			}
			if ranges = Join(ranges, r); checkRanges(ranges) != nil {
				t.Fatalf("%v are not apart", ranges)
			}
		}
		for g := range in {
			if slices.ContainsFunc(ranges, func(r Range) bool { return r.From <= uint64(g) && uint64(g) < r.To }) != in[g] {
				t.Fatalf("%v: position %d", ranges, g)
			}
		}
	}
}

func TestStepRefusals(t *testing.T) {
	m := Mix{Tail: order.TailDrop, Epoch: 10}
	for _, c := range []struct {
		at   Steps
		step uint64
	}{{Steps{5, 100, 4}, 4}, {Steps{5, 100, 0}, 5}, {Steps{0, 0, 11}, 3}, {Steps{0, 0, 4}, maxPosition}, {Steps{0, maxPosition - 1, 4}, 9}} {
		if got, err := m.Position(c.at, c.step); err == nil {
			t.Errorf("%+v: step %d begins at %d", c.at, c.step, got)
		}
	}
	for _, position := range []uint64{99, maxPosition} {
		if got, err := m.Step(Steps{5, 100, 4}, position); err == nil {
			t.Errorf("position %d is in step %d", position, got)
		}
	}
	if _, err := m.LeaveOut(Steps{GlobalBatch: 4}, 5, 4); err == nil {
		t.Error("steps 5 to 4 are left out")
	}
}

// TestResize continues the number of steps where the batch size changes.
func TestResize(t *testing.T) {
	m := Mix{Epoch: 100, Tail: order.TailShort}
	for _, c := range []struct {
		at       Steps
		position uint64
		g        int
		want     Steps
	}{
		{Steps{}, 40, 8, Steps{0, 40, 8}},
		{Steps{0, 0, 8}, 40, 8, Steps{0, 0, 8}},
		{Steps{0, 0, 8}, 40, 10, Steps{5, 40, 10}},
		{Steps{5, 40, 10}, 100, 30, Steps{11, 100, 30}},
		{Steps{0, 0, 30}, 100, 10, Steps{4, 100, 10}}, // the last batch of the epoch is short
		{Steps{0, 0, 8}, 37, 8, Steps{5, 37, 8}},      // the end of the stream cut a batch
		{Steps{0, 0, 8}, 37, 10, Steps{5, 37, 10}},
	} {
		if got, err := m.Resize(c.at, c.position, c.g); err != nil || got != c.want {
			t.Errorf("%+v to batches of %d at %d: %+v, %v, want %+v", c.at, c.g, c.position, got, err, c.want)
		}
	}
	if _, err := m.Resize(Steps{5, 40, 10}, 39, 8); err == nil {
		t.Error("a position before the batches that are numbered")
	}
}

// TestBegin: a checkpoint moves to the beginning of an epoch, but not before a change of the
func TestBegin(t *testing.T) {
	m := Mix{Epoch: 100, From: 150, Tail: order.TailWrap, Segments: []Segment{{At: 150, Weights: []uint64{1}}}, Sources: []Source{
		{Name: "a", Units: 40, Lanes: 1, RunBlocks: 1, Delay: 1, Head: 1, Affinity: order.AffinityEpoch, Epoch: 3, First: 120, Base: 150},
	}}
	p, err := New(m)
	if err != nil {
		t.Fatal(err)
	}
	c, err := p.Checkpoint(330)
	if err != nil {
		t.Fatal(err)
	}
	c.Steps = Steps{Step: 9, Position: 250, GlobalBatch: 10}
	for epoch, want := range map[uint64]Steps{4: c.Steps, 2: {Position: 200, GlobalBatch: 10}} {
		at := c
		if err := at.Begin(epoch); err != nil || at.Position != 100*epoch || at.Steps != want {
			t.Errorf("epoch %d: position %d, steps %+v, %v", epoch, at.Position, at.Steps, err)
		}
	}
	for _, epoch := range []uint64{1, 1 << 60} {
		if err := c.Begin(epoch); err == nil || c.Position != 330 {
			t.Errorf("epoch %d: %v, position %d", epoch, err, c.Position)
		}
	}
}
