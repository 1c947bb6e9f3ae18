package mixfile

import (
	"errors"
	"fmt"
	"math/big"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/internal/mix"
	"github.com/shardtool/shardtool/reader/order"
)

const whole = `# what we train on
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

func TestParse(t *testing.T) {
	f, err := Parse("mix.yaml", []byte(whole))
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Sources) != 3 || f.Units != 10_000_000 || f.Rule != "" || f.Count != "" || f.Temperature != nil {
		t.Errorf("%+v", f)
	}
	code, math, web := f.Sources[0], f.Sources[1], f.Sources[2]
	if code.Name != "code" || code.MaxEpochs != 4 || code.Line != 4 || web.Data != "s3://bucket/web#clean-v2" {
		t.Errorf("code is %+v, web %+v", code, web)
	}
	if math.Where != "score >= 3" || math.Keys != "keys.txt" || math.Share.Cmp(big.NewRat(1, 10)) != 0 || math.Order != (Order{6, 1, 2, 2, order.AffinityRun, false}) {
		t.Errorf("math is %+v", math)
	}
	segments, err := f.Weights(make([]Size, 3))
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

// TestParseJSON: JSON is YAML.
func TestParseJSON(t *testing.T) {
	f, err := Parse("mix.json", []byte(`{"sources": {"b": {"data": "x"}, "a": {"data": "y"}}, "epoch": "first"}`))
	if err != nil || f.Sources[0].Name != "a" || f.Sources[0].Data != "y" || f.Rule != mix.EpochFirst {
		t.Fatalf("%+v, %v", f, err)
	}
}

// TestWeights: where no shares are given, an epoch has each sample once.
func TestWeights(t *testing.T) {
	sizes := []Size{{30, 300}, {70, 7000}}
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
		f, err := Parse("mix.yaml", []byte("sources: {a: {data: x}, b: {data: y}}\n"+c.text))
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
		if n, err := f.Epoch(m); err != nil || n != c.epoch {
			t.Errorf("%q: an epoch of %d, %v, want %d", c.text, n, err, c.epoch)
		}
	}
	f, err := Parse("mix.yaml", []byte("sources: {a: {data: x, weight: 1}, b: {data: y}}\ncount: tokens\nsegments:\n- {at: 5, weights: {b: 1}}"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Weights([]Size{{30, 300}, {70, 0}}); err == nil || !strings.HasPrefix(err.Error(), `mix.yaml:4: segments[0].weights: source "b": `) {
		t.Errorf("a source without tokens: %v", err)
	}
}

// TestRefusals: file, line and member are named.
func TestRefusals(t *testing.T) {
	for _, c := range []struct{ old, replacement, want string }{
		{"epoch:", "epochs:", "mix.yaml:11: epochs: no such member"},
		{"max_epochs:", "epochs:", "mix.yaml:4: sources.code.epochs: no such member"},
		{"lanes:", "V:", "mix.yaml:10: sources.math.order.V: no such member"},
		{"  - {at: 50", "  - {to: 50", "mix.yaml:13: segments[0].to: no such member"},
		{"  code: {", "  web: {", "mix.yaml:4: sources.web: given twice"},
		{"epoch: 10_000_000", "sources: {}", "mix.yaml:11: sources: given twice"},
		{"{web: 1}", "{web: 1, web: 2}", "mix.yaml:14: segments[1].weights.web: given twice"},
		{"{web: 1}", "{wbe: 1}", "mix.yaml:14: segments[1].weights.wbe: no such source"},
		{"{web: 1}", "{web: 0}", "mix.yaml:14: segments[1].weights: all weights are 0"},
		{"{web: 1}", "{web: -1}", "mix.yaml:14: segments[1].weights.web: \"-1\": give a number"},
		{"{web: 1}", "{web: 4611686018427387904}", "mix.yaml:14: segments[1].weights: the sum of the weights is 2^62 or more"},
		{"{web: 1}", "1", "mix.yaml:14: segments[1].weights: give a mapping"},
		{"60_000_000", "50_000_000", "mix.yaml:14: segments[1].at: 50000000 is not above 50000000"},
		{"50_000_000", "0", "mix.yaml:13: segments[0].at: \"0\""},
		{"50_000_000", "9223372036854775808", "mix.yaml:13: segments[0].at: \"9223372036854775808\""},
		{"weight: 0.6", "weight: 4611686018427387904", "mix.yaml:2: sources: the sum of the weights is 2^62 or more"},
		{"  code:", "  " + strings.Repeat("c", 33) + ":", "mix.yaml:4: sources." + strings.Repeat("c", 33) + ": give a name of 1 to 32"},
		{"  code:", "  \"\":", "mix.yaml:4: sources.: give a name"},
		{"  code:", "  [code]:", "mix.yaml:4: sources: the name of a member is not plain text"},
		{"weight: 0.6", "weight: -0.6", "mix.yaml:3: sources.web.weight: \"-0.6\": give a number"},
		{"weight: 0.6", "weight: .inf", "mix.yaml:3: sources.web.weight"},
		{"weight: 0.6", "weight: 1e300", "mix.yaml:3: sources.web.weight"},
		{"weight: 0.6", "weight: [1]", "mix.yaml:3: sources.web.weight"},
		{"weight: 1/10", "weight: 1/0", "mix.yaml:9: sources.math.weight"},
		{"max_epochs: 4", "max_epochs: 0", "mix.yaml:4: sources.code.max_epochs: \"0\""},
		{"max_epochs: 4", "max_epochs: 4294967297", "mix.yaml:4: sources.code.max_epochs"},
		{"max_epochs: 4", "max_epochs: 1.5", "mix.yaml:4: sources.code.max_epochs"},
		{"affinity: run", "affinity: lane", "mix.yaml:10: sources.math.order.affinity: \"lane\""},
		{"whole_shards: false", "whole_shards: no", "mix.yaml:10: sources.math.order.whole_shards"},
		{"data: /data/math", "weight: 1", "sources.math"},
		{"    data: /data/math\n", "", "sources.math.data: give the path"},
		{"data: /data/math", "data: 5", "mix.yaml:6: sources.math.data: \"5\": give text"},
		{"  code:", "  Code:", "mix.yaml:4: sources.Code: give a name"},
		{"epoch: 10_000_000", "epoch: 0", "mix.yaml:11: epoch: \"0\""},
		{"epoch: 10_000_000", "epoch: last", "mix.yaml:11: epoch: \"last\""},
		{"epoch: 10_000_000", "temperature: 3/10", "mix.yaml:4: sources.code.weight: there is a temperature"},
		{"epoch: 10_000_000", "temperature: 3/17", "mix.yaml:11: temperature: \"3/17\""},
		{"epoch: 10_000_000", "temperature: 3/2", "mix.yaml:11: temperature"},
		{"epoch: 10_000_000", "count: \"\"", "mix.yaml:11: count: \"\": give text"},
		{"epoch: 10_000_000", "epoch: &n 5", "mix.yaml:11: epoch: anchors and aliases"},
		{"weights: {web: 1}", "weights: *w", "mix.yaml"},
		{whole, "", "mix.yaml: the file is empty"},
		{whole, "[]", "mix.yaml:1: give a mapping"},
		{whole, "{}", "mix.yaml:1: sources: give at least one"},
		{whole, "sources: {}", "mix.yaml:1: sources: give at least one"},
		{whole, "sources: {a: }", "mix.yaml:1: sources.a: give a mapping"},
		{whole, "sources: {a: {data: x, weight: 0}}", "mix.yaml:1: sources: all weights are 0"},
		{whole, "sources: {a: {data: x}}\nsegments: 5", "mix.yaml:2: segments: give a list"},
		{whole, "sources: {a: {data: x}}\n---\n{}", "mix.yaml: more than one document"},
		{whole, "sources: {a: {", "mix.yaml: cut off or not YAML"},
		{whole, strings.Repeat("[", 100_000), "mix.yaml: cut off or not YAML"},
	} {
		if !strings.Contains(whole, c.old) {
			t.Fatalf("no %s", c.old)
		}
		_, err := Parse("mix.yaml", []byte(strings.Replace(whole, c.old, c.replacement, 1)))
		var in *Error
		if !errors.As(err, &in) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.60q for %.60q: %v, want %s", c.replacement, c.old, err, c.want)
		}
	}
	many := "sources:\n" + strings.Repeat(" ", 1)
	for i := range mix.MaxSources + 1 {
		many += " s" + strings.Repeat("0", i%28) + string(rune('a'+i/28%26)) + string(rune('a'+i/728)) + ": {data: x}\n "
	}
	if _, err := Parse("mix.yaml", []byte(many)); err == nil || !strings.Contains(err.Error(), "at most 1000") {
		t.Errorf("too many sources: %v", err)
	}
}

// TestDocumentation: the file of docs/mixing.md is one, and every member that it lists is read.
func TestDocumentation(t *testing.T) {
	page, err := os.ReadFile("../../docs/mixing.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```yaml\n")
	text, _, found := strings.Cut(rest, "```")
	f, err := Parse("mix.yaml", []byte(text))
	if !found || err != nil || len(f.Sources) != 3 || len(f.Segments) != 1 {
		t.Errorf("the example is %+v, %v", f, err)
	}
	for line := range strings.Lines(string(page)) {
		member, listed := strings.CutPrefix(line, "| `")
		if !listed {
			if member, listed = strings.CutPrefix(line, "| – `"); listed {
				member = "sources.x." + member
			}
		}
		if member, _, _ = strings.Cut(member, "`"); !listed {
			continue
		}
		source, name, of := "a: {data: x}", member, ""
		if inner, ok := strings.CutPrefix(member, "sources.x."); ok {
			source = "x: {" + inner + ": {}}"
		} else if member != "sources" {
			of = "\n" + name + ": {}"
		}
		if _, err := Parse("mix.yaml", []byte("sources: {"+source+"}"+of)); err != nil && strings.Contains(err.Error(), "no such member") {
			t.Errorf("%s: %v", member, err)
		}
	}
}

