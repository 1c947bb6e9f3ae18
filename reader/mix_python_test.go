package reader

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/shardtool/shardtool/internal/order/mix"
	"github.com/shardtool/shardtool/internal/testset/programs"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/reader/order"
)

// pythonChain is a chain of starts as python/mix_check.py --compare takes it: each step is a batch
// of a start with other ranks, and before the middle one the mix changes.
type pythonChain struct {
	Seed    string      `json:"seed"`
	Tail    order.Tail  `json:"tail"`
	Epoch   string      `json:"epoch"`
	LeftOut [][2]uint64 `json:"left_out"`
	pythonSources
	Change pythonSources `json:"change"`
	Steps  []pythonSplit `json:"steps"`

	mixes [2]mix.Mix  // before the change, and asked for after it
	of    [2][]source // their data sets
}

type pythonSources struct {
	Sources  []pythonSource `json:"sources"`
	Segments [][2]any       `json:"segments"`
}

type pythonSource struct {
	Name      string         `json:"name"`
	Digest    string         `json:"digest"`
	Blocks    []uint32       `json:"blocks"`
	Shards    []int          `json:"shards"`
	V         uint32         `json:"V"`
	E         uint32         `json:"E"`
	W         uint32         `json:"W"`
	H         uint32         `json:"H"`
	Affinity  order.Affinity `json:"affinity"`
	MaxEpochs uint64         `json:"max_epochs"`
}

type pythonSplit struct {
	GlobalBatch int `json:"global_batch"`
	World       int `json:"world_size"`
}

// pythonBatches is the answer: of each batch the parts of its ranks, with source, epoch and number
// of each sample.
type pythonBatches struct {
	Batches []struct {
		Position uint64        `json:"position"`
		Next     uint64        `json:"next"`
		Ranks    [][][3]uint64 `json:"ranks"`
	} `json:"batches"`
}

func newPythonChain(random *rand.Rand, all []source) *pythonChain {
	c := &pythonChain{Seed: strconv.FormatUint(random.Uint64(), 10), Tail: order.TailWrap, Epoch: "500", LeftOut: [][2]uint64{}}
	seed, _ := strconv.ParseUint(c.Seed, 10, 64)
	var parts [2]pythonSources
	for k := range parts {
		var weights []uint64
		for _, s := range all {
			if random.IntN(4) > 0 || s.name == "b" {
				c.of[k], weights = append(c.of[k], s), append(weights, 1+random.Uint64N(9))
			}
		}
		c.mixes[k] = mixOf(seed, c.of[k], weights...)
		for i, s := range c.mixes[k].Sources {
			t := c.of[k][i].table
			parts[k].Sources = append(parts[k].Sources, pythonSource{s.Name, s.Digest, t.Samples, append(slices.Clone(t.ShardFirst), len(t.Samples)),
				s.Lanes, s.RunBlocks, s.Delay, s.Head, s.Affinity, s.MaxEpochs})
		}
		parts[k].Segments = [][2]any{{0, weights}}
	}
	c.pythonSources, c.Change = parts[0], parts[1]
	for range 6 {
		c.Steps = append(c.Steps, pythonSplit{3 + random.IntN(90), 1 + random.IntN(3)})
	}
	return c
}

// TestMixChainsOfPython: chains of starts, each with other ranks and another batch size, and in the
// middle with other weights and sources, deliver the samples that the second implementation lists,
// byte by byte. So none is lost or repeated.
func TestMixChainsOfPython(t *testing.T) {
	all := []source{
		newSource(t, "a", mem.New(), 90), newSource(t, "b", inDir(t), 150),
		newSource(t, "c", &far{Store: mem.New(), requests: 3, delay: 50 * time.Microsecond}, 60), newSource(t, "d", mem.New(), 40),
	}
	n := 60
	if testing.Short() {
		n = 6
	}
	random := rand.New(rand.NewPCG(31, 32))
	chains := make([]*pythonChain, n)
	for i := range chains {
		chains[i] = newPythonChain(random, all)
	}
	samples, changes := 0, 0
	for i, answer := range programs.Answers[pythonBatches](t, "../python/mix_check.py", chains) {
		c := chains[i]
		given := map[string]map[uint32]map[uint64]int{}
		m, in := c.mixes[0], c.of[0]
		var cp *mix.Checkpoint
		for k, split := range c.Steps {
			if k == len(c.Steps)/2 {
				before := m
				var err error
				if m, err = cp.Change(c.mixes[1]); err != nil {
					t.Fatal(err)
				}
				in = c.of[1]
				if len(m.Sources) != len(before.Sources) || len(in) != len(c.of[0]) {
					changes++
				}
			}
			x, _ := joined(t, m, in)
			if cp != nil {
				x.Continue(cp)
			}
			want := answer.Batches[k]
			cp = nil
			for r, entries := range want.Ranks {
				var refs []order.Ref
				for _, e := range entries {
					ref := order.Ref{Source: uint16(e[0]), Epoch: uint32(e[1]), Number: e[2]}
					refs = append(refs, ref)
					note(given, m.Sources[ref.Source].Name, ref)
				}
				s := openMix(t, x, StreamOptions{GlobalBatch: split.GlobalBatch, Rank: r, World: split.World, Tuning: Tuning{Depth: 1}})
				b, err := s.Next(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if b.Position != want.Position || b.NextPosition != want.Next {
					t.Fatalf("chain %d, step %d: the batch is from %d to %d, Python's from %d to %d", i, k, b.Position, b.NextPosition, want.Position, want.Next)
				}
				checkMixed(t, b, refs, m, in)
				samples += len(refs)
				at, err := b.Checkpoint()
				cp = mixText(t, at, err)
				s.Close()
			}
		}
		checkGiven(t, all, given)
	}
	if samples < 100*n || changes < n/4 {
		t.Fatalf("%d samples and %d changes of sources: the chains are too small", samples, changes)
	}
}
