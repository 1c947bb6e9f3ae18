package units

import (
	"errors"
	"io"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/internal/testset/programs"
	"github.com/shardtool/shardtool/reader/order"
)

// The second implementation of units, python/oracle, shares no code with this package.
// python/units_check.py asks it.
const pythonProgram = "../../../python/units_check.py"

func TestPythonVectors(t *testing.T) {
	if out := programs.Python(t, nil, pythonProgram, "../../../testdata/order/mix-vectors.json"); !strings.HasSuffix(out, " 0 differ\n") {
		t.Errorf("got %q", out)
	}
}

type (
	pythonCase struct {
		Key      string         `json:"key"`
		Shuffle  bool           `json:"shuffle"`
		Blocks   []uint32       `json:"blocks"`
		Shards   []int          `json:"shards"`
		V        uint32         `json:"V"`
		E        uint32         `json:"E"`
		W        uint32         `json:"W"`
		H        uint32         `json:"H"`
		Affinity order.Affinity `json:"affinity"`
		Tail     order.Tail     `json:"tail"`
		Lengths  []uint32       `json:"lengths"`
		Kind     Kind           `json:"kind"`
		Size     uint32         `json:"size"`
		Window   uint32         `json:"window"`
		Long     Long           `json:"long"`
		Epoch    uint64         `json:"epoch"`
		Position uint64         `json:"position"`
		Until    uint64         `json:"until"`
		Steps    []pythonStep   `json:"steps"`
		Decoded  uint64         `json:"decoded"`
		Choose   *pythonChoice  `json:"choose,omitempty"`
	}
	pythonChoice struct {
		Shuffle bool   `json:"shuffle"`
		Memory  uint64 `json:"shuffle_memory"`
		Lanes   uint32 `json:"lanes"`
	}
	pythonStep struct {
		GlobalBatch int `json:"global_batch"`
		World       int `json:"world_size"`
	}
	pythonAnswer struct {
		Error           string `json:"error"`
		Batches         []pythonBatch
		Epoch, Position uint64
		Chosen          []uint32 // V, E, W and the window
	}
	pythonBatch struct {
		Epoch, Position uint64
		Real            int
		Ranks           [][][]piece
	}
)

// Both implementations deliver the same units to the same ranks, under every tail, from any place.
func TestPythonAgrees(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	var cases []pythonCase
	var want []pythonAnswer
	for range 200 {
		w := randomWorld(r)
		u := w.make(t)
		c := pythonCase{
			strconv.FormatUint(w.order.Seed, 10), w.order.Shuffle, w.table.Samples, append(slices.Clone(w.table.ShardFirst), len(w.table.Samples)),
			w.order.Lanes, w.order.RunBlocks, w.order.Delay, w.order.Head, w.order.Affinity, w.order.Tail,
			w.lengths, w.units.Kind, w.units.Size, w.units.Window, w.units.Long, uint64(r.IntN(3)), 0, 0, nil, 0, nil,
		}
		c.Position, c.Until = r.Uint64N(mustPlan(t, u, c.Epoch).Units()+1), c.Epoch+1+uint64(r.IntN(2))
		for range r.IntN(12) {
			c.Steps = append(c.Steps, pythonStep{1 + r.IntN(30), 1 + r.IntN(4)})
		}
		if c.Steps == nil {
			c.Steps = []pythonStep{}
		}
		cases = append(cases, c)
		want = append(want, answer(t, u, &c))
	}
	refused := 0
	for i, got := range programs.Answers[pythonAnswer](t, pythonProgram, cases) {
		if got.Error != "" && want[i].Error != "" {
			refused++
			continue
		}
		if !reflect.DeepEqual(got, want[i]) {
			t.Fatalf("case %d: Python has\n%+v, Go\n%+v", i, got, want[i])
		}
	}
	if refused == 0 || refused > len(want)/2 {
		t.Errorf("%d of %d cases are refused", refused, len(want))
	}
}

// answer is that of this package.
func answer(t *testing.T, u *Units, c *pythonCase) (a pythonAnswer) {
	t.Helper()
	a.Epoch, a.Position = c.Epoch, c.Position
	a.Batches = []pythonBatch{}
	cursors := map[[2]int]*Cursor{} // by world size and rank
	for _, step := range c.Steps {
		var b pythonBatch
		var next order.Batch
		for rank := range step.World {
			at := [2]int{step.World, rank}
			cursor := cursors[at]
			if cursor == nil || !(cursor.epoch == a.Epoch && cursor.position == a.Position) {
				var err error
				if cursor, err = u.Seek(a.Epoch, a.Position, plansOf(t, u)); err != nil {
					t.Fatal(err)
				}
				cursor.Until(c.Until)
				cursors[at] = cursor
			}
			refs, batch, err := cursor.NextBatch(nil, order.Split{GlobalBatch: step.GlobalBatch, Rank: rank, World: step.World})
			if errors.Is(err, io.EOF) {
				return a
			}
			if err != nil {
				return pythonAnswer{Error: err.Error()}
			}
			units := pieces(refs, batch.Cuts)
			if units == nil {
				units = [][]piece{}
			}
			b.Ranks, next = append(b.Ranks, units), batch
			b.Epoch, b.Position = batch.Epoch, batch.Position
			for i, cut := range batch.Cuts {
				if (i == 0 || cut.Unit != batch.Cuts[i-1].Unit) && !refs[i].Padding {
					b.Real++
				}
			}
		}
		a.Batches = append(a.Batches, b)
		a.Epoch, a.Position = next.NextEpoch, next.NextPosition
	}
	return a
}

// Both implementations choose the same parameters, and refuse the same memories.
func TestPythonChooses(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	var cases []pythonCase
	var want []pythonAnswer
	for range 300 {
		w := randomWorld(r)
		for i := range w.table.Samples {
			w.table.Samples[i] = uint32(r.IntN(1 << r.IntN(12)))
		}
		w.table.Decoded = uint64(len(w.table.Samples)) << (10 + r.IntN(14))
		c := pythonCase{
			Blocks: w.table.Samples, Shards: append(slices.Clone(w.table.ShardFirst), len(w.table.Samples)), Decoded: w.table.Decoded,
			Kind: w.units.Kind, Size: w.units.Size, Long: w.units.Long, Window: uint32(r.IntN(2) * r.IntN(2000)),
			Choose: &pythonChoice{r.IntN(6) > 0, uint64(1) << (15 + r.IntN(16)), uint32(r.IntN(3))},
		}
		cases = append(cases, c)
		w.units.Window = c.Window
		chosen, units, err := Choose(w.table, order.Choice{Shuffle: c.Choose.Shuffle, Memory: c.Choose.Memory, Lanes: c.Choose.Lanes}, w.units)
		if err != nil {
			want = append(want, pythonAnswer{Error: err.Error()})
			continue
		}
		want = append(want, pythonAnswer{Chosen: []uint32{chosen.Lanes, chosen.RunBlocks, chosen.Delay, units.Window}})
	}
	refused := 0
	for i, got := range programs.Answers[pythonAnswer](t, pythonProgram, cases) {
		if got.Error != "" && want[i].Error != "" {
			refused++
		} else if !reflect.DeepEqual(got, want[i]) {
			t.Fatalf("case %d: Python has\n%+v, Go\n%+v", i, got, want[i])
		}
	}
	if refused == 0 || refused > len(want)/2 {
		t.Errorf("%d of %d cases are refused", refused, len(want))
	}
}
