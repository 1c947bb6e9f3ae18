package mix

import (
	"encoding/json"
	"math/big"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/shardtool/shardtool/internal/curate/view"
	"github.com/shardtool/shardtool/reader/order"
)

// vectors is testdata/order/mix-vectors.json. Its numbers were made by a program that shares no
// code with this package.
type vectors struct {
	SourceKey []struct{ Seed, Name, Key string } `json:"source_key"`
	Tree      []struct {
		Weights  []uint64
		First    []uint32
		CountsAt []countsAt `json:"counts_at"`
	}
	Mix      []vectorMix
	Quantize []struct {
		Shares  []string
		Weights []uint64
	}
	SampleSeed []struct {
		Key           string
		Epoch, Number uint64
		Draw          uint32
		Seed          string
	} `json:"sample_seed"`
	Temperature []struct {
		N     uint64
		P, Q  int
		Share string
	}
}

type vectorMix struct {
	Seed    string
	Sources []struct {
		Name       string
		Blocks     []uint32
		Shards     []int
		V, E, W, H uint32
		Affinity   order.Affinity
		View       *vectorView
		MaxEpochs  uint64 `json:"max_epochs"`
	}
	Segments []countsAt // a position, and the weights from there on
	End      *uint64
	CountsAt []countsAt `json:"counts_at"`
	Batches  []struct {
		Position, Size, Ranks int
		Entries               [][3]uint64
		RankSizes             []int       `json:"rank_sizes"`
		LastRank              [][3]uint64 `json:"last_rank"`
	}
}

// vectorView is a view: the chosen samples, or weights, of classes or not, with a number of draws.
type vectorView struct {
	Subset  []uint64 `json:"subset"`
	Weights []uint32 `json:"weights"`
	Draws   uint64   `json:"draws"`
	Classes []uint64 `json:"classes"` // their weights; weights are then the classes of samples
}

// countsAt is a position and the counts there.
type countsAt struct {
	position uint64
	counts   []uint64
}

func (c *countsAt) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, &[]any{&c.position, &c.counts})
}

