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
		// 10^9 is below 2^30, and the blocks are few.
		{"default memory", thousand, Choice{}, 1, 1, 1000, 1000},
		// ⌊2^31/(96·10^6)⌋ = 22
		{"more blocks", tableOfSize(1100), Choice{}, 96, 1, 18, 4},
		{"an eighth of the memory", tableOfSize(4000), Choice{Memory: 32e9}, 1, 1, 4000, 4000},
		{"a byte less", tableOfSize(4000), Choice{Memory: 32e9 - 1}, 96, 1, 329, 4},
		{"exactly twenty runs a lane", thousand, Choice{Memory: 1920e6}, 96, 1, 16, 4},
		{"a byte more of blocks", odd, Choice{Memory: 1920e6}, 96, 1, 15, 4},
		{"sixteen runs a lane", thousand, Choice{Memory: 1536e6}, 96, 1, 12, 4},
		{"next smaller divisor", thousand, Choice{Memory: 1536e6 - 1}, 48, 1, 27, 4},
		{"an eighth of the lanes", thousand, Choice{Memory: 255e6}, 12, 1, 17, 4},
		{"two lanes", thousand, Choice{Memory: 32e6}, 2, 1, 12, 4},
		{"one lane", thousand, Choice{Memory: 32e6 - 1}, 1, 1, 27, 4},
		{"one lane with less", thousand, Choice{Memory: 12e6}, 1, 1, 8, 4},
		{"the least", thousand, Choice{Memory: 5e6}, 1, 1, 1, 1},
		{"fixed lanes are not lowered", thousand, Choice{Lanes: 96, Memory: 480e6}, 96, 1, 1, 1},
		{"other lanes", thousand, Choice{Lanes: 10, Memory: 50e6}, 10, 1, 1, 1},
		{"runs of 4", thousand, Choice{RunBlocks: 4}, 32, 4, 12, 4},
		{"runs of 8", thousand, Choice{RunBlocks: 8}, 16, 8, 12, 4},
		// Runs of 250 MB: 8 of them.
		{"whole shards", thousand, Choice{WholeShards: true}, 1, 0, 4, 4},
		{"explicit delay", thousand, Choice{Delay: 2, Memory: 1}, 96, 1, 2, 2},
		{"explicit head", thousand, Choice{Head: 7}, 96, 1, 18, 7},
		{"most delay", thousand, Choice{Memory: math.MaxUint64, Head: 4}, 96, 1, 4096, 4},
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
	if p, _ := Choose(thousand, Choice{Shuffle: true, Head: 4, GlobalBatch: 1024, World: 8}); p.MixBlock != 10 {
		t.Errorf("T = %d", p.MixBlock)
	}
}

func TestChooseManyRuns(t *testing.T) {
	table := Table{Samples: make([]uint32, 17_000_000), Decoded: 17e12}
	for b := 0; b < len(table.Samples); b += 1_000_001 {
		table.ShardFirst = append(table.ShardFirst, b)
	}
	// 17e6 runs are more than 2^24; ⌊2^34/(96·2·10^6)⌋ = 89.
	p, err := Choose(table, Choice{Shuffle: true, Memory: 1 << 34})
	if err != nil || p.RunBlocks != 2 || p.Delay != 85 {
		t.Errorf("%+v, %v", p, err)
	}
}

// smallBlocks is a table of blocks of 256 KiB decoded, 100 to a shard.
func smallBlocks(blocks int) Table {
	t := Table{Samples: make([]uint32, blocks), Decoded: uint64(blocks) << 18}
	for b := 0; b < blocks; b++ {
		t.Samples[b] = 75
		if b%100 == 0 {
			t.ShardFirst = append(t.ShardFirst, b)
		}
	}
	return t
}

