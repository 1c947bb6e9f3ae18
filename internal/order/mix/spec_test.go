package mix

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/reader/order"
)

// specText is ORDER.md.
func specText(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../../reader/order/ORDER.md")
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

// TestSpecCheckpoint: the checkpoint printed in ORDER.md is accepted, and written so.
func TestSpecCheckpoint(t *testing.T) {
	for line := range strings.Lines(specText(t)) {
		if line = strings.TrimSpace(line); !strings.HasPrefix(line, `{"version":2,`) {
			continue
		}
		c, err := DecodeCheckpoint([]byte(line))
		if err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		want := checkpointOf(t, workedMix(t), 40)
		want.Steps.GlobalBatch = 10
		if again := encode(t, c); again != line || encode(t, want) != line {
			t.Errorf("got  %s\nwant %s\nthe example is %s", again, line, encode(t, want))
		}
		return
	}
	t.Error("ORDER.md shows no checkpoint of a mix")
}

var workedTables = []order.Table{
	{Samples: []uint32{3, 3, 9}, ShardFirst: []int{0}},
	{Samples: []uint32{4, 2}, ShardFirst: []int{0, 1}},
	{Samples: []uint32{5, 7, 6, 8, 4}, ShardFirst: []int{0, 3}},
}

// workedMix is like the second mix of the vectors, whose math is a view.
func workedMix(t *testing.T) Mix {
	t.Helper()
	digest := func(c string) string { return "sha256:" + strings.Repeat(c, 64) }
	m := Mix{Seed: 7, Shuffle: true, Tail: order.TailWrap, Segments: []Segment{{0, []uint64{3, 1, 6}}, {40, []uint64{2, 1, 2}}}, Sources: []Source{
		{Name: "code", Digest: digest("a"), Units: 15, Lanes: 3, RunBlocks: 1, Delay: 3, Head: 2, Affinity: order.AffinityEpoch, MaxEpochs: 2},
		{Name: "math", Digest: digest("b"), Units: 6, Lanes: 2, Delay: 1, Head: 1, Affinity: order.AffinityEpoch, MaxEpochs: 1},
		{Name: "web", Digest: digest("c"), Units: 30, Lanes: 6, RunBlocks: 1, Delay: 2, Head: 2, Affinity: order.AffinityEpoch},
	}}
	for i := range m.Sources {
		m.Sources[i].Tables = fmt.Sprintf("manifest-%016x.bin", i)
	}
	var err error
	if m.Epoch, err = m.EpochLength(EpochAll); err != nil {
		t.Fatal(err)
	}
	return m
}

// workedExample prints the example of ORDER.md, in paragraphs.
func workedExample(t *testing.T) string {
	t.Helper()
	m := workedMix(t)
	p := mustPlan(t, m)
	var b strings.Builder
	for _, s := range m.Sources {
		fmt.Fprintf(&b, "key of %-4s  %d\n", s.Name, Key(m.Seed, s.Name))
	}
	fmt.Fprintf(&b, "\npositions 0..19, weights 3, 1, 6:  %s\n\n", digits(p.first.tree, 0, 20))
	w := p.walk()
	for ok := true; ok; w.stretch, ok, _ = p.after(&w.stretch) {
		if w.to == maxPosition || w.from > 200 {
			break
		}
		fmt.Fprintf(&b, "from %3d to %3d  given before %d  shares", w.from, w.to, w.base)
		for s, weight := range m.Segments[w.segment].Weights {
			if limit, _ := m.Sources[s].limit(w.base[s]); w.base[s] >= limit {
				weight = 0
			}
			fmt.Fprintf(&b, " %d", weight)
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "\nepoch first  %d\nepoch all    %d\n\n", must(m.EpochLength(EpochFirst)), must(m.EpochLength(EpochAll)))
	orders := ordersOf(t, &m, workedTables)
	for _, at := range []uint64{0, 36} {
		fmt.Fprintf(&b, "%d -> %d ", at, at+10)
		for r := range 2 {
			c, err := p.Seek(at, orders)
			if err != nil {
				t.Fatal(err)
			}
			refs, _, err := c.NextBatch(nil, order.Split{GlobalBatch: 10, Rank: r, World: 2})
			if err != nil && !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
			b.WriteString([]string{"", " |"}[r])
			for _, x := range refs {
				fmt.Fprintf(&b, " %s/%d/%d", m.Sources[x.Source].Name, x.Epoch, x.Number)
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func digits(t tree, q uint64, n int) string {
	return strings.Trim(fmt.Sprint(new(sequencer).append(nil, &t, q, n)), "[]")
}

func must(n uint64, err error) uint64 {
	if err != nil {
		panic(err)
	}
	return n
}
