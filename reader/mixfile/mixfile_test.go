package mixfile

import (
	"errors"
	"fmt"
	"math/big"
	"os"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/internal/order/mix"
	"github.com/shardtool/shardtool/reader"
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
	if len(f.Sources) != 3 || f.Length.Units != 10_000_000 || f.Length.Rule != "" || f.Count != "" || f.Temperature != nil {
		t.Errorf("%+v", f)
	}
	code, math, web := f.Sources[0], f.Sources[1], f.Sources[2]
	if code.Name != "code" || code.MaxEpochs != 4 || code.Line != 4 || web.Data != "s3://bucket/web#clean-v2" {
		t.Errorf("code is %+v, web %+v", code, web)
	}
	if math.Where != "score >= 3" || math.Keys != "keys.txt" || math.Share.Cmp(big.NewRat(1, 10)) != 0 || math.Fixed != (reader.Lanes{Lanes: 6, RunBlocks: 1, Delay: 2, Head: 2, Affinity: order.AffinityRun}) {
		t.Errorf("math is %+v", math)
	}
	want := []struct {
		at     uint64
		shares []string
	}{{50_000_000, []string{"3/10", "2/5", "3/10"}}, {60_000_000, []string{"0", "0", "1"}}}
	if len(f.Segments) != len(want) {
		t.Fatalf("%d segments", len(f.Segments))
	}
	for i, g := range f.Segments {
		for k, share := range g.Shares {
			if g.At != want[i].at || share.RatString() != want[i].shares[k] {
				t.Errorf("segment %d is %+v, want %+v", i, g, want[i])
			}
		}
	}
}

// TestParseJSON: JSON is YAML.
func TestParseJSON(t *testing.T) {
	f, err := Parse("mix.json", []byte(`{"sources": {"b": {"data": "x"}, "a": {"data": "y"}}, "epoch": "first"}`))
	if err != nil || f.Sources[0].Name != "a" || f.Sources[0].Data != "y" || f.Length.Rule != mix.EpochFirst {
		t.Fatalf("%+v, %v", f, err)
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
		{whole, "[]", "mix.yaml:1: a mix begins with"},
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
		var in *reader.SpecError
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