// TestChooseJoins: small blocks are read together where memory and table have enough of them.
func TestChooseJoins(t *testing.T) {
	const mib = 1 << 20
	tiny := smallBlocks(100_000)
	tiny.Decoded /= 16 // 16 KiB
	few := smallBlocks(9300)
	few.ShardFirst = nil
	for b := 0; b < 9300; b += 3 {
		few.ShardFirst = append(few.ShardFirst, b)
	}
	for _, c := range []struct {
		name    string
		table   Table
		choice  Choice
		v, e, w uint32
	}{
		{"a large data set", smallBlocks(100_000), Choice{}, 96, 2, 38},
		{"runs just enough", smallBlocks(6200), Choice{}, 96, 2, 38},
		{"runs too few for 2", smallBlocks(6100), Choice{}, 96, 1, 81}, // 61 shards of 50 runs: 3050 < 32·96
		{"memory for 4", smallBlocks(100_000), Choice{Memory: 3840 * mib}, 96, 4, 36},
		{"memory for 2", smallBlocks(100_000), Choice{Memory: 3840*mib - 1}, 96, 2, 75},
		{"memory for 1", smallBlocks(100_000), Choice{Memory: 1920*mib - 1}, 96, 1, 75},
		{"less memory, fewer lanes", smallBlocks(100_000), Choice{Memory: 256 * mib}, 48, 1, 17},
		{"at most 8", tiny, Choice{}, 96, 8, 166},
		{"shards of 3", few, Choice{Memory: 3840 * mib}, 96, 4, 36}, // S(4) counts blocks that shards do not have
		{"fixed lanes", smallBlocks(3000), Choice{Lanes: 8}, 8, 4, 252},
		{"fixed run", smallBlocks(100_000), Choice{RunBlocks: 1}, 96, 1, 81},
		{"fixed delay", smallBlocks(100_000), Choice{Delay: 20}, 96, 1, 20},
		{"blocks of 1 MB", tableOfSize(100_000), Choice{}, 96, 1, 18},
	} {
		c.choice.Shuffle = true
		p, err := Choose(c.table, c.choice)
		if err != nil || p.Lanes != c.v || p.RunBlocks != c.e || p.Delay != c.w {
			t.Errorf("%s: V=%d E=%d W=%d, %v; want V=%d E=%d W=%d", c.name, p.Lanes, p.RunBlocks, p.Delay, err, c.v, c.e, c.w)
		}
		for _, world := range []int{1, 64} { // neither ranks nor batch decide
			c.choice.World, c.choice.GlobalBatch = world, 4096
			if q, err := Choose(c.table, c.choice); err != nil || q.Lanes != p.Lanes || q.RunBlocks != p.RunBlocks || q.Delay != p.Delay || q.Head != p.Head {
				t.Errorf("%s: %d ranks have %+v, one %+v, %v", c.name, world, q, p, err)
			}
		}
	}
	if p, err := Choose(smallBlocks(100_000), Choice{}); err != nil || p.RunBlocks != 1 {
		t.Errorf("unshuffled: %+v, %v", p, err)
	}
}

func TestMixesLittle(t *testing.T) {
	p := Params{Shuffle: true, Lanes: 12, Delay: 17} // 204
	if p.MixesLittle(136) || !p.MixesLittle(137) || p.MixesLittle(0) {
		t.Error("12 lanes of 17: batches up to 136 mix")
	}
	if p.Shuffle = false; p.MixesLittle(1000) {
		t.Error("storage order does not mix, and says so")
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
		"delay unshuffled":    {Choice{Delay: 4}, "or shuffle"},
		"shards of 3":         {Choice{Shuffle: true, WholeShards: true, RunBlocks: 3}, "give one of them"},
		"affinity":            {Choice{Affinity: "lane"}, "affinity"},
		"tail":                {Choice{Tail: "none"}, "tail"},
	} {
		if p, err := Choose(thousand, c.choice); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
	}
}

// TestChosenWindowFits: with the chosen parameters no more blocks are open at once than the memory
// holds.
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
