package units

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/reader/order"
)

// The example of ORDER.md is what this package computes.
func TestSpecExample(t *testing.T) {
	text, err := os.ReadFile("../../../reader/order/ORDER.md")
	if err != nil {
		t.Fatal(err)
	}
	o := mustOrder(t, order.Table{Samples: []uint32{3, 2, 4, 2, 3}, ShardFirst: []int{0, 2}}, order.Params{
		Seed: 1, Shuffle: true, Lanes: 3, RunBlocks: 1, Delay: 2, Head: 1, MixBlock: 1, Affinity: order.AffinityEpoch, Tail: order.TailWrap,
	})
	u, err := New(o, []uint32{3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7}, Params{Kind: Pack, Size: 12, Long: LongError, Window: 4, By: "tokens"})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	out.WriteString("```\n")
	for g, unit := range readOn(t, u, 0, 1) {
		fmt.Fprintf(&out, "%d ", g)
		for _, p := range unit {
			fmt.Fprintf(&out, " %d", p[0])
		}
		out.WriteString("\n")
	}
	c, err := u.Checkpoint(0, 4)
	if err != nil {
		t.Fatal(err)
	}
	c.GlobalBatch, c.Tables = 4, "manifest-0123456789abcdef.bin"
	c.Sources[0].Digest = "sha256:" + strings.Repeat("5a", 32)
	line, err := order.AppendCheckpoint(nil, c)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(&out, "```\n\nIts checkpoint after one batch of 4:\n\n```\n%s\n```\n", line)
	if !strings.Contains(string(text), out.String()) {
		t.Errorf("ORDER.md does not have\n%s", out.String())
	}
	again, err := order.DecodeCheckpoint(line)
	if err != nil {
		t.Fatal(err)
	}
	again.Sources[0].Digest = "d"
	if err := u.Fits(&again); err != nil {
		t.Error(err)
	}
}

// A checkpoint of units is refused where anything it was made with differs, and by an order of
// samples. One of version 3 without units is refused, and the other way round.
func TestCheckpointMustFit(t *testing.T) {
	w := &world{
		table: order.Table{Samples: []uint32{3, 2}, ShardFirst: []int{0}}, lengths: []uint32{1, 2, 3, 4, 5},
		order: order.Params{Shuffle: true, Lanes: 2, RunBlocks: 1, Delay: 1, Head: 1, Affinity: order.AffinityEpoch, Tail: order.TailWrap},
		units: Params{Kind: Pack, Size: 8, Long: LongError, Window: 4, By: "tokens"},
	}
	good := w.make(t)
	c, err := good.Checkpoint(1, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := good.Fits(&c); err != nil {
		t.Fatal(err)
	}
	for field, change := range map[string]func(){
		"units: kind":    func() { w.units.Kind = Bucket },
		"units: size":    func() { w.units.Size = 9 },
		"units: long":    func() { w.units.Long = LongSplit },
		"units: window":  func() { w.units.Window = 5 },
		"units: by":      func() { w.units.By = "frames" },
		"units: lengths": func() { w.lengths = []uint32{2, 1, 3, 4, 5} },
		"W":              func() { w.order.Delay = 2 },
	} {
		before := *w
		change()
		mismatch, ok := w.make(t).Fits(&c).(*order.MismatchError)
		if !ok || mismatch.Field != field {
			t.Errorf("%s: got %v", field, mismatch)
		}
		*w = before
	}
	if mismatch, ok := c.Fits(good.Order()).(*order.MismatchError); !ok || mismatch.Field != "units" {
		t.Errorf("an order of samples accepts it: %v", mismatch)
	}
	samples, err := good.Order().Checkpoint(1, 1)
	if err != nil {
		t.Fatal(err)
	}
	if mismatch, ok := good.Fits(&samples).(*order.MismatchError); !ok || mismatch.Field != "units" {
		t.Errorf("units accept one of samples: %v", mismatch)
	}
	text, err := order.AppendCheckpoint(nil, c)
	if err != nil {
		t.Fatal(err)
	}
	for _, edit := range [][2]string{
		{`"version":3`, `"version":1`}, {`"kind":"pack"`, `"kind":"box"`}, {`"size":8`, `"size":0`}, {"units/1", "units/2"},
		{`"window":4,`, ``}, {`"by":"tokens"`, `"by":null`}, {`"by":"tokens"`, `"by":"t"`}, {`"size":8`, `"size":8,"more":1`},
	} {
		edited := strings.Replace(string(text), edit[0], edit[1], 1)
		if _, err := order.DecodeCheckpoint([]byte(edited)); edited == string(text) || err == nil {
			t.Errorf("accepted %s", edited)
		}
	}
}
