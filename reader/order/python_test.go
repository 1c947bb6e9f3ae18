package order

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"math/rand/v2"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/internal/testset/programs"
)

// The second implementation of the order, python/oracle, was written from SPEC.md
// alone. Where it and this package differ, the text or one of them is wrong. python/order_check.py
// runs it.

const pythonProgram = "../../python/order_check.py"

func TestPythonVectors(t *testing.T) {
	out := programs.Python(t, nil, pythonProgram, "../../testdata/order/order-vectors.json")
	v := readVectors(t)
	checks := len(v.Philox) + 2 + len(v.Turn) + 3*len(v.Cases)
	for _, c := range v.Cases {
		checks += len(c.CRCRanks)
	}
	if want := fmt.Sprintf("%d cases, %d checks, 0 differ\n", len(v.Cases), checks); out != want {
		t.Errorf("got %q, want %q", out, want)
	}
}

func TestPythonChoiceVectors(t *testing.T) {
	n := len(readChoices(t))
	if out, want := programs.Python(t, nil, pythonProgram, "../../testdata/order/choice-vectors.json"), fmt.Sprintf("%d cases, %d checks, 0 differ\n", n, n); out != want {
		t.Errorf("got %q, want %q", out, want)
	}
}

// A case of the second implementation, and its answer.
type (
	pythonCase struct {
		Blocks     []uint32          `json:"blocks"`
		ShardFirst []int             `json:"shard_first_block"`
		Params     *pythonParams     `json:"params,omitempty"`
		Epoch      uint64            `json:"epoch"`
		Position   uint64            `json:"position"`
		Bound      uint64            `json:"bound"`
		Steps      []pythonSplit     `json:"steps,omitempty"`
		Checkpoint *pythonCheckpoint `json:"checkpoint,omitempty"`
		Read       []string          `json:"read,omitempty"`
		Choose     *pythonChoice     `json:"choose,omitempty"`
		Skipped    [][2]any          `json:"skipped,omitempty"`
	}
	pythonSplit struct {
		GlobalBatch int `json:"global_batch"`
		World       int `json:"world_size"`
	}
	pythonParams struct {
		Seed     string   `json:"seed"`
		Shuffle  bool     `json:"shuffle"`
		V        uint32   `json:"V"`
		E        uint32   `json:"E"`
		W        uint32   `json:"W"`
		H        uint32   `json:"H"`
		T        uint32   `json:"T"`
		Affinity Affinity `json:"affinity"`
		Tail     Tail     `json:"tail"`
	}
	pythonCheckpoint struct {
		Digest      string `json:"digest"`
		GlobalBatch int    `json:"global_batch"`
		Tables      string `json:"tables"`
		SkipHash    string `json:"skip_hash"`
		Skipped     uint64 `json:"skipped"`
	}
	pythonChoice struct {
		Shards      []int    `json:"shards"`
		Samples     uint32   `json:"samples"`
		Decoded     uint64   `json:"decoded"`
		Seed        uint64   `json:"seed"`
		Shuffle     bool     `json:"shuffle"`
		Memory      uint64   `json:"memory"`
		WholeShards bool     `json:"whole_shards"`
		Host        bool     `json:"host"`
		V           uint32   `json:"V"`
		E           uint32   `json:"E"`
		W           uint32   `json:"W"`
		H           uint32   `json:"H"`
		Affinity    Affinity `json:"affinity"`
		Tail        Tail     `json:"tail"`
		Epochs      uint64   `json:"epochs"`
		GlobalBatch int      `json:"global_batch"`
		World       int      `json:"world_size"`
		UnitBlocks  uint64   `json:"unit_blocks"`
	}
	pythonAnswer struct {
		Steps      []*pythonBatch `json:"steps"`
		Checkpoint string         `json:"checkpoint"`
		Read       []string       `json:"read"` // "" for a text that was accepted
		Choose     *pythonParams  `json:"choose"`
		SkipHash   string         `json:"skip_hash"`
	}
	// pythonBatch is a global batch over all ranks; nil after the end.
	pythonBatch struct {
		Place [2]uint64  `json:"place"`
		Next  [2]uint64  `json:"next"`
		Real  int        `json:"real"` // of the list, no padding
		Ranks [][]uint64 `json:"ranks"`
	}
)