func readVectors(t testing.TB) vectors {
	t.Helper()
	text, err := os.ReadFile("../../../testdata/order/mix-vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var v vectors
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	if len(v.SourceKey) == 0 || len(v.Tree) == 0 || len(v.Mix) == 0 || len(v.Quantize) == 0 || len(v.SampleSeed) == 0 || len(v.Temperature) == 0 {
		t.Fatal("no vectors")
	}
	return v
}

func parseWord(t testing.TB, text string) uint64 {
	t.Helper()
	x, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func TestVectorsOfKeysAndSeeds(t *testing.T) {
	v := readVectors(t)
	for _, c := range v.SourceKey {
		if got := Key(parseWord(t, c.Seed), c.Name); got != parseWord(t, c.Key) {
			t.Errorf("key of %s with seed %s is %d, want %s", c.Name, c.Seed, got, c.Key)
		}
	}
	for _, c := range v.SampleSeed {
		if got := order.SampleSeed(parseWord(t, c.Key), c.Epoch, c.Number, c.Draw); got != parseWord(t, c.Seed) {
			t.Errorf("seed of %+v is %d", c, got)
		}
	}
}

func TestVectorsOfWeights(t *testing.T) {
	v := readVectors(t)
	for _, c := range v.Quantize {
		var shares []*big.Rat
		for _, text := range c.Shares {
			share, err := ParseShare(text)
			if err != nil {
				t.Fatal(err)
			}
			shares = append(shares, share)
		}
		got, err := Quantize(make([]string, len(shares)), shares)
		if err != nil || !slices.Equal(got, c.Weights) {
			t.Errorf("%s quantized are %d, %v, want %d", c.Shares, got, err, c.Weights)
		}
	}
	for _, c := range v.Temperature {
		got, err := Temperature(c.N, c.P, c.Q)
		if err != nil || got.RatString() != c.Share {
			t.Errorf("%d at %d/%d has share %v, %v, want %s", c.N, c.P, c.Q, got, err, c.Share)
		}
	}
}

func TestVectorsOfTrees(t *testing.T) {
	for _, c := range readVectors(t).Tree {
		tr := newTree(c.Weights)
		units := make([]uint64, len(c.Weights))
		first := new(sequencer).append(nil, &tr, 0, len(c.First))
		if !slices.Equal(first, c.First) {
			t.Errorf("weights %d begin with %d, want %d", c.Weights, first, c.First)
		}
		for _, at := range c.CountsAt {
			counts := make([]uint64, len(c.Weights))
			tr.addCounts(counts, units, at.position)
			if !slices.Equal(counts, at.counts) {
				t.Errorf("weights %d have given %d before %d, want %d", c.Weights, counts, at.position, at.counts)
			}
		}
	}
}

// mix makes the mix of a case and the orders of its sources.
func (v *vectorMix) mix(t *testing.T) (m Mix, orders []*order.Plan) {
	t.Helper()
	m = Mix{Seed: parseWord(t, v.Seed), Shuffle: true, Tail: order.TailShort, Epoch: maxPosition - 1}
	tables := make([]order.Table, len(v.Sources))
	for i, s := range v.Sources {
		tables[i] = order.Table{Samples: s.Blocks, ShardFirst: s.Shards[:len(s.Shards)-1]}
		source := Source{
			Name: s.Name, Lanes: s.V, RunBlocks: s.E, Delay: s.W, Head: s.H, Affinity: s.Affinity, MaxEpochs: s.MaxEpochs,
		}
		for _, n := range s.Blocks {
			source.Units += uint64(n)
		}
		if s.View != nil {
			tables[i].View = s.View.view(t, s.Blocks, source.Units)
			source.Units = tables[i].View.Samples()
		}
		m.Sources = append(m.Sources, source)
	}
	for _, g := range v.Segments {
		m.Segments = append(m.Segments, Segment{g.position, g.counts})
	}
	return m, ordersOf(t, &m, tables)
}

// view makes the view of a table of n samples.
func (v *vectorView) view(t *testing.T, blocks []uint32, n uint64) (made order.View) {
	t.Helper()
	var err error
	if v.Classes != nil {
		made, err = view.Classes(blocks, v.Weights, v.Classes, v.Draws)
	} else if v.Subset != nil {
		chosen := make([]byte, (n+7)/8)
		for _, x := range v.Subset {
			chosen[x/8] |= 1 << (x % 8)
		}
		made, err = view.Subset(blocks, chosen)
	} else {
		made, err = view.Weights(blocks, v.Weights, v.Draws)
	}
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func ordersOf(t testing.TB, m *Mix, tables []order.Table) []*order.Plan {
	t.Helper()
	orders, err := m.Orders(tables)
	if err != nil {
		t.Fatal(err)
	}
	return orders
}

func mustPlan(t testing.TB, m Mix) *Plan {
	t.Helper()
	p, err := New(m)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func endOf(t testing.TB, p *Plan) uint64 {
	t.Helper()
	end, err := p.End()
	if err != nil {
		t.Fatal(err)
	}
	return end
}

func TestVectorsOfMixes(t *testing.T) {
	var batches int
	for i, v := range readVectors(t).Mix {
		m, orders := v.mix(t)
		p := mustPlan(t, m)
		for _, at := range v.CountsAt {
			if counts, err := p.Counts(nil, at.position); err != nil || !slices.Equal(counts, at.counts) {
				t.Errorf("mix %d has given %d before %d, %v, want %d", i, counts, at.position, err, at.counts)
			}
		}
		if v.End != nil && endOf(t, p) != *v.End {
			t.Errorf("mix %d ends at %d, want %d", i, endOf(t, p), *v.End)
		}
		for _, b := range v.Batches {
			batches++
			var all [][3]uint64
			for r := range b.Ranks {
				c, err := p.Seek(uint64(b.Position), orders)
				if err != nil {
					t.Fatal(err)
				}
				refs, at, err := c.NextBatch(nil, order.Split{GlobalBatch: b.Size, Rank: r, World: b.Ranks})
				if err != nil {
					t.Fatal(err)
				}
				if at.First != len(all) || len(refs) != b.RankSizes[r] {
					t.Errorf("mix %d at %d: rank %d has %d entries from %d", i, b.Position, r, len(refs), at.First)
				}
				part := entriesOf(refs)
				if r == b.Ranks-1 && !slices.Equal(part, b.LastRank) {
					t.Errorf("mix %d at %d: the last rank has %d, want %d", i, b.Position, part, b.LastRank)
				}
				all = append(all, part...)
			}
			if !slices.Equal(all, b.Entries) {
				t.Errorf("mix %d at %d: the batch is\n%d, want\n%d", i, b.Position, all, b.Entries)
			}
		}
	}
	if batches < 18 {
		t.Errorf("only %d batches were compared", batches)
	}
}

// entriesOf is source, epoch and storage number of every reference.
func entriesOf(refs []order.Ref) [][3]uint64 {
	var entries [][3]uint64
	for _, r := range refs {
		entries = append(entries, [3]uint64{uint64(r.Source), uint64(r.Epoch), r.Number})
	}
	return entries
}
