package reader

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/shardtool/shardtool/internal/order/mix"
	"github.com/shardtool/shardtool/internal/testset/programs"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/reader/order"
)

// steerChain is a chain of starts as python/mix_check.py --compare takes it. Some steps set weights
// before their batch, in mid-run.
type steerChain struct {
	Seed    string      `json:"seed"`
	Tail    order.Tail  `json:"tail"`
	Epoch   string      `json:"epoch"`
	LeftOut [][2]uint64 `json:"left_out"`
	pythonSources
	Steps []steerStep `json:"steps"`

	mix mix.Mix
}

type steerStep struct {
	pythonSplit
	Weights [][]string `json:"weights,omitempty"` // one after the other, at the same place
	start   bool       // the job was killed, and starts again
}

func newSteerChain(random *rand.Rand, all []source) *steerChain {
	c := &steerChain{
		Seed: strconv.FormatUint(random.Uint64(), 10), Epoch: "500", LeftOut: [][2]uint64{},
		Tail: []order.Tail{order.TailWrap, order.TailShort, order.TailDrop}[random.IntN(3)],
	}
	seed, _ := strconv.ParseUint(c.Seed, 10, 64)
	var weights []uint64
	for range all {
		weights = append(weights, 1+random.Uint64N(9))
	}
	c.mix = mixOf(seed, all, weights...)
	c.mix.Tail = c.Tail
	for i, s := range c.mix.Sources {
		t := all[i].table
		c.Sources = append(c.Sources, pythonSource{
			s.Name, s.Digest, t.Samples, append(slices.Clone(t.ShardFirst), len(t.Samples)),
			s.Lanes, s.RunBlocks, s.Delay, s.Head, s.Affinity, s.MaxEpochs,
		})
	}
	c.Segments = [][2]any{{0, weights}}
	for range 4 {
		split := pythonSplit{3 + random.IntN(90), 1 + random.IntN(3)}
		for i := range 1 + random.IntN(6) {
			step := steerStep{pythonSplit: split, start: i == 0}
			for range random.IntN(3) {
				var set []string
				for range all {
					set = append(set, strconv.FormatFloat(float64(random.IntN(40))/16, 'f', -1, 64))
				}
				set[random.IntN(len(set))] = "0.3"
				step.Weights = append(step.Weights, set)
			}
			c.Steps = append(c.Steps, step)
		}
	}
	return c
}

// TestSetWeightsOfPython: chains of starts on other ranks, killed in between, that set weights in
// mid-run, deliver the samples that the second implementation lists, byte by byte.
func TestSetWeightsOfPython(t *testing.T) {
	all := []source{newSource(t, "a", mem.New(), 90), newSource(t, "b", mem.New(), 150), newSource(t, "c", mem.New(), 40)}
	n := 100
	if testing.Short() {
		n = 8
	}
	random := rand.New(rand.NewPCG(41, 44))
	chains := make([]*steerChain, n)
	for i := range chains {
		chains[i] = newSteerChain(random, all)
	}
	set := 0
	for i, answer := range programs.Answers[pythonBatches](t, "../python/mix_check.py", chains) {
		c := chains[i]
		x, _ := joined(t, c.mix, all)
		var ranks []*Stream
		var cp *mix.Checkpoint
		for k, step := range c.Steps {
			if step.start {
				for _, s := range ranks {
					s.Close()
				}
				ranks = nil
				if cp != nil {
					x, _ = joined(t, cp.Mix, all)
					x.Continue(cp)
				}
				for r := range step.World {
					ranks = append(ranks, openMix(t, x, StreamOptions{GlobalBatch: step.GlobalBatch, Rank: r, World: step.World}))
				}
			}
			for r, s := range ranks {
				for _, texts := range step.Weights {
					weights := map[string]float64{}
					for i, text := range texts {
						weights[all[i].name], _ = strconv.ParseFloat(text, 64)
					}
					if err := s.SetWeights(weights); err != nil {
						t.Fatal(err)
					}
					set++
				}
				b, err := s.Next(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				want := answer.Batches[k]
				if b.Position != want.Position || b.NextPosition != want.Next {
					t.Fatalf("chain %d, step %d: the batch is from %d to %d, Python's from %d to %d", i, k, b.Position, b.NextPosition, want.Position, want.Next)
				}
				var refs []order.Ref
				for _, e := range want.Ranks[r] {
					refs = append(refs, order.Ref{Source: uint16(e[0]), Epoch: uint32(e[1]), Number: e[2]})
				}
				checkMixed(t, b, refs, c.mix, all)
				at, err := b.Checkpoint()
				cp = mixText(t, at, err)
			}
		}
		for _, s := range ranks {
			s.Close()
		}
	}
	if set < 10*n {
		t.Fatalf("weights were set %d times: the chains are too small", set)
	}
}
