package ledger

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/reader/order"
)

func savedBy(c order.Checkpoint, blocks ...Block) Saved[order.Checkpoint] {
	var l Ledger
	for _, b := range blocks {
		l.enter(b)
	}
	m := l.Mark()
	c.SkipHash, c.Skipped = m.Hash, m.Samples
	return Saved[order.Checkpoint]{Checkpoint: c, Skipped: blocks}
}

// TestMerge: the state of a job is the same whatever the order and number of its ranks' states.
func TestMerge(t *testing.T) {
	at := order.Checkpoint{
		Params: order.Params{Seed: 7, Shuffle: true, Lanes: 4, Delay: 8, Head: 4, Affinity: order.AffinityEpoch, Tail: order.TailWrap},
		Epoch:  2, Position: 640, GlobalBatch: 64, Tables: "manifest-0123456789abcdef.bin",
		Sources: []order.SourceMark{{Digest: "sha256:5a", Samples: 1000, Weight: 1, Key: 7}},
	}
	x := Block{Shard: "b", Block: 10, First: 100, Samples: 12, Reason: "checksum mismatch"}
	y := Block{Shard: "b", Block: 9, First: 90, Samples: 10, Reason: "checksum mismatch"}
	z := Block{Shard: "a", Block: 3, First: 30, Samples: 5, Reason: "zstd"}
	other := x
	other.Reason = "a reason that sorts first"
	ranks := []Saved[order.Checkpoint]{savedBy(at, x, y), savedBy(at), savedBy(at, z, other)}

	want := savedBy(at, z, y, other) // by shard and block
	for _, turn := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 0, 2}, {2, 0, 2, 1, 0, 0}} {
		var in []Saved[order.Checkpoint]
		for _, i := range turn {
			in = append(in, ranks[i])
		}
		got, err := Merge(in...)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%v: %+v, %v, want %+v", turn, got, err, want)
		}
	}
	pair, err := Merge(ranks[0], ranks[1])
	if err != nil {
		t.Fatal(err)
	}
	if got, err := Merge(pair, ranks[2], pair); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("in two steps: %+v, %v, want %+v", got, err, want)
	}
	if got, err := Merge(savedBy(at)); err != nil || got.Checkpoint.SkipHash != "" || got.Skipped != nil {
		t.Errorf("nothing skipped: %+v, %v", got, err)
	}
	text, err := order.AppendCheckpoint(nil, want.Checkpoint)
	if err != nil || len(text) > order.MaxCheckpoint {
		t.Errorf("a checkpoint of %d bytes, %v", len(text), err)
	}

	ahead := ranks[0] // as it is after a kill between the two files
	ahead.Skipped = append(ahead.Skipped[:2:2], z)
	if got, err := Merge(ahead); err != nil || got.Checkpoint.Skipped != 27 {
		t.Errorf("a ledger ahead of its checkpoint: %+v, %v", got, err)
	}

	changed := func(f func(s *Saved[order.Checkpoint])) Saved[order.Checkpoint] {
		s := savedBy(at, x, y)
		s.Checkpoint.Sources = []order.SourceMark{at.Sources[0]}
		f(&s)
		return s
	}
	for want, s := range map[string]Saved[order.Checkpoint]{
		"position is 640 in one and 704":      changed(func(s *Saved[order.Checkpoint]) { s.Checkpoint.Position = 704 }),
		"epoch is 2 in one and 3":             changed(func(s *Saved[order.Checkpoint]) { s.Checkpoint.Epoch = 3 }),
		"seed is 7 in one and 8 in the other": changed(func(s *Saved[order.Checkpoint]) { s.Checkpoint.Seed = 8 }),
		"tail is wrap in one and short":       changed(func(s *Saved[order.Checkpoint]) { s.Checkpoint.Tail = order.TailShort }),
		"global_batch is 64":                  changed(func(s *Saved[order.Checkpoint]) { s.Checkpoint.GlobalBatch = 32 }),
		"digest is sha256:5a":                 changed(func(s *Saved[order.Checkpoint]) { s.Checkpoint.Sources[0].Digest = "sha256:5b" }),
		"tables is manifest-":                 changed(func(s *Saved[order.Checkpoint]) { s.Checkpoint.Tables = "" }),
		"exactly one source":                  changed(func(s *Saved[order.Checkpoint]) { s.Checkpoint.Sources = nil }),
		"disagree on block 10": changed(func(s *Saved[order.Checkpoint]) {
			s.Skipped = []Block{{Shard: "b", Block: 10, First: 100, Samples: 22}}
		}),
		"more samples than the data set": changed(func(s *Saved[order.Checkpoint]) { s.Skipped = append(s.Skipped, Block{Shard: "c", Samples: 1<<64 - 1}) }),
		"counts 22 skipped samples, its": changed(func(s *Saved[order.Checkpoint]) { s.Skipped = nil }),
	} {
		for _, in := range [][]Saved[order.Checkpoint]{{ranks[0], s}, {s, ranks[0]}} {
			if _, err := Merge(in...); !errors.Is(err, order.ErrMismatch) {
				t.Errorf("%s: %v", want, err)
			}
		}
		if _, err := Merge(ranks[0], s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if _, err := Merge(); !errors.Is(err, order.ErrMismatch) {
		t.Errorf("nothing to merge: %v", err)
	}
}
