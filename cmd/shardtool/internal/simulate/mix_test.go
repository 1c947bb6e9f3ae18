package simulate

import (
	"errors"
	"io"
	"math"
	"testing"

	"github.com/shardtool/shardtool/internal/order/mix"
	"github.com/shardtool/shardtool/internal/order/uniformity"
	"github.com/shardtool/shardtool/reader/order"
)

// newMix is a mix of three sources of 20, 40 and 10 blocks, with shares of 6:3:1 until position 900
// and then without the last one, which ends after an epoch.
func newMix(t *testing.T, tail order.Tail) (*mix.Plan, []*order.Plan, []Source) {
	t.Helper()
	m := mix.Mix{Seed: 3, Shuffle: true, Tail: tail, Epoch: 700, Segments: []mix.Segment{
		{At: 0, Weights: []uint64{6, 3, 1}}, {At: 900, Weights: []uint64{1, 1, 0}},
	}}
	var tables []order.Table
	var sources []Source
	for i, blocks := range []int{20, 40, 10} {
		table := order.Table{ShardFirst: []int{0}}
		units := uint64(0)
		for b := range blocks {
			table.Samples = append(table.Samples, uint32(1+(b*7+i)%9))
			units += uint64(1 + (b*7+i)%9)
		}
		tables = append(tables, table)
		m.Sources = append(m.Sources, mix.Source{
			Name: string(rune('a' + i)), Digest: "d", Units: units, Lanes: 4, RunBlocks: 2, Delay: 2, Head: 1, Affinity: order.AffinityEpoch,
		})
		sources = append(sources, Source{Blocks: uint64(blocks), Bytes: uint64(blocks) * uint64(1000*(i+1)), Labels: uniformity.Parts(units)})
	}
	m.Sources[2].MaxEpochs = 1
	plan, err := mix.New(m)
	if err != nil {
		t.Fatal(err)
	}
	orders, err := m.Orders(tables)
	if err != nil {
		t.Fatal(err)
	}
	return plan, orders, sources
}

// TestMix counts again what each rank gets, from a cursor of that rank.
func TestMix(t *testing.T) {
	const batch, steps, perNode = 32, 50, 2
	for _, tail := range []order.Tail{order.TailShort, order.TailDrop, order.TailWrap, order.TailPad} {
		for _, position := range []uint64{0, 96} {
			plan, orders, sources := newMix(t, tail)
			o := Options{Steps: steps, GlobalBatch: batch, Worlds: []int{1, 3, 8}, Job: Job{RanksPerNode: perNode, SamplesPerSecond: 10}}
			r, err := Mix(t.Context(), plan, position, orders, sources, o)
			if err != nil {
				t.Fatal(err)
			}
			if r.Batches != steps || r.Position != position || (r.Padding > 0) != (tail == order.TailPad) || r.ExactlyOnce != (tail != order.TailDrop) {
				t.Errorf("%s at %d: %+v", tail, position, r)
			}
			checkSources(t, plan, position, r, tail)
			for _, w := range r.Worlds {
				checkReading(t, plan, orders, sources, position, o, w)
			}
		}
	}
}

func checkSources(t *testing.T, plan *mix.Plan, position uint64, r *MixReport, tail order.Tail) {
	t.Helper()
	from, err := plan.Counts(nil, position)
	if err != nil {
		t.Fatal(err)
	}
	to, err := plan.Counts(nil, r.End)
	if err != nil {
		t.Fatal(err)
	}
	m, total := plan.Mix(), uint64(0)
	for i, s := range r.Sources {
		want := to[i] - from[i]
		total += s.Samples
		exact := s.Samples == want && s.Missing == 0
		if tail == order.TailDrop { // sources count what is passed over
			exact = s.Samples <= want
		}
		if s.Name != m.Sources[i].Name || !exact || s.Repeated != 0 || s.Epochs != float64(s.Samples)/float64(m.Sources[i].Units) ||
			s.Share != float64(s.Samples)/float64(r.Samples) || s.ReadBytes == 0 || s.VIF == 0 {
			t.Errorf("%s at %d: %+v, want %d samples", tail, position, s, want)
		}
	}
	if total != r.Samples {
		t.Errorf("%d samples of sources, %d in all", total, r.Samples)
	}
}

