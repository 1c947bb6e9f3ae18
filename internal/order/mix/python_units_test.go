package mix

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"testing"

	"github.com/shardtool/shardtool/internal/testset/programs"
	"github.com/shardtool/shardtool/reader/order"
)

// A batch of units in the answer of the second implementation: of each rank, source, epoch and
// items of each unit.
type (
	pythonUnitAnswer struct {
		End        string             `json:"end"`
		Lengths    []string           `json:"lengths"`
		Batches    []*pythonUnitBatch `json:"batches"`
		Checkpoint string             `json:"checkpoint"`
		Read       []string           `json:"read"`
	}
	pythonUnitBatch struct {
		Position uint64           `json:"position"`
		Next     uint64           `json:"next"`
		Real     int              `json:"real"`
		Ranks    [][]pythonTriple `json:"ranks"`
	}
	pythonTriple struct {
		source, epoch uint64
		items         [][3]uint64
	}
)

func (p *pythonTriple) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, &[]any{&p.source, &p.epoch, &p.items})
}

// pythonUnitsOf is the case of a mix of units.
func pythonUnitsOf(w *unitWorld) pythonCase {
	plain := world{Mix: w.Mix}
	for _, s := range w.Sources {
		plain.tables = append(plain.tables, w.sources[s.Name].table)
	}
	c := pythonOf(&plain)
	for i, s := range w.Sources {
		c.Sources[i].Units = &pythonUnits{s.Unit.Kind, s.Unit.Size, s.Unit.Long, s.Unit.Window, s.Unit.By, w.sources[s.Name].lengths}
	}
	return c
}

// triples are the units of a rank's part.
func triples(refs []order.Ref, cuts []order.Cut) []pythonTriple {
	list := []pythonTriple{}
	for i, cut := range cuts {
		if int(cut.Unit) == len(list) {
			list = append(list, pythonTriple{uint64(refs[i].Source), uint64(refs[i].Epoch), nil})
		}
		u := &list[cut.Unit]
		u.items = append(u.items, [3]uint64{refs[i].Number, uint64(cut.Offset), uint64(cut.Length)})
	}
	return list
}

// runUnits is what this package answers to the steps of a case.
func (c *pythonCase) runUnits(t *testing.T, w, asked *unitWorld) (batches []*pythonUnitBatch, cp Checkpoint) {
	t.Helper()
	var position uint64
	m := w.Mix
	for k, s := range c.Steps {
		if asked != nil && k == len(c.Steps)/2 {
			cp := must2(mustPlan(t, m).Checkpoint(position))
			m = must2(cp.Change(asked.Mix))
		}
		b := &pythonUnitBatch{Ranks: make([][]pythonTriple, s.World)}
		for r := range s.World {
			cursor := must2(mustPlan(t, m).Seek(position, nil))
			if err := cursor.LeaveOut(c.LeftOut); err != nil {
				t.Fatal(err)
			}
			refs, at, err := cursor.NextBatch(nil, order.Split{GlobalBatch: s.GlobalBatch, Rank: r, World: s.World})
			if err != nil {
				b = nil
				break
			}
			b.Position, b.Next, b.Real, b.Ranks[r] = at.Position, at.NextPosition, int(at.NextPosition-at.Position), triples(refs, at.Cuts)
		}
		if batches = append(batches, b); b != nil {
			position = b.Next
		}
	}
	return batches, must2(mustPlan(t, m).Checkpoint(position))
}