// TestManyWeights: what a short file makes room for is bounded.
func TestManyWeights(t *testing.T) {
	text := "sources:\n"
	for i := range 900 {
		text += fmt.Sprintf(" s%d: {data: x}\n", i)
	}
	text += "segments:\n"
	for i := range 2000 {
		text += fmt.Sprintf("- {at: %d, weights: {s1: 1}}\n", i+1)
	}
	if _, err := Parse("mix.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), "2000 of them with 900 sources") {
		t.Errorf("too many weights: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(whole))
	f.Add([]byte(`{"sources": {"a": {"data": "y"}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		file, err := Parse("mix.yaml", text)
		if err != nil {
			return
		}
		sizes := make([]Size, len(file.Sources))
		for i := range sizes {
			sizes[i] = Size{10, 100}
		}
		segments, err := file.Weights(sizes)
		if err != nil {
			return
		}
		m := mix.Mix{Tail: order.TailShort, Segments: segments}
		for _, s := range file.Sources {
			m.Sources = append(m.Sources, mix.Source{Name: s.Name, Units: 10, MaxEpochs: s.MaxEpochs, Lanes: 1, Delay: 1, Head: 1, Affinity: order.AffinityEpoch})
		}
		if m.Epoch, err = file.Epoch(m); err != nil {
			return
		}
		if _, err := mix.New(m); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
	})
}

// TestRefusalsOverData: what only the data sets show is refused with file, line and member, too.
func TestRefusalsOverData(t *testing.T) {
	empty := Data{Table: order.Table{ShardFirst: []int{0}, Samples: nil}, Digest: "0"}
	full := dataOf("1", 5)
	many := dataOf("2", 1)
	const two = "sources:\n  a: {data: x, weight: 1}\n  b: {data: y, weight: 1"
	for _, c := range []struct {
		text   string
		second Data
		want   string
	}{
		{two + "}\n", empty, "mix.yaml:3: sources.b: no samples, but weight 2147483648 in the segment at 0"},
		{two + "}\nsegments:\n- {at: 10, weights: {b: 1}}\n", empty, "mix.yaml:3: sources.b: no samples"},
		{"sources:\n  a: {data: x}\n  b: {data: y}\nsegments:\n- {at: 10, weights: {b: 1}}\n", empty, "mix.yaml:3: sources.b: no samples, but weight 4294967296 in the segment at 10"},
		{"sources:\n  a: {data: x, weight: 1}\n  b: {data: y, weight: 1/10000000000}\n", many, "mix.yaml:3: sources.b: its share is below 2^-32"},
		{"sources:\n  a: {data: x, weight: 1}\n  b: {data: y, weight: 0}\nepoch: 5\nsegments:\n- {at: 9, weights: {a: 1, b: 1/10000000000}}\n", many, "mix.yaml:6: segments[0].weights: "},
		{two + "}\nepoch: all\nsegments:\n- {at: 3, weights: {a: 1}}\n", many, `mix.yaml:4: epoch: mix: epoch all never ends: source "b" does not give all it has`},
		{two + "}\nsegments:\n- {at: 3, weights: {a: 1}}\n", many, `mix.yaml: epoch: mix: epoch all never ends: source "b"`},
		{two + "}\ncount: tokens\n", many, "mix.yaml:2: sources.a: mix: weight 1 by tokens, but the source has no tokens"},
		{two + ", order: {delay: 2, head: 3}}\n", many, "mix.yaml:3: sources.b: "},
		{two + ", order: {run_blocks: 2, whole_shards: true}}\n", many, "mix.yaml:3: sources.b: "},
	} {
		f := parse(t, c.text)
		_, err := f.Mix([]Data{full, c.second}, order.Choice{Shuffle: true}, nil)
		var in *Error
		if !errors.As(err, &in) || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%q: %v, want %s", c.text, err, c.want)
		}
	}
	f := parse(t, two+", order: {delay: 2}}\n")
	if _, err := f.Mix([]Data{full, many}, order.Choice{}, nil); err != nil && !strings.HasPrefix(err.Error(), "mix.yaml:3: sources.b") {
		t.Errorf("a delay without shuffling: %v", err)
	}
}

// TestSameData: a data set may be two sources; a name may not be.
func TestSameData(t *testing.T) {
	f := parse(t, "sources: {a: {data: x, weight: 1}, b: {data: x, weight: 1}}\n")
	m, err := f.Mix([]Data{dataOf("1", 5), dataOf("1", 5)}, order.Choice{Seed: 7, Shuffle: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if m.Params(0).Seed == m.Params(1).Seed {
		t.Error("both have one order")
	}
}