// checkReading walks the parts of each rank.
func checkReading(t *testing.T, plan *mix.Plan, orders []*order.Plan, sources []Source, position uint64, o Options, w Reading) {
	t.Helper()
	type block struct {
		source uint16
		block  uint32
		epoch  uint32
	}
	type node struct{ bytes, requests, cached float64 }
	nodes, most, all, cached, first, requests, samples := make([]node, w.Needs.Nodes), 0, 0, 0, 0.0, 0.0, uint64(0)
	size := func(source uint16) float64 { return float64(1000 * (int(source) + 1)) }
	for n := range nodes {
		union := map[block]bool{}
		for rank := n * perNodeOf(o); rank < min((n+1)*perNodeOf(o), w.Size); rank++ {
			c, err := plan.Seek(position, orders)
			if err != nil {
				t.Fatal(err)
			}
			read := map[block]bool{}
			for step := range o.Steps {
				refs, _, err := c.NextBatch(nil, order.Split{GlobalBatch: o.GlobalBatch, World: w.Size, Rank: rank})
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				bytes := 0.0
				for _, r := range refs {
					samples++
					if r.Padding {
						continue
					}
					if b := (block{r.Source, r.Block, r.Epoch}); !read[b] {
						read[b] = true
						bytes += size(r.Source)
					}
					union[block{r.Source, r.Block, 0}] = true
				}
				if step == 0 {
					first = max(first, bytes)
				}
			}
			for b := range read {
				nodes[n].bytes += size(b.source)
				nodes[n].requests += 0.5
			}
			most, all = max(most, len(read)), all+len(read)
		}
		requests += nodes[n].requests
		cached += len(union)
		for b := range union {
			nodes[n].cached += size(b.source)
		}
	}
	var worst node
	for _, n := range nodes {
		worst = node{max(worst.bytes, n.bytes), max(worst.requests, n.requests), max(worst.cached, n.cached)}
	}
	n := w.Needs
	if w.Blocks != uint64(most) || math.Abs(w.Amplification-float64(all)/70) > 1e-9 || n.ReadBytes != uint64(worst.bytes) || n.CacheBytes != uint64(worst.cached) ||
		n.Requests != uint64(math.Ceil(worst.requests)) || n.First != uint64(first) || math.Abs(n.Amplification-float64(cached)/70) > 1e-9 ||
		math.Abs(n.RequestRate-requests/n.Hours/3600) > 1e-9 || n.Resume == 0 {
		t.Errorf("%d ranks at %d: %+v; want %d blocks, %d in all, %+v, first %g, %d cached", w.Size, position, w, most, all, worst, first, cached)
	}
}

func perNodeOf(o Options) int { return o.Job.RanksPerNode }

// TestMixEnds: the walk ends where the stream does, and with the context; sources are given by
// number.
func TestMixEnds(t *testing.T) {
	plan, orders, sources := newMix(t, order.TailShort)
	m := plan.Mix()
	for i := range m.Sources {
		m.Sources[i].MaxEpochs = 1
	}
	plan, err := mix.New(m)
	if err != nil {
		t.Fatal(err)
	}
	o := Options{GlobalBatch: 10}
	r, err := Mix(t.Context(), plan, 0, orders, sources, o)
	if err != nil || r.End != endOf(t, plan) || r.Samples != r.End || !r.ExactlyOnce || r.Sources[1].Epochs != 1 {
		t.Errorf("%+v, %v, want the end at %d", r, err, endOf(t, plan))
	}
	o.LeftOut = []mix.Range{{From: 10, To: 30}}
	if r, err := Mix(t.Context(), plan, 0, orders, sources, o); err != nil || r.ExactlyOnce && r.Sources[0].Missing > 0 || r.Samples != endOf(t, plan)-20 {
		t.Errorf("steps left out: %+v, %v", r, err)
	}
	if _, err := Mix(t.Context(), plan, 0, orders, sources[:2], o); err == nil {
		t.Error("two sources for three")
	}
}

// TestParts compares the blocks of a source in a set with those that are counted one by one.
func TestParts(t *testing.T) {
	for first := uint64(0); first < 200; first += 7 {
		for second := uint64(0); second <= 200; second += 3 {
			a := newPart(0, first, 0, order.Params{})
			ps := parts{a, newPart(a.to, second, 0, order.Params{})}
			b, counts := ps.set(), [2]uint64{}
			for i := range ps {
				for block := range ps[i].blocks {
					if block%3 != 0 {
						b.set(64*ps[i].from + block)
						counts[i]++
					}
				}
			}
			for i := range ps {
				if got := ps[i].in(b).count(); got != counts[i] {
					t.Fatalf("%d and %d blocks: %d of source %d, want %d", first, second, got, i, counts[i])
				}
			}
			if clear(ps[0].in(b)); b.count() != counts[1] {
				t.Fatalf("%d and %d blocks: %d are left, want %d", first, second, b.count(), counts[1])
			}
		}
	}
}
