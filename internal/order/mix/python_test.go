package mix

import (
	"encoding/json"
	"fmt"
	"math/big"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/internal/order/units"
	"github.com/shardtool/shardtool/internal/testset/programs"
	"github.com/shardtool/shardtool/reader/order"
)

// The second implementation of mixes, python/oracle, shares no code with this package.
// python/mix_check.py asks it.

const pythonProgram = "../../../python/mix_check.py"

func TestPythonVectors(t *testing.T) {
	out := programs.Python(t, nil, pythonProgram, "../../../testdata/order/mix-vectors.json")
	v := readVectors(t)
	if want := fmt.Sprintf("%d mixes, ", len(v.Mix)); !strings.HasPrefix(out, want) || !strings.HasSuffix(out, "0 differ\n") {
		t.Errorf("got %q, want %s...", out, want)
	}
}

// A case of the second implementation, and its answer.
type (
	pythonCase struct {
		Seed     string          `json:"seed,omitempty"`
		Tail     order.Tail      `json:"tail,omitempty"`
		Epoch    string          `json:"epoch,omitempty"`
		Sources  []pythonSource  `json:"sources,omitempty"`
		Segments []pythonSegment `json:"segments,omitempty"`
		Change   *pythonChange   `json:"change,omitempty"` // asked for before the middle step
		Steps    []pythonSplit   `json:"steps,omitempty"`
		LeftOut  []Range         `json:"-"`
		Ranges   [][2]uint64     `json:"left_out"`

		Read        []string   `json:"read,omitempty"`
		Shares      []string   `json:"shares,omitempty"`
		Tokens      [][]uint64 `json:"tokens,omitempty"` // of each source, and its samples
		Temperature []uint64   `json:"temperature,omitempty"`
		Memory      uint64     `json:"memory,omitempty"`
		Needs       [][]uint64 `json:"needs,omitempty"`
	}
	pythonChange struct {
		Sources  []pythonSource  `json:"sources"`
		Segments []pythonSegment `json:"segments"`
	}
	pythonSource struct {
		Name      string         `json:"name"`
		Digest    string         `json:"digest"`
		Blocks    []uint32       `json:"blocks"`
		Shards    []int          `json:"shards"`
		V         uint32         `json:"V"`
		E         uint32         `json:"E"`
		W         uint32         `json:"W"`
		H         uint32         `json:"H"`
		Affinity  order.Affinity `json:"affinity"`
		MaxEpochs uint64         `json:"max_epochs"`
		View      order.View     `json:"view"`
		ViewID    string         `json:"view_id"`
		Units     *pythonUnits   `json:"units,omitempty"`
	}
	pythonUnits struct {
		Kind    units.Kind `json:"kind"`
		Size    uint32     `json:"size"`
		Long    units.Long `json:"long"`
		Window  uint32     `json:"window"`
		By      string     `json:"by"`
		Lengths []uint32   `json:"lengths"`
	}
	pythonSegment [2]any // a position and its weights
	pythonSplit   struct {
		GlobalBatch int `json:"global_batch"`
		World       int `json:"world_size"`
	}
	pythonAnswer struct {
		End        string         `json:"end"`
		Lengths    []string       `json:"lengths"` // by the rules first and all; "0": never
		Batches    []*pythonBatch `json:"batches"`
		Checkpoint string         `json:"checkpoint"`
		Read       []string       `json:"read"` // "" for a text that was accepted
		Weights    []uint64       `json:"weights"`
		Share      string         `json:"share"`
		Parts      []uint64       `json:"parts"`
	}
	pythonBatch struct {
		Position uint64        `json:"position"`
		Next     uint64        `json:"next"`
		Real     int           `json:"real"`
		Ranks    [][][3]uint64 `json:"ranks"`
	}
)

// askPython has all cases answered by one process.
func askPython(t *testing.T, cases []pythonCase) []pythonAnswer {
	t.Helper()
	for i := range cases {
		cases[i].Ranges = [][2]uint64{}
		for _, r := range cases[i].LeftOut {
			cases[i].Ranges = append(cases[i].Ranges, [2]uint64{r.From, r.To})
		}
	}
	return programs.Answers[pythonAnswer](t, pythonProgram, cases)
}

func pythonSources(w *world) (sources []pythonSource, segments []pythonSegment) {
	for i, s := range w.Sources {
		t := w.tables[i]
		sources = append(sources, pythonSource{s.Name, s.Digest, t.Samples, append(slices.Clone(t.ShardFirst), len(t.Samples)),
			s.Lanes, s.RunBlocks, s.Delay, s.Head, s.Affinity, s.MaxEpochs, t.View, s.View, nil})
	}
	for _, g := range w.Segments {
		segments = append(segments, pythonSegment{g.At, g.Weights})
	}
	return sources, segments
}

