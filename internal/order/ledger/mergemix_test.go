package ledger

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/internal/order/mix"
	"github.com/shardtool/shardtool/reader/order"
)

// TestMergeMix: the state of a job over a mix is the same whatever the order and number of its
// ranks' states. Shards of two sources may have the same name.
func TestMergeMix(t *testing.T) {
	source := mix.Source{Name: "a", Digest: "sha256:5a", Units: 1000, Lanes: 1, RunBlocks: 1, Delay: 1, Head: 1, Affinity: order.AffinityEpoch}
	other := source
	other.Name = "b"
	at := mix.Checkpoint{
		Mix:      mix.Mix{Seed: 7, Tail: order.TailWrap, Epoch: 2000, Sources: []mix.Source{source, other}, Segments: []mix.Segment{{Weights: []uint64{1, 1}}}},
		Position: 640, Steps: mix.Steps{GlobalBatch: 64},
	}
	by := func(blocks ...Block) Saved[mix.Checkpoint] {
		var l Ledger
		for _, b := range blocks {
			l.enter(b)
		}
		m := l.Mark()
		c := at
		c.SkipHash, c.Skipped = m.Hash, m.Samples
		return Saved[mix.Checkpoint]{c, blocks}
	}
	x := Block{Source: "b", Shard: "s", Block: 3, First: 30, Samples: 12, Reason: "checksum mismatch"}
	y := Block{Source: "a", Shard: "s", Block: 3, First: 90, Samples: 10, Reason: "zstd"}
	ranks := []Saved[mix.Checkpoint]{by(x), by(), by(y)}
	want := by(y, x) // by source
	for _, turn := range [][]int{{0, 1, 2}, {2, 1, 0}, {2, 0, 2, 1, 0, 0}} {
		var in []Saved[mix.Checkpoint]
		for _, i := range turn {
			in = append(in, ranks[i])
		}
		if got, err := MergeMix(in...); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%v: %+v, %v, want %+v", turn, got, err, want)
		}
	}
	text, err := mix.AppendCheckpoint(nil, want.Checkpoint)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := mix.DecodeCheckpoint(text); err != nil {
		t.Error(err)
	}
	changed := func(f func(s *Saved[mix.Checkpoint])) Saved[mix.Checkpoint] {
		s := by(x)
		s.Checkpoint.Sources = []mix.Source{source, other}
		f(&s)
		return s
	}
	for want, s := range map[string]Saved[mix.Checkpoint]{
		"position is 640 in one and 704": changed(func(s *Saved[mix.Checkpoint]) { s.Checkpoint.Position = 704 }),
		"seed is 7 in one and 8":         changed(func(s *Saved[mix.Checkpoint]) { s.Checkpoint.Seed = 8 }),
		"steps is {0 0 64}":              changed(func(s *Saved[mix.Checkpoint]) { s.Checkpoint.Steps.GlobalBatch = 32 }),
		"left_out is [] in one":          changed(func(s *Saved[mix.Checkpoint]) { s.Checkpoint.LeftOut = []mix.Range{{From: 1, To: 2}} }),
		"sources is":                     changed(func(s *Saved[mix.Checkpoint]) { s.Checkpoint.Sources[1].Digest = "sha256:5b" }),
		"segments is":                    changed(func(s *Saved[mix.Checkpoint]) { s.Checkpoint.Segments = []mix.Segment{{Weights: []uint64{1, 2}}} }),
		"disagree on block 3":            changed(func(s *Saved[mix.Checkpoint]) { s.Skipped = []Block{{Source: "b", Shard: "s", Block: 3, Samples: 22}} }),
		"counts 12 skipped samples, its": changed(func(s *Saved[mix.Checkpoint]) { s.Skipped = nil }),
	} {
		if _, err := MergeMix(ranks[0], s); !errors.Is(err, order.ErrMismatch) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if _, err := MergeMix(); !errors.Is(err, order.ErrMismatch) {
		t.Errorf("nothing to merge: %v", err)
	}
}