func pythonOf(p Params) *pythonParams {
	return &pythonParams{
		Seed: strconv.FormatUint(p.Seed, 10), Shuffle: p.Shuffle, V: p.Lanes, E: p.RunBlocks, W: p.Delay, H: p.Head, T: p.MixBlock,
		Affinity: p.Affinity, Tail: p.Tail,
	}
}

// randomPythonCase makes the i-th case: every tail, affinity, kind of run and way of reading occurs
// with every other.
func randomPythonCase(rnd *rand.Rand, i int) (Table, Params, pythonCase) {
	table, p := randomTable(rnd), randomParams(rnd)
	p.Tail = []Tail{TailShort, TailDrop, TailWrap, TailPad}[i%4]
	p.Affinity = []Affinity{AffinityEpoch, AffinityRun}[i/4%2]
	p.MixBlock = rnd.Uint32()
	if i%3 == 0 {
		p.RunBlocks = 0
	}
	if i%5 == 0 {
		p.Shuffle, p.Delay, p.Head = false, 1, 1
	}
	var total int
	for _, n := range table.Samples {
		total += int(n)
	}
	if total == 0 && p.Tail == TailDrop {
		p.Tail = TailWrap
	}
	c := pythonCase{Blocks: table.Samples, ShardFirst: append(append([]int{}, table.ShardFirst...), len(table.Samples)), Params: pythonOf(p), Bound: maxEpochs}
	if c.Blocks == nil {
		c.Blocks = []uint32{}
	}
	c.Epoch, c.Position = uint64(rnd.IntN(3)), uint64(rnd.IntN(total+1))
	switch i % 7 {
	case 1: // the last epochs there are
		c.Epoch = maxEpochs - 1 - uint64(rnd.IntN(2))
	case 2:
		c.Bound = c.Epoch + 1 + uint64(rnd.IntN(2))
	}
	for range 8 {
		g := 1 + rnd.IntN(40)
		if p.Tail == TailWrap && rnd.IntN(4) == 0 {
			g = 1 + rnd.IntN(2*total+1)
		}
		if p.Tail == TailDrop {
			g = min(g, total)
		}
		c.Steps = append(c.Steps, pythonSplit{g, 1 + rnd.IntN(9)})
	}
	return table, p, c
}

// batchesFor is what this package answers to a case, and where it ends.
func batchesFor(t *testing.T, plan *Plan, c *pythonCase) (batches []*pythonBatch, epoch, position uint64) {
	t.Helper()
	cursors := make([]*Cursor, 9)
	for r := range cursors {
		var err error
		if cursors[r], err = plan.Seek(c.Epoch, c.Position); err != nil {
			t.Fatal(err)
		}
		cursors[r].Until(c.Bound)
	}
	for _, s := range c.Steps {
		b := &pythonBatch{Ranks: make([][]uint64, s.World)}
		var padded int
		for r, cur := range cursors { // those past the world keep pace
			refs, at, err := cur.NextBatch(nil, Split{s.GlobalBatch, r % s.World, s.World})
			if errors.Is(err, io.EOF) {
				b = nil
				continue
			}
			if err != nil || b == nil {
				t.Fatalf("rank %d: %v", r, err)
			}
			if r >= s.World {
				continue
			}
			b.Place, b.Next = [2]uint64{at.Epoch, at.Position}, [2]uint64{at.NextEpoch, at.NextPosition}
			b.Ranks[r] = []uint64{}
			for _, x := range refs {
				b.Ranks[r] = append(b.Ranks[r], x.Number)
				if x.Padding {
					padded++
				} else if b.Real++; padded > 0 {
					t.Fatal("a sample behind padding")
				}
			}
		}
		batches = append(batches, b)
	}
	epoch, position = cursors[0].epoch, cursors[0].position
	return batches, epoch, position
}

