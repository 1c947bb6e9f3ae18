package reader_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/internal/order/mix"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/mixfile"
	"github.com/shardtool/shardtool/reader/order"
)

const mixText = `# what we train on
sources:
  web:  {data: "s3://bucket/web#clean-v2", weight: 0.6}
  code: {data: "s3://bucket/code", weight: 0.3, max_epochs: 4}
  math:
    data: /data/math
    where: "score >= 3"
    keys: keys.txt
    weight: 1/10
    order: {lanes: 6, run_blocks: 1, delay: 2, head: 2, affinity: run, whole_shards: false}
epoch: 10_000_000
segments:
  - {at: 50_000_000, weights: {web: 0.3, code: 0.3, math: 0.4}}
  - {at: 60_000_000, weights: {web: 1}}
`

// dataOf is a data set of blocks of 10 samples and 1 MB.
func dataOf(digest string, blocks int) reader.Data {
	t := order.Table{ShardFirst: []int{0}, Decoded: uint64(blocks) * 1e6}
	for range blocks {
		t.Samples = append(t.Samples, 10)
	}
	return reader.Data{Table: t, Digest: digest, Tables: "manifest-" + digest}
}

func parse(t *testing.T, text string) *reader.Spec {
	t.Helper()
	f, err := mixfile.Parse("mix.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestMix: the sources divide the memory by their shares, and have at least five runs.
func TestMix(t *testing.T) {
	f := parse(t, "sources:\n  a: {data: x, weight: 0.7}\n  b: {data: y, weight: 0.3, order: {affinity: run}}\n  c: {data: z, weight: 0, order: {lanes: 2, run_blocks: 1}}\n")
	data := []reader.Data{dataOf("1", 500), dataOf("2", 500), dataOf("3", 500)}
	c := order.Choice{Seed: 7, Shuffle: true, Memory: 110e6}
	m, err := f.MixOf(data, c, nil)
	if err != nil {
		t.Fatal(err)
	}
	if m.Tail != order.TailWrap || m.Epoch < 1 {
		t.Errorf("tail %s, an epoch of %d", m.Tail, m.Epoch)
	}
	// 100 runs fit beside the 10 of c: 70 for a and 30 for b.
	for i, want := range []order.Params{
		{Lanes: 4, RunBlocks: 1, Delay: 13, Affinity: order.AffinityEpoch}, {Lanes: 1, RunBlocks: 1, Delay: 26, Affinity: order.AffinityRun}, {Lanes: 2, RunBlocks: 1, Delay: 1, Affinity: order.AffinityEpoch},
	} {
		if s := m.Sources[i]; s.Lanes != want.Lanes || s.RunBlocks != want.RunBlocks || s.Delay != want.Delay || s.Affinity != want.Affinity || s.Units != 5000 {
			t.Errorf("source %d is %+v, want %+v", i, s, want)
		}
	}
	if _, err := f.MixOf(data, order.Choice{Shuffle: true, Memory: 19e6}, nil); err == nil || !strings.Contains(err.Error(), "at least 20000000 bytes") {
		t.Errorf("a memory that is too small: %v", err)
	}
	if m, err = f.MixOf(data, order.Choice{Epochs: 1}, nil); err != nil || m.Tail != order.TailShort || m.Sources[0].Delay != 1 {
		t.Errorf("unshuffled: %+v, %v", m, err)
	}
}

// TestMixResumed: a source keeps the parameters of the checkpoint when another is added, unless the
// file fixes them.
func TestMixResumed(t *testing.T) {
	f := parse(t, "sources: {a: {data: x, weight: 1}}\nepoch: 100")
	c := order.Choice{Seed: 7, Shuffle: true, Memory: 100e6}
	m, err := f.MixOf([]reader.Data{dataOf("1", 500)}, c, nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := mix.New(m)
	if err != nil {
		t.Fatal(err)
	}
	cp, err := p.Checkpoint(30)
	if err != nil {
		t.Fatal(err)
	}
	again, err := f.MixOf([]reader.Data{dataOf("1", 500)}, c, &cp)
	if err != nil || cp.Fits(again) != nil {
		t.Errorf("the same file: %v, %v", err, cp.Fits(again))
	}
	two := parse(t, "sources: {a: {data: x, weight: 1}, b: {data: y, weight: 1}}")
	more, err := two.MixOf([]reader.Data{dataOf("1", 500), dataOf("2", 500)}, c, &cp)
	if err != nil {
		t.Fatal(err)
	}
	if more.Sources[0].Lanes != m.Sources[0].Lanes || more.Sources[1].Lanes >= m.Sources[0].Lanes {
		t.Errorf("a source beside %+v has %+v", more.Sources[1], more.Sources[0])
	}
	if changed, err := cp.Change(more); err != nil || changed.Epoch != 100 || changed.From != 30 {
		t.Errorf("%+v, %v", changed, err)
	}
	fixed := parse(t, "sources: {a: {data: x, weight: 1, order: {lanes: 5}}}")
	other, err := fixed.MixOf([]reader.Data{dataOf("1", 500)}, c, &cp)
	if err != nil {
		t.Fatal(err)
	}
	if err := cp.Fits(other); !errors.Is(err, order.ErrMismatch) || !strings.Contains(err.Error(), `source "a": V is`) {
		t.Errorf("other lanes: %v", err)
	}
}

// TestSegments: the weights of segments follow from their shares alone.
func TestSegments(t *testing.T) {
	f := parse(t, mixText)
	segments, err := f.Weights(make([]reader.Size, 3))
	if err != nil {
		t.Fatal(err)
	}
	want := []mix.Segment{
		{At: 0, Weights: []uint64{1288490189, 429496730, 2576980377}},
		{At: 50_000_000, Weights: []uint64{1288490189, 1717986918, 1288490189}},
		{At: 60_000_000, Weights: []uint64{0, 0, 1 << 32}},
	}
	for i, g := range segments {
		if g.At != want[i].At || !slices.Equal(g.Weights, want[i].Weights) {
			t.Errorf("segment %d is %+v, want %+v", i, g, want[i])
		}
	}
}

// TestWeights: where no shares are given, an epoch has each sample once.
func TestWeights(t *testing.T) {
	sizes := []reader.Size{{30, 300}, {70, 7000}}
	for _, c := range []struct {
		text  string
		want  []uint64
		epoch uint64
	}{
		{"", []uint64{30, 70}, 100},
		{"temperature: 0\n", []uint64{1 << 31, 1 << 31}, 140},
		{"temperature: 1\n", []uint64{1288490189, 3006477107}, 100},
		{"temperature: 0\ncount: tokens\n", []uint64{3904515724, 390451572}, 765},
		{"count: samples\nepoch: 7\n", []uint64{30, 70}, 7},
	} {
		f, err := mixfile.Parse("mix.yaml", []byte("sources: {a: {data: x}, b: {data: y}}\n"+c.text))
		if err != nil {
			t.Fatal(err)
		}
		segments, err := f.Weights(sizes)
		if err != nil || !slices.Equal(segments[0].Weights, c.want) {
			t.Errorf("%q: %d, %v, want %d", c.text, segments[0].Weights, err, c.want)
		}
		m := mix.Mix{Tail: order.TailShort, Segments: segments, Sources: []mix.Source{
			{Name: "a", Units: 30, Lanes: 1, Delay: 1, Head: 1, Affinity: order.AffinityEpoch},
			{Name: "b", Units: 70, Lanes: 1, Delay: 1, Head: 1, Affinity: order.AffinityEpoch},
		}}
		if n, err := f.EpochLength(m); err != nil || n != c.epoch {
			t.Errorf("%q: an epoch of %d, %v, want %d", c.text, n, err, c.epoch)
		}
	}
	f, err := mixfile.Parse("mix.yaml", []byte("sources: {a: {data: x, weight: 1}, b: {data: y}}\ncount: tokens\nsegments:\n- {at: 5, weights: {b: 1}}"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Weights([]reader.Size{{30, 300}, {70, 0}}); err == nil || !strings.HasPrefix(err.Error(), `mix.yaml:4: segments[0].weights: source "b": `) {
		t.Errorf("a source without tokens: %v", err)
	}
}

func FuzzMixFile(f *testing.F) {
	f.Add([]byte(mixText))
	f.Add([]byte(`{"sources": {"a": {"data": "y"}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		file, err := mixfile.Parse("mix.yaml", text)
		if err != nil {
			return
		}
		sizes := make([]reader.Size, len(file.Sources))
		for i := range sizes {
			sizes[i] = reader.Size{10, 100}
		}
		segments, err := file.Weights(sizes)
		if err != nil {
			return
		}
		m := mix.Mix{Tail: order.TailShort, Segments: segments}
		for _, s := range file.Sources {
			m.Sources = append(m.Sources, mix.Source{Name: s.Name, Units: 10, MaxEpochs: s.MaxEpochs, Lanes: 1, Delay: 1, Head: 1, Affinity: order.AffinityEpoch})
		}
		if m.Epoch, err = file.EpochLength(m); err != nil {
			return
		}
		if _, err := mix.New(m); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
	})
}

// TestRefusalsOverData: what only the data sets show is refused with file, line and member, too.
func TestRefusalsOverData(t *testing.T) {
	empty := reader.Data{Table: order.Table{ShardFirst: []int{0}, Samples: nil}, Digest: "0"}
	full := dataOf("1", 5)
	many := dataOf("2", 1)
	const two = "sources:\n  a: {data: x, weight: 1}\n  b: {data: y, weight: 1"
	for _, c := range []struct {
		text   string
		second reader.Data
		want   string
	}{
		{two + "}\n", empty, "mix.yaml:3: sources.b: no samples, but weight 2147483648 in the segment at 0"},
		{two + "}\nsegments:\n- {at: 10, weights: {b: 1}}\n", empty, "mix.yaml:3: sources.b: no samples"},
		{"sources:\n  a: {data: x}\n  b: {data: y}\nsegments:\n- {at: 10, weights: {b: 1}}\n", empty, "mix.yaml:3: sources.b: no samples, but weight 4294967296 in the segment at 10"},
		{"sources:\n  a: {data: x, weight: 1}\n  b: {data: y, weight: 1/10000000000}\n", many, "mix.yaml:3: sources.b: its share is below 2^-32"},
		{"sources:\n  a: {data: x, weight: 1}\n  b: {data: y, weight: 0}\nepoch: 5\nsegments:\n- {at: 9, weights: {a: 1, b: 1/10000000000}}\n", many, "mix.yaml:6: segments[0].weights: "},
		{two + "}\nepoch: all\nsegments:\n- {at: 3, weights: {a: 1}}\n", many, `mix.yaml:4: epoch: epoch all never ends: source "b" does not give all it has`},
		{two + "}\nsegments:\n- {at: 3, weights: {a: 1}}\n", many, `mix.yaml: epoch: epoch all never ends: source "b"`},
		{two + "}\ncount: tokens\n", many, "mix.yaml:2: sources.a: weight 1 by tokens, but the source has no tokens"},
		{two + ", order: {delay: 2, head: 3}}\n", many, "mix.yaml:3: sources.b: "},
		{two + ", order: {run_blocks: 2, whole_shards: true}}\n", many, "mix.yaml:3: sources.b: "},
	} {
		f := parse(t, c.text)
		_, err := f.MixOf([]reader.Data{full, c.second}, order.Choice{Shuffle: true}, nil)
		var in *reader.SpecError
		if !errors.As(err, &in) || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%q: %v, want %s", c.text, err, c.want)
		}
	}
	f := parse(t, two+", order: {delay: 2}}\n")
	if _, err := f.MixOf([]reader.Data{full, many}, order.Choice{}, nil); err != nil && !strings.HasPrefix(err.Error(), "mix.yaml:3: sources.b") {
		t.Errorf("a delay without shuffling: %v", err)
	}
}

// TestSameData: a data set may be two sources; a name may not be.
func TestSameData(t *testing.T) {
	f := parse(t, "sources: {a: {data: x, weight: 1}, b: {data: x, weight: 1}}\n")
	m, err := f.MixOf([]reader.Data{dataOf("1", 5), dataOf("1", 5)}, order.Choice{Seed: 7, Shuffle: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if m.Params(0).Seed == m.Params(1).Seed {
		t.Error("both have one order")
	}
}
