package order

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
)

// specText is ORDER.md.
func specText(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("ORDER.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestSpecExample: the worked example of ORDER.md is what this package computes.
func TestSpecExample(t *testing.T) {
	spec := specText(t)
	for i, block := range strings.SplitAfter(workedExample(t), "\n\n") {
		if block = strings.TrimSpace(block); !strings.Contains(spec, block) {
			t.Errorf("part %d of the worked example is not in ORDER.md:\n%s", i, block)
		}
	}
}

// TestSpecCheckpoint: the checkpoints printed in ORDER.md are accepted, and written so.
func TestSpecCheckpoint(t *testing.T) {
	var seen int
	for line := range strings.Lines(specText(t)) {
		if line = strings.TrimSpace(line); !strings.HasPrefix(line, `{"version":1,"algorithm"`) || !strings.Contains(line, `"check"`) {
			continue
		}
		seen++
		c, err := DecodeCheckpoint([]byte(line))
		if err != nil {
			t.Errorf("%v: %s", err, line)
			continue
		}
		if again := encode(t, c); string(again) != line {
			t.Errorf("got  %s\nwant %s", again, line)
		}
	}
	if seen == 0 {
		t.Error("ORDER.md shows no checkpoint")
	}
}

var workedTable = Table{Samples: []uint32{3, 2, 4, 2, 3}, ShardFirst: []int{0, 2}, Decoded: 14000}

func workedParams(tail Tail) Params {
	return Params{Seed: 1, Shuffle: true, Lanes: 3, RunBlocks: 1, Delay: 2, Head: 1, Affinity: AffinityEpoch, Tail: tail}
}

// workedExample prints the example of ORDER.md, in paragraphs.
func workedExample(t *testing.T) string {
	t.Helper()
	plan := mustPlan(t, workedTable, workedParams(TailWrap))
	var w strings.Builder
	c, err := plan.Seek(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	o := &c.order
	fmt.Fprintf(&w, "turn      %s\n", list(plan.turn))
	line := plan.blocks.runs.appendAll(nil)
	shuffleMany(line, newWords(plan.params.Seed, domainRuns, 0, 0, objRuns))
	fmt.Fprintf(&w, "runs      %s\nline     ", list(line))
	for _, run := range line {
		for i := range plan.blocks.runs.samples[run] {
			fmt.Fprint(&w, " ", plan.numbers.first(run)+uint64(i))
		}
	}
	fmt.Fprint(&w, "\n\n")
	lanes := make([][]uint64, len(o.arcs))
	for l := range o.arcs {
		lanes[l] = exampleLane(&w, c, l)
	}
	fmt.Fprint(&w, "position ")
	for g := range plan.total {
		fmt.Fprintf(&w, " %2d", g)
	}
	fmt.Fprint(&w, "\nsample   ")
	for g := range plan.total {
		for l, turn := range plan.turn {
			if uint64(turn) == g%uint64(len(plan.turn)) {
				fmt.Fprintf(&w, " %2d", lanes[l][g/uint64(len(plan.turn))])
			}
		}
	}
	fmt.Fprint(&w, "\n\n")
	for _, tail := range []Tail{TailWrap, TailShort, TailPad, TailDrop} {
		exampleBatches(t, &w, tail)
	}
	return w.String()
}

func exampleLane(w io.Writer, c *Cursor, l int) []uint64 {
	o, a := &c.order, &c.order.arcs[l]
	d := newDealing(&c.plan.params, a.count)
	fmt.Fprintf(w, "lane %d    %d samples, m = %d, t0 = %d\n", l, a.length, a.count, d.first)
	ticks := make([][]uint64, a.count)
	for q := range a.count {
		s := slot{q: uint32(q), samples: o.size(a, a.first+q)}
		b := new(body)
		s.fill(c, l, b)
		var plain, mixed []uint64
		for u := range uint64(s.samples) {
			x := s.number + uint64(b.order[u])
			plain, mixed = append(plain, s.number+u), append(mixed, x)
			tick := d.tickOf(uint64(q), uint64(s.samples), u)
			ticks[tick] = append(ticks[tick], x)
		}
		fmt.Fprintf(w, "  slot %d  %-9s permuted  %s\n", q, list(plain), list(mixed))
	}
	refs := c.lane(l).read(c, nil, 0, a.length, false)
	var lane []uint64
	for _, r := range refs {
		lane = append(lane, r.Number)
	}
	from := 0
	for tick, listed := range ticks {
		to := from + len(listed)
		fmt.Fprintf(w, "  tick %d  %-9s shuffled  %s\n", tick, list(listed), list(lane[from:to]))
		from = to
	}
	fmt.Fprint(w, "\n")
	return lane
}

// exampleBatches prints the batches of 4 of two epochs, whole and for two ranks.
func exampleBatches(t *testing.T, w io.Writer, tail Tail) {
	plan := mustPlan(t, workedTable, workedParams(tail))
	c, err := plan.Seek(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	half, err := plan.Seek(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(w, "tail %s\n", tail)
	for range 5 {
		refs, b, err := c.NextBatch(nil, Split{GlobalBatch: 4, World: 1})
		if err != nil {
			t.Fatal(err)
		}
		_, h, err := half.NextBatch(nil, Split{GlobalBatch: 4, Rank: 1, World: 2})
		if err != nil {
			t.Fatal(err)
		}
		var text []string
		for i, r := range refs {
			s := fmt.Sprint(r.Number)
			if r.Padding {
				s = "(" + s + ")"
			}
			if i == h.First {
				s = "| " + s
			}
			text = append(text, s)
		}
		fmt.Fprintf(w, "  %d/%-2d -> %d/%-2d  %s\n", b.Epoch, b.Position, b.NextEpoch, b.NextPosition, strings.Join(text, " "))
	}
	fmt.Fprint(w, "\n")
}

func list[T any](a []T) string { return strings.Trim(fmt.Sprint(a), "[]") }