// TestPythonOrders compares batches, the places between them and the checkpoint after them.
func TestPythonOrders(t *testing.T) {
	rnd := rand.New(rand.NewPCG(21, 22))
	var cases []pythonCase
	var plans []*Plan
	var want [][]*pythonBatch
	var texts []string
	var accepted [][]bool
	var samples, ends int
	for i := range 84 {
		table, p, c := randomPythonCase(rnd, i)
		plan := mustPlan(t, table, p)
		batches, epoch, position := batchesFor(t, plan, &c)
		for _, b := range batches {
			if b == nil {
				ends++
				continue
			}
			samples += b.Real
		}
		c.Checkpoint = &pythonCheckpoint{"test", 1 + rnd.IntN(1000), "manifest-0123456789abcdef.bin", "", rnd.Uint64()}
		cp, err := plan.Checkpoint(epoch, position)
		if err != nil {
			t.Fatal(err)
		}
		cp.GlobalBatch, cp.Tables, cp.Skipped = c.Checkpoint.GlobalBatch, c.Checkpoint.Tables, c.Checkpoint.Skipped
		text := string(encode(t, cp))
		var fits []bool
		for _, edited := range editedCheckpoints(rnd, text) {
			_, err := DecodeCheckpoint([]byte(edited))
			c.Read, fits = append(c.Read, edited), append(fits, err == nil)
		}
		cases, plans, want = append(cases, c), append(plans, plan), append(want, batches)
		texts, accepted = append(texts, text), append(accepted, fits)
	}
	if samples < 5000 || ends < 10 {
		t.Fatalf("%d samples and %d ends: the cases are too small", samples, ends)
	}
	for i, got := range programs.Answers[pythonAnswer](t, pythonProgram, cases) {
		if !reflect.DeepEqual(got.Steps, want[i]) {
			a, _ := json.Marshal(got.Steps)
			b, _ := json.Marshal(want[i])
			t.Errorf("case %d, %+v: Python has\n%s\nthis package\n%s", i, plans[i].params, a, b)
		}
		if got.Checkpoint != texts[i] {
			t.Errorf("case %d: Python writes the checkpoint\n%s\nthis package\n%s", i, got.Checkpoint, texts[i])
		}
		for k, says := range got.Read {
			if (says == "") != accepted[i][k] {
				t.Errorf("case %d: this package accepts: %v, Python says %q of\n%s", i, accepted[i][k], says, cases[i].Read[k])
			}
		}
	}
}

// editedCheckpoints are the text itself, also with blanks, then damaged ones, then ones with a
// member changed and a check that fits.
func editedCheckpoints(rnd *rand.Rand, text string) []string {
	texts := []string{text, strings.ReplaceAll(text, `,"`, ",\n\t\""), text + "\n", text[:len(text)/2], text + "}"}
	for range 12 {
		b := []byte(text)
		b[rnd.IntN(len(b))] = byte(' ' + rnd.IntN(95))
		texts = append(texts, string(b))
	}
	edit := func(member, value string) {
		plain := text[:strings.LastIndex(text, `,"check"`)] + "}"
		head, rest, _ := strings.Cut(plain, `"`+member+`":`)
		end := strings.IndexAny(rest, ",}]")
		plain = head + `"` + member + `":` + value + rest[end:]
		texts = append(texts, fmt.Sprintf(`%s,"check":"%08x"}`, plain[:len(plain)-1], crc32.ChecksumIEEE([]byte(plain))))
	}
	for member, values := range map[string][]string{
		"version": {"1", "2", `"1"`}, "algorithm": {`"lane-delay/2"`}, "seed": {`"1"`, `"01"`, `""`}, "epoch": {"7", "4294967296", "4294967297"},
		"position": {"0", "1", "1000000", "-1", "1.0"}, "shuffle": {"true", "false", "1"}, "V": {"0", "1", "16777216", "16777217"},
		"E": {"4294967295", "4294967296"}, "W": {"0", "1", "4294967295", "4294967296"}, "H": {"0", "1", "2", "4294967295"},
		"T": {"0", "4294967295", "4294967296"}, "affinity": {`"run"`, `"lane"`}, "tail": {`"pad"`, `""`},
		"global_batch": {"0", "2147483647", "2147483648"}, "N": {"0", "9223372036854775807", "9223372036854775808"},
		"weight": {"0", "2"}, "key": {`"2"`}, "tables": {`""`, `"a&b"`, `"~ !"`, `"` + strings.Repeat("x", 129) + `"`, "null"},
		"skipped": {"18446744073709551615", "18446744073709551616"},
	} {
		edit(member, values[rnd.IntN(len(values))])
	}
	return texts
}

