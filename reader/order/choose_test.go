package order

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// tableOfSize is blocks of 1,000,000 decoded bytes in shards of 250.
func tableOfSize(blocks int) Table {
	t := Table{Samples: make([]uint32, blocks), Decoded: uint64(blocks) * 1e6}
	for b := range t.Samples {
		t.Samples[b] = 3
		if b%250 == 0 {
			t.ShardFirst = append(t.ShardFirst, b)
		}
	}
	return t
}

func TestChoose(t *testing.T) {
	thousand := tableOfSize(1000)
	odd := thousand
	odd.Decoded++ // B = 1,000,001
	for _, c := range []struct {
		name       string
		table      Table
		choice     Choice
		v, e, w, h uint32
	}{
		// ⌊2^31/(96·10^6)⌋ = 22
		{"default memory", thousand, Choice{}, 96, 1, 18, 4},
		{"exactly ten runs a lane", thousand, Choice{Memory: 960e6}, 96, 1, 6, 4},
		{"a byte more of blocks", odd, Choice{Memory: 960e6}, 96, 1, 5, 4},
		{"five runs a lane", thousand, Choice{Memory: 480e6}, 96, 1, 1, 1},
		{"next smaller divisor", thousand, Choice{Memory: 480e6 - 1}, 48, 1, 5, 4},
		{"a third of the lanes", thousand, Choice{Memory: 239e6}, 32, 1, 3, 3},
		{"the least", thousand, Choice{Memory: 5e6}, 1, 1, 1, 1},
		{"other lanes", thousand, Choice{Lanes: 10, Memory: 50e6}, 10, 1, 1, 1},
		{"runs of 4", thousand, Choice{RunBlocks: 4}, 96, 4, 1, 1},
		{"runs of 8", thousand, Choice{RunBlocks: 8}, 48, 8, 1, 1},
		// Runs of 250 MB: 8 of them.
		{"whole shards", thousand, Choice{WholeShards: true}, 1, 0, 4, 4},
		{"explicit delay", thousand, Choice{Delay: 2, Memory: 1}, 96, 1, 2, 2},
		{"explicit head", thousand, Choice{Head: 7}, 96, 1, 18, 7},
		{"most delay", thousand, Choice{Memory: math.MaxUint64}, 96, 1, 4096, 4},
		{"no samples", Table{}, Choice{}, 96, 1, 4096, 4},
		{"no samples, whole shards", Table{}, Choice{WholeShards: true}, 96, 0, 4096, 4},
	} {
		c.choice.Shuffle = true
		p, err := Choose(c.table, c.choice)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if p.Lanes != c.v || p.RunBlocks != c.e || p.Delay != c.w || p.Head != c.h {
			t.Errorf("%s: V=%d E=%d W=%d H=%d, want V=%d E=%d W=%d H=%d", c.name, p.Lanes, p.RunBlocks, p.Delay, p.Head, c.v, c.e, c.w, c.h)
		}
		if p.Affinity != AffinityEpoch || p.Tail != TailWrap {
			t.Errorf("%s: %+v", c.name, p)
		}
		mustPlan(t, c.table, p)
	}
	for _, c := range []struct {
		epochs  uint64
		shuffle bool
		want    Tail
	}{{0, true, TailWrap}, {0, false, TailWrap}, {1, true, TailShort}, {1, false, TailShort}, {7, true, TailShort}} {
		if p, _ := Choose(thousand, Choice{Shuffle: c.shuffle, Epochs: c.epochs}); p.Tail != c.want {
			t.Errorf("%d epochs, shuffled %v: tail %s, want %s", c.epochs, c.shuffle, p.Tail, c.want)
		}
	}
	if p, _ := Choose(thousand, Choice{Shuffle: true, GlobalBatch: 1024, World: 8}); p.MixBlock != 10 {
		t.Errorf("T = %d", p.MixBlock)
	}
}

func TestChooseManyRuns(t *testing.T) {
	table := Table{Samples: make([]uint32, 17_000_000), Decoded: 17e6 * 4096}
	for b := 0; b < len(table.Samples); b += 1_000_001 {
		table.ShardFirst = append(table.ShardFirst, b)
	}
	// 17e6 runs are more than 2^24; ⌊2^31/(96·2·4096)⌋ = 2730.
	p, err := Choose(table, Choice{Shuffle: true})
	if err != nil || p.RunBlocks != 2 || p.Delay != 2726 {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestChooseRefuses(t *testing.T) {
	thousand := tableOfSize(1000)
	for name, c := range map[string]struct {
		choice Choice
		says   string
	}{
		"memory":              {Choice{Shuffle: true, Memory: 5e6 - 1}, "at least 5000000 bytes"},
		"memory, fixed lanes": {Choice{Shuffle: true, Memory: 49e6, Lanes: 10}, "at least 50000000 bytes"},
		"memory, shards":      {Choice{Shuffle: true, Memory: 1e9, WholeShards: true}, "at least 1250000000 bytes"},
		"memory, huge runs":   {Choice{Shuffle: true, RunBlocks: math.MaxUint32}, "at least"},
		"head":                {Choice{Shuffle: true, Delay: 2, Head: 4}, "head 4"},
		"lanes":               {Choice{Shuffle: true, Lanes: 1<<24 + 1, Memory: math.MaxUint64}, "lanes"},
		"delay unshuffled":    {Choice{Delay: 4}, "--shuffle"},
		"shards of 3":         {Choice{Shuffle: true, WholeShards: true, RunBlocks: 3}, "--run-blocks"},
		"affinity":            {Choice{Affinity: "lane"}, "affinity"},
		"tail":                {Choice{Tail: "none"}, "tail"},
	} {
		if p, err := Choose(thousand, c.choice); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
	}
}

// TestChosenWindowFits: with the chosen parameters no more blocks are open at once than the memory holds.
func TestChosenWindowFits(t *testing.T) {
	rnd := rand.New(rand.NewPCG(17, 18))
	table := tableOfSize(4000)
	for _, memory := range []uint64{20e6, 100e6, 500e6, 1e9} {
		p, err := Choose(table, Choice{Shuffle: true, Memory: memory, Seed: rnd.Uint64(), Tail: TailShort})
		if err != nil {
			t.Fatal(err)
		}
		c, err := mustPlan(t, table, p).Seek(0, 0)
		if err != nil {
			t.Fatal(err)
		}
		c.Until(1)
		var open, most int
		for {
			_, b, err := c.NextBatch(nil, Split{int(p.Lanes), 0, 1})
			if err != nil {
				break
			}
			open += len(b.Opened)
			most = max(most, open)
			open -= len(b.Closed)
		}
		if uint64(most)*1e6 > memory {
			t.Errorf("memory %d: %+v: %d blocks open", memory, p, most)
		}
	}
}
