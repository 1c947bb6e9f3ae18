package order

import (
	"errors"
	"io"
	"testing"
)

func TestTheEndOfTheOrder(t *testing.T) {
	p := Params{Seed: 5, Shuffle: true, Lanes: 3, RunBlocks: 1, Delay: 2, Head: 1, Affinity: AffinityEpoch, Tail: TailWrap}
	ten := Table{Samples: []uint32{4, 0, 6}, ShardFirst: []int{0}}
	for _, c := range []struct {
		name            string
		table           Table
		tail            Tail
		epoch, position uint64
		until           uint64
		global, batches int
	}{
		{"no samples", Table{}, TailWrap, 0, 0, 9, 5, 0},
		{"empty blocks only", Table{Samples: []uint32{0, 0}, ShardFirst: []int{0}}, TailShort, 0, 0, 9, 5, 0},
		{"one epoch short", ten, TailShort, 0, 0, 1, 4, 3},
		{"one epoch drop", ten, TailDrop, 0, 0, 1, 4, 2},
		{"one epoch pad", ten, TailPad, 0, 0, 1, 4, 3},
		{"one epoch wrap", ten, TailWrap, 0, 0, 1, 4, 3},
		{"many epochs a batch", ten, TailWrap, 0, 0, 1, 95, 1},
		{"last epoch there is", ten, TailShort, maxEpochs - 1, 0, maxEpochs, 4, 3},
		{"last epoch cannot wrap", ten, TailWrap, maxEpochs - 1, 0, maxEpochs, 4, 2},
		{"at the end", ten, TailShort, maxEpochs - 1, 10, maxEpochs, 4, 0},
	} {
		p.Tail = c.tail
		cur, err := mustPlan(t, c.table, p).Seek(c.epoch, c.position)
		if err != nil {
			t.Fatal(c.name, err)
		}
		cur.Until(c.until)
		var batches int
		for {
			_, _, err := cur.NextBatch(nil, Split{c.global, 0, 1})
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(c.name, err)
			}
			batches++
		}
		if batches != c.batches {
			t.Errorf("%s: %d batches, want %d", c.name, batches, c.batches)
		}
	}
}

func TestRefusals(t *testing.T) {
	good := Params{Seed: 5, Shuffle: true, Lanes: 3, RunBlocks: 1, Delay: 2, Head: 1, Affinity: AffinityEpoch, Tail: TailDrop}
	table := Table{Samples: []uint32{4, 6}, ShardFirst: []int{0, 1}}
	for name, change := range map[string]func(*Params, *Table){
		"no lanes":          func(p *Params, _ *Table) { p.Lanes = 0 },
		"too many lanes":    func(p *Params, _ *Table) { p.Lanes = 1<<24 + 1 },
		"no delay":          func(p *Params, _ *Table) { p.Delay = 0 },
		"no head":           func(p *Params, _ *Table) { p.Head = 0 },
		"head above delay":  func(p *Params, _ *Table) { p.Head = 3 },
		"delay unshuffled":  func(p *Params, _ *Table) { p.Shuffle = false },
		"affinity":          func(p *Params, _ *Table) { p.Affinity = "lane" },
		"tail":              func(p *Params, _ *Table) { p.Tail = "" },
		"shard after end":   func(_ *Params, t *Table) { t.ShardFirst = []int{0, 3} },
		"shards descending": func(_ *Params, t *Table) { t.ShardFirst = []int{0, 2, 1} },
		"shard before 0":    func(_ *Params, t *Table) { t.ShardFirst = []int{-1} },
		"no shards":         func(_ *Params, t *Table) { t.ShardFirst = nil },
		"huge run": func(p *Params, t *Table) {
			p.RunBlocks = 0
			t.Samples, t.ShardFirst = []uint32{1 << 31, 1 << 31}, []int{0}
		},
	} {
		p, tb := good, table
		change(&p, &tb)
		if _, err := New(tb, "", p); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	plan := mustPlan(t, table, good)
	for _, s := range []Split{{0, 0, 1}, {-1, 0, 1}, {4, 0, 0}, {4, -1, 2}, {4, 2, 2}, {4, 0, -3}, {11, 0, 1}, {1 << 40, 0, 1}} {
		c, err := plan.Seek(0, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := c.NextBatch(nil, s); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("split %+v: %v", s, err)
		}
		if plan.CheckSplit(s) == nil {
			t.Errorf("split %+v passes at open", s)
		}
	}
	for _, place := range [][2]uint64{{0, 11}, {maxEpochs, 1}, {maxEpochs + 1, 0}, {maxEpochs, 10}} {
		if _, err := plan.Seek(place[0], place[1]); err == nil {
			t.Errorf("place %d: accepted", place)
		}
	}
}