// choose is what this package chooses.
func (c *pythonChoice) choose() (Params, error) {
	table := Table{Decoded: c.Decoded}
	blocks := 0
	for _, n := range c.Shards {
		table.ShardFirst = append(table.ShardFirst, blocks)
		blocks += n
	}
	if table.Samples = make([]uint32, blocks); blocks > 0 {
		table.Samples[0] = c.Samples
	}
	return Choose(table, Choice{
		Seed: c.Seed, Shuffle: c.Shuffle, Memory: c.Memory, WholeShards: c.WholeShards, Host: c.Host, Lanes: c.V, RunBlocks: c.E, Delay: c.W, Head: c.H,
		Affinity: c.Affinity, Tail: c.Tail, Epochs: c.Epochs, GlobalBatch: c.GlobalBatch, World: c.World, UnitBlocks: c.UnitBlocks,
	})
}

// TestPythonChoices compares the parameters chosen, and what is refused.
func TestPythonChoices(t *testing.T) {
	rnd := rand.New(rand.NewPCG(23, 24))
	many := pythonChoice{Shards: []int{1<<24 - 3, 0, 7, 1}, Decoded: 1 << 44, Shuffle: true, Memory: 1 << 34}
	choices := []pythonChoice{
		many,
		{Shards: []int{1 << 24}, Shuffle: true},
		{Shards: []int{1<<24 + 1}, Shuffle: true},
		{Shuffle: true},
		{Shards: []int{0}, Shuffle: true, WholeShards: true, Decoded: 5},
		{Shards: []int{1000}, Decoded: 1e9, Shuffle: true},
		{Shards: []int{1000}, Decoded: 1e9, Shuffle: true, Memory: 5e6},
		{Shards: []int{1000}, Decoded: 1e9, Shuffle: true, Memory: 5e6 - 1},
		{Shards: []int{1000}, Decoded: 1e9, Shuffle: true, Memory: 49e6, V: 10},
		{Shards: []int{1000}, Decoded: 1e9, Shuffle: true, Memory: 1, V: 10, W: 7},
		{Shards: []int{1000}, Decoded: 1e9, Shuffle: true, V: 1 << 24, W: 1},
		{Shards: []int{1000}, Decoded: 1e9, Shuffle: true, V: 1<<24 + 1, W: 1},
		{Shards: []int{1000}, Decoded: 1e9, Shuffle: true, Memory: math.MaxUint64},
		{Shards: []int{1000}, Decoded: math.MaxUint64, Shuffle: true, E: math.MaxUint32},
		{Shards: []int{1000}, Decoded: 1e9, Shuffle: true, Memory: 255e6},
		{Shards: []int{1000}, Decoded: 1e9, Shuffle: true, Memory: 1536e6}, {Shards: []int{1000}, Decoded: 1e9, Shuffle: true, Memory: 1536e6 - 1},
		{Shards: []int{3000, 3200}, Decoded: 6200 << 18, Shuffle: true}, {Shards: []int{3000, 3143}, Decoded: 6143 << 18, Shuffle: true},
		{Shards: []int{3000, 3144}, Decoded: 6144 << 18, Shuffle: true, Memory: 1536 << 20}, {Shards: []int{6144}, Decoded: 6144 << 18, Shuffle: true, Memory: 1536<<20 - 1},
		{Shards: []int{1000}, World: 2, GlobalBatch: 95}, {Shards: []int{1000}, World: 2, GlobalBatch: 193}, {Shards: []int{1000}, World: 1}, {Shards: []int{1000}, W: 2},
	}
	for range 120 {
		c := pythonChoice{
			Seed: rnd.Uint64(), Shuffle: rnd.IntN(5) > 0, Memory: uint64(1) << (10 + rnd.IntN(30)), WholeShards: rnd.IntN(4) == 0, Host: rnd.IntN(3) == 0,
			V: []uint32{0, 0, 0, 1, 7, 96, 100}[rnd.IntN(7)], E: []uint32{0, 0, 0, 1, 3, 8}[rnd.IntN(6)],
			W: []uint32{0, 0, 0, 1, 5}[rnd.IntN(5)], H: []uint32{0, 0, 0, 1, 6}[rnd.IntN(5)],
			Affinity: []Affinity{"", AffinityEpoch, AffinityRun, "none"}[rnd.IntN(20)/6], Tail: []Tail{"", TailShort, TailPad, "none"}[rnd.IntN(20)/6],
			Epochs: rnd.Uint64N(3), GlobalBatch: rnd.IntN(3) * rnd.IntN(2000), World: rnd.IntN(4),
			UnitBlocks: []uint64{0, 0, 0, 1, 50, 5000}[rnd.IntN(6)],
		}
		c.Samples = rnd.Uint32N(1 << (1 + rnd.IntN(24)))
		blocks := 0
		for range rnd.IntN(9) {
			c.Shards = append(c.Shards, rnd.IntN(2000))
			blocks += c.Shards[len(c.Shards)-1]
		}
		c.Memory += rnd.Uint64N(c.Memory)
		c.Decoded = uint64(blocks)*uint64(rnd.IntN(1<<(8+rnd.IntN(13)))) + uint64(rnd.IntN(100))
		choices = append(choices, c)
	}
	cases := make([]pythonCase, len(choices))
	want := make([]*pythonParams, len(choices))
	var refused int
	for i, c := range choices {
		if c.Shards == nil {
			choices[i].Shards = []int{}
		}
		cases[i].Choose = &choices[i]
		p, err := c.choose()
		if err != nil {
			refused++
			continue
		}
		want[i] = pythonOf(p)
	}
	if want[0] == nil || want[0].E != 2 || refused < 20 || len(choices)-refused < 50 {
		t.Fatalf("%d of %d refused, the first is %+v: the cases miss what they are for", refused, len(choices), want[0])
	}
	for i, got := range programs.Answers[pythonAnswer](t, pythonProgram, cases) {
		if !reflect.DeepEqual(got.Choose, want[i]) {
			t.Errorf("%+v: Python chooses %+v, this package %+v", choices[i], got.Choose, want[i])
		}
	}
}

// TestPythonSkipHash: package reader has the same known answers in its own test.
func TestPythonSkipHash(t *testing.T) {
	got := programs.Answers[pythonAnswer](t, pythonProgram, []pythonCase{
		{Skipped: [][2]any{{"train-000003.tar.zst", 17}}},
		{Skipped: [][2]any{{"b", 2}, {"a", 10}, {"a", 9}, {"B", 0}, {"é", 1}, {"a", 10}}},
	})
	for i, want := range []string{"c8117176d1eb443a4bc106e34af19c5f", "aa362ea8ae17c6098a310f6d407d80c7"} {
		if got[i].SkipHash != want {
			t.Errorf("ledger %d: %s, want %s", i, got[i].SkipHash, want)
		}
	}
	if !strings.Contains(specText(t), "`"+got[0].SkipHash+"`") {
		t.Errorf("ORDER.md does not have %s", got[0].SkipHash)
	}
}