func pythonOf(w *world) pythonCase {
	c := pythonCase{Seed: strconv.FormatUint(w.Seed, 10), Tail: w.Tail, Epoch: strconv.FormatUint(w.Epoch, 10)}
	c.Sources, c.Segments = pythonSources(w)
	return c
}

// askedOf is a mix that a running one may change to: sources added, removed and replaced.
func askedOf(rnd *rand.Rand, w *world) world {
	for {
		asked := randomWorld(rnd)
		asked.Seed, asked.Tail, asked.Epoch = w.Seed, w.Tail, 0
		for i, s := range asked.Sources {
			k := slices.IndexFunc(w.Sources, func(x Source) bool { return x.Name == s.Name })
			if k >= 0 && rnd.IntN(3) > 0 {
				limit := s.MaxEpochs
				asked.Sources[i], asked.tables[i] = w.Sources[k], w.tables[k]
				asked.Sources[i].MaxEpochs = limit
			}
		}
		if len(asked.Sources) > 1 {
			return asked
		}
	}
}

// run is what this package answers to the steps of a case.
func (c *pythonCase) run(t *testing.T, w world, asked *world) (batches []*pythonBatch, cp Checkpoint) {
	t.Helper()
	var position uint64
	seek := func() *Cursor {
		cursor := w.cursor(t, position)
		if err := cursor.LeaveOut(c.LeftOut); err != nil {
			t.Fatal(err)
		}
		return cursor
	}
	cursor := seek()
	for k, s := range c.Steps {
		if asked != nil && k == len(c.Steps)/2 {
			w = changed(t, w, *asked, position)
			cursor = seek()
		}
		b := &pythonBatch{Ranks: make([][][3]uint64, s.World)}
		for r := range s.World {
			one := cursor
			if r > 0 {
				one = seek()
			}
			refs, at, err := one.NextBatch(nil, order.Split{GlobalBatch: s.GlobalBatch, Rank: r, World: s.World})
			if err != nil {
				b = nil
				break
			}
			b.Position, b.Next, b.Ranks[r] = at.Position, at.NextPosition, [][3]uint64{}
			for _, ref := range refs {
				if !ref.Padding {
					b.Real++
				}
			}
			b.Ranks[r] = append(b.Ranks[r], entriesOf(refs)...)
		}
		if batches = append(batches, b); b != nil {
			position = b.Next
		}
	}
	return batches, checkpointOf(t, w.Mix, position)
}

// changed is the mix asked for from a position on, with the tables of all its sources.
func changed(t *testing.T, w, asked world, position uint64) world {
	t.Helper()
	cp := checkpointOf(t, w.Mix, position)
	m, err := cp.Change(asked.Mix)
	if err != nil {
		t.Fatal(err)
	}
	after := world{Mix: m}
	for _, s := range m.Sources {
		from := asked
		if !slices.ContainsFunc(asked.Sources, func(x Source) bool { return x.Name == s.Name }) {
			from = w
		}
		after.tables = append(after.tables, from.tables[slices.IndexFunc(from.Sources, func(x Source) bool { return x.Name == s.Name })])
	}
	return after
}