// TestPythonUnitMixes compares mixes of units: batches, ends, lengths of epochs, changes,
// checkpoints and what is refused as one.
func TestPythonUnitMixes(t *testing.T) {
	var cases []pythonCase
	var want [][]*pythonUnitBatch
	var worlds []*unitWorld
	var texts []string
	var accepted [][]bool
	ends, changes := 0, 0
	for seed := range uint64(36) {
		rnd := rand.New(rand.NewPCG(31, seed))
		w := randomUnitWorld(t, rnd)
		w.Tail = []order.Tail{order.TailShort, order.TailDrop, order.TailWrap, order.TailPad}[rnd.IntN(4)]
		if !w.Shuffle {
			w.Shuffle = true // as all cases of the program
			w.lay(t)
		}
		if rnd.IntN(2) == 0 {
			w.Sources[0].MaxEpochs = 1 + rnd.Uint64N(2)
			for i := range w.Segments {
				w.Segments[i].Weights = []uint64{1 + rnd.Uint64N(9)}
			}
			w.Sources = w.Sources[:1]
		}
		c := pythonUnitsOf(w)
		for range 6 {
			g := 1 + rnd.IntN(16)
			if w.Tail == order.TailDrop {
				g = min(g, int(w.Epoch))
			}
			c.Steps = append(c.Steps, pythonSplit{g, 1 + rnd.IntN(4)})
		}
		var asked *unitWorld
		if seed%3 == 0 {
			asked = askedUnits(t, rnd, w)
			other := pythonUnitsOf(asked)
			c.Change = &pythonChange{other.Sources, other.Segments}
			changes++
		}
		batches, cp := c.runUnits(t, w, asked)
		if slices.Contains(batches, nil) {
			ends++
		}
		cp.Steps, cp.SkipHash, cp.Skipped = Steps{3, 2, 5}, "ab", 1<<64-1
		text := encode(t, cp)
		var fits []bool
		for _, other := range damaged(rnd, text) {
			_, err := DecodeCheckpoint([]byte(other))
			c.Read, fits = append(c.Read, other), append(fits, err == nil)
		}
		c.Ranges = [][2]uint64{}
		cases, want, worlds, texts, accepted = append(cases, c), append(want, batches), append(worlds, w), append(texts, text), append(accepted, fits)
	}
	if ends < 6 || changes < 10 {
		t.Fatalf("%d ends, %d changes", ends, changes)
	}
	for i, got := range programs.Answers[pythonUnitAnswer](t, pythonProgram, cases) {
		w := worlds[i]
		if end := strconv.FormatUint(endOf(t, mustPlan(t, w.Mix)), 10); got.End != end {
			t.Errorf("case %d: Python ends at %s, this package at %s", i, got.End, end)
		}
		for k, rule := range []EpochRule{EpochFirst, EpochAll} {
			if length, _ := w.EpochLength(rule); got.Lengths[k] != strconv.FormatUint(length, 10) {
				t.Errorf("case %d: epoch %s is %s in Python, %d here", i, rule, got.Lengths[k], length)
			}
		}
		if !reflect.DeepEqual(got.Batches, want[i]) {
			t.Errorf("case %d, %+v: Python has\n%+v\nthis package\n%+v", i, w.Mix, got.Batches, want[i])
		}
		if got.Checkpoint != texts[i] {
			t.Errorf("case %d: Python writes the checkpoint\n%s\nthis package\n%s", i, got.Checkpoint, texts[i])
		}
		for k, refusal := range got.Read {
			if (refusal == "") != accepted[i][k] {
				t.Errorf("case %d: this package accepts: %v, Python refuses %q:\n%s", i, accepted[i][k], refusal, cases[i].Read[k])
			}
		}
	}
}

// askedUnits is a mix that a running one may change to.
func askedUnits(t *testing.T, rnd *rand.Rand, w *unitWorld) *unitWorld {
	t.Helper()
	asked := &unitWorld{Mix: w.Mix, sources: w.sources}
	asked.Epoch, asked.Sources = 0, slices.Clone(w.Sources)
	for s := range asked.Sources {
		x := &asked.Sources[s]
		if rnd.IntN(3) == 0 {
			x.Unit.Window++
		}
		if rnd.IntN(3) == 0 {
			x.MaxEpochs = 1 + rnd.Uint64N(3)
		}
	}
	asked.lay(t)
	asked.Segments = []Segment{{0, randomWeights(rnd, len(asked.Sources))}}
	return asked
}