// TestPythonMixes compares batches, ends, lengths of epochs, changes of the mix, checkpoints and
// what is refused as one.
func TestPythonMixes(t *testing.T) {
	rnd := rand.New(rand.NewPCG(27, 28))
	var cases []pythonCase
	var want [][]*pythonBatch
	var worlds []world
	var texts []string
	var accepted [][]bool
	var samples, ends, changes int
	for i := range 60 {
		w := randomWorld(rnd)
		c := pythonOf(&w)
		for range 8 {
			g := 1 + rnd.IntN(25)
			if w.Tail == order.TailDrop {
				g = min(g, int(w.Epoch))
			}
			c.Steps = append(c.Steps, pythonSplit{g, 1 + rnd.IntN(4)})
		}
		if i%4 == 1 {
			c.LeftOut = []Range{{0, 3}, {rnd.Uint64N(50) + 5, 60 + rnd.Uint64N(50)}}
		}
		var asked *world
		if i%3 == 0 {
			other := askedOf(rnd, &w)
			asked, c.Change = &other, &pythonChange{}
			c.Change.Sources, c.Change.Segments = pythonSources(asked)
			changes++
		}
		batches, cp := c.run(t, w, asked)
		for _, b := range batches {
			if b == nil {
				ends++
				continue
			}
			samples += b.Real
		}
		cp.Steps, cp.LeftOut, cp.SkipHash, cp.Skipped = Steps{3, 2, 5}, c.LeftOut, "ab", 1<<64-1
		text := encode(t, cp)
		var fits []bool
		for _, other := range damaged(rnd, text) {
			_, err := DecodeCheckpoint([]byte(other))
			c.Read, fits = append(c.Read, other), append(fits, err == nil)
		}
		cases, want, worlds, texts, accepted = append(cases, c), append(want, batches), append(worlds, w), append(texts, text), append(accepted, fits)
	}
	if samples < 3000 || ends < 20 || changes < 10 {
		t.Fatalf("%d samples, %d ends and %d changes: the cases are too small", samples, ends, changes)
	}
	for i, got := range askPython(t, cases) {
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
			a, _ := json.Marshal(got.Batches)
			b, _ := json.Marshal(want[i])
			t.Errorf("case %d, %+v: Python has\n%s\nthis package\n%s", i, w.Mix, a, b)
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

// damaged are the text itself, also with blanks, then with a byte changed, then with a number
// changed and a check that fits.
func damaged(rnd *rand.Rand, text string) []string {
	texts := []string{text, strings.ReplaceAll(text, ",", ",\n "), text + "\n", text[:len(text)/2], text + "}"}
	for range 12 {
		b := []byte(text)
		b[rnd.IntN(len(b))] = byte(' ' + rnd.IntN(95))
		texts = append(texts, string(b))
	}
	plain := text[:strings.LastIndex(text, `,"check"`)] + "}"
	for range 40 {
		at := rnd.IntN(len(plain))
		for plain[at] < '0' || plain[at] > '9' {
			at = (at + 1) % len(plain)
		}
		replacement := []string{"0", "1", "9", "10", "-1", "1.0", "9223372036854775807", "18446744073709551616", "null", `""`}[rnd.IntN(10)]
		texts = append(texts, withCheck(plain[:at]+replacement+plain[at+1:]))
	}
	return texts
}

// TestPythonWeights compares weights, temperatures and the division of memory.
func TestPythonWeights(t *testing.T) {
	rnd := rand.New(rand.NewPCG(29, 30))
	var cases []pythonCase
	for i := range 150 {
		c := pythonCase{Temperature: []uint64{rnd.Uint64N(1 << rnd.IntN(63)), 0, 1 + rnd.Uint64N(16)}, Memory: 1 + rnd.Uint64N(1<<24)}
		c.Temperature[1] = rnd.Uint64N(c.Temperature[2] + 1)
		if c.Temperature[0] == 0 {
			c.Temperature[0] = 1
		}
		for range 1 + rnd.IntN(20) {
			share := fmt.Sprintf("%d.%0*d", rnd.IntN(3), 1+rnd.IntN(9), rnd.IntN(10))
			if rnd.IntN(2) == 0 {
				share = fmt.Sprintf("%d/%d", rnd.IntN(20), rnd.IntN(40)+i%2)
			}
			c.Shares = append(c.Shares, share)
			if i%3 == 0 { // shares of tokens
				c.Tokens = append(c.Tokens, []uint64{rnd.Uint64N(1 << rnd.IntN(64)), 1 + rnd.Uint64N(1<<rnd.IntN(40))})
			}
			c.Needs = append(c.Needs, []uint64{rnd.Uint64N(1 << 40), rnd.Uint64N(1000), rnd.Uint64N(100), 100, rnd.Uint64N(1 << 20)})
		}
		cases = append(cases, c)
	}
	var refused, made int
	for i, got := range askPython(t, cases) {
		c := cases[i]
		share, err := Temperature(c.Temperature[0], int(c.Temperature[1]), int(c.Temperature[2]))
		if err != nil || share.RatString() != got.Share {
			t.Errorf("temperature %d: %v, %v, in Python %s", c.Temperature, share, err, got.Share)
		}
		var weights []uint64
		shares := make([]*big.Rat, len(c.Shares))
		for k, text := range c.Shares {
			if shares[k], err = ParseShare(text); err != nil {
				break
			}
			if c.Tokens == nil {
				continue
			}
			if shares[k], err = PerToken(shares[k], c.Tokens[k][0], c.Tokens[k][1]); err != nil {
				break
			}
		}
		if err == nil {
			weights, err = Quantize(make([]string, len(shares)), shares)
		}
		if err != nil {
			refused++
		} else {
			made++
		}
		if !slices.Equal(weights, got.Weights) {
			t.Errorf("%s: weights %d, %v, in Python %d", c.Shares, weights, err, got.Weights)
		}
		var needs []Need
		for _, n := range c.Needs {
			needs = append(needs, Need{n[0], n[1], big.NewRat(int64(n[2]), int64(n[3])), n[4]})
		}
		if parts, err := Divide(c.Memory, needs); !slices.Equal(parts, got.Parts) {
			t.Errorf("%d bytes for %v: %d, %v, in Python %d", c.Memory, c.Needs, parts, err, got.Parts)
		}
	}
	if refused < 10 || made < 50 {
		t.Errorf("%d shares are refused, %d made: the cases miss what they are for", refused, made)
	}
}
