package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"time"

	"github.com/shardtool/shardtool/bench/table"
	"github.com/shardtool/shardtool/reader/mixfile"
	"github.com/shardtool/shardtool/reader/order"
	"github.com/shardtool/shardtool/reader/order/mix"
	"github.com/shardtool/shardtool/reader/order/mixing"
)

// generated is a mix that nobody packed.
type generated struct {
	mix.Mix
	tables []order.Table
}

// generate makes a mix of sources with these tables and shares.
func generate(tables []order.Table, shares []uint64, c order.Choice) (g generated, err error) {
	file := &mixfile.File{Name: "mix", Units: 1e9}
	var data []mixfile.Data
	for s, t := range tables {
		share, err := mix.ParseShare(fmt.Sprint(shares[s]))
		if err != nil {
			return g, err
		}
		file.Sources = append(file.Sources, mixfile.Source{Name: fmt.Sprintf("s%03d", s), Share: share})
		data = append(data, mixfile.Data{Table: t, Digest: "sha256:00"})
	}
	g.tables = tables
	g.Mix, err = file.Mix(data, c, nil)
	return g, err
}

// many is a mix of n sources of 1.5·10^7 samples each, with all sorts of shares.
func many(n int) (generated, error) {
	tables, shares := make([]order.Table, n), make([]uint64, n)
	for s := range n {
		tables[s], shares[s] = unpacked(15_000_000), 1+uint64(s)*2654435761>>8%997
	}
	return generate(tables, shares, order.Choice{Shuffle: true, Seed: 7})
}

// seek plans everything and returns a cursor at a position.
func (g *generated) seek(position uint64) (*mix.Cursor, error) {
	p, err := mix.New(g.Mix)
	if err != nil {
		return nil, err
	}
	orders, err := g.Orders(g.tables)
	if err != nil {
		return nil, err
	}
	return p.Seek(position, orders)
}

// mixStart starts in the middle of a mix of 64 sources.
func (b *bench) mixStart() error {
	g, err := many(64)
	if err != nil {
		return err
	}
	held := 0.0
	for _, t := range g.tables {
		held += float64(4*len(t.Samples) + 8*len(t.ShardFirst))
	}
	var took table.Sample
	most := 0.0
	for range b.times {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		begin := time.Now()
		c, err := g.seek(512_345_678)
		if err != nil {
			return err
		}
		if _, _, err := c.NextBatch(nil, order.Split{GlobalBatch: 4096, Rank: 3, World: 8}); err != nil {
			return err
		}
		took = append(took, time.Since(begin).Seconds()*1000)
		runtime.ReadMemStats(&after)
		most = max(most, (held+float64(after.TotalAlloc-before.TotalAlloc))/1e6)
	}
	const what = "64 sources of 1.5·10^7 samples: "
	b.AtMost("mix", what+"plans, seek, first references", took, "ms", 300, "rank 3 of 8, global batch 4,096")
	b.AtMost("mix", what+"memory of the same, the tables included", table.One(most), "MB", 96, "all that is allocated on the way")
	p, err := mix.New(g.Mix)
	if err != nil {
		return err
	}
	var counts []uint64
	var per table.Sample
	for range b.times {
		const calls = 100_000
		begin := time.Now()
		for i := range uint64(calls) {
			if counts, err = p.Counts(counts[:0], 512_345_678+4096*i); err != nil {
				return err
			}
		}
		per = append(per, time.Since(begin).Seconds()*1e6/calls)
	}
	b.AtMost("mix", what+"what each has given before a position", per, "µs", 1, "")
	return nil
}

// perReference times the references of batches, in nanoseconds a sample.
func (b *bench) perReference(next func(refs []order.Ref) ([]order.Ref, order.Batch, error)) (per table.Sample, err error) {
	var refs []order.Ref
	for range b.times + 1 {
		begin, samples := time.Now(), 0
		for samples < 500_000 {
			if refs, _, err = next(refs[:0]); err != nil {
				return nil, err
			}
			samples += len(refs)
		}
		per = append(per, time.Since(begin).Seconds()*1e9/float64(samples))
	}
	return per[1:], nil
}

// mixPerSample goes through the order of 64 sources, as one rank and as each of eight.
func (b *bench) mixPerSample() error {
	g, err := many(64)
	if err != nil {
		return err
	}
	const global = 4096
	var per [9]table.Sample // of the whole batch, then of the ranks
	for i := range per {
		split := order.Split{GlobalBatch: global, World: 1}
		if i > 0 {
			split = order.Split{GlobalBatch: global, Rank: i - 1, World: 8}
		}
		c, err := g.seek(512_345_678)
		if err != nil {
			return err
		}
		if per[i], err = b.perReference(func(refs []order.Ref) ([]order.Ref, order.Batch, error) { return c.NextBatch(refs, split) }); err != nil {
			return err
		}
	}
	plan, err := newPlan(unpacked(15_000_000), order.Choice{Tail: order.TailWrap})
	if err != nil {
		return err
	}
	c, err := plan.Seek(0, 5_000_000)
	if err != nil {
		return err
	}
	alone, err := b.perReference(func(refs []order.Ref) ([]order.Ref, order.Batch, error) {
		return c.NextBatch(refs, order.Split{GlobalBatch: global, World: 1})
	})
	if err != nil {
		return err
	}
	b.AtMost("mix", "64 sources: time a sample / of one source", per[0].Over(alone), "x", 1.3,
		fmt.Sprintf("references of a global batch of 4,096 on one rank: %.0f ns against %.0f ns", per[0].Median(), alone.Median()))
	var ranks table.Sample
	for _, of := range per[1:] {
		ranks = append(ranks, of.Median()*global/8/1000)
	}
	b.AtMost("mix", "64 sources: references of a rank's 512 samples of 4,096", ranks, "µs", 50,
		"each of 8 ranks; sources of two lanes, which four ranks share")
	return nil
}

// mixShares goes through the first 10^6 positions of 200 mixes.
func (b *bench) mixShares() error {
	const mixes, positions, global = 200, 1_000_000, 4096
	rnd := rand.New(rand.NewPCG(1, 2))
	prefix, stretch := 0.0, 0.0
	var refs []order.Ref
	for range mixes {
		tables, shares := make([]order.Table, 1+rnd.IntN(64)), []uint64(nil)
		for range tables {
			tables[len(shares)] = order.Table{Samples: []uint32{1000}, ShardFirst: []int{0}, Decoded: 1 << 20}
			shares = append(shares, 1+rnd.Uint64N(1<<rnd.IntN(30)))
		}
		g, err := generate(tables, shares, order.Choice{Tail: order.TailWrap})
		if err != nil {
			return err
		}
		c, err := g.seek(0)
		if err != nil {
			return err
		}
		weights := g.Segments[0].Weights
		off := newDeviation(weights)
		for at := 0; at < positions; at += global {
			if refs, _, err = c.NextBatch(refs[:0], order.Split{GlobalBatch: global, World: 1}); err != nil {
				return err
			}
			for i := range refs {
				off.add(int(refs[i].Source))
			}
		}
		p, s := off.most()
		prefix, stretch = max(prefix, p), max(stretch, s)
	}
	b.AtMost("mix", "share error at every prefix of 10^6 positions of 200 mixes", table.One(prefix), "units", 2, "of 1 to 64 sources")
	b.AtMost("mix", "the same in any stretch, so in any batch and any rank's part of one", table.One(stretch), "units", 4, "")
	return nil
}

// deviation is how far sources are from their shares.
type deviation struct {
	share       []float64
	given       []float64
	least, high []float64 // of given less the share; what lies between two units of a source lies between these
	units       float64
}

func newDeviation(weights []uint64) deviation {
	n, total := len(weights), 0.0
	for _, w := range weights {
		total += float64(w)
	}
	d := deviation{share: make([]float64, n), given: make([]float64, n), least: make([]float64, n), high: make([]float64, n)}
	for s, w := range weights {
		d.share[s] = float64(w) / total
	}
	return d
}

// add gives a unit to a source, which is furthest below its share before, and furthest above it
// after.
func (d *deviation) add(s int) {
	d.least[s] = min(d.least[s], d.given[s]-d.units*d.share[s])
	d.given[s]++
	d.units++
	d.high[s] = max(d.high[s], d.given[s]-d.units*d.share[s])
}

// most is the largest error of a prefix, and of any stretch.
func (d *deviation) most() (prefix, stretch float64) {
	for s := range d.share {
		least := min(d.least[s], d.given[s]-d.units*d.share[s])
		prefix = max(prefix, d.high[s], -least)
		stretch = max(stretch, d.high[s]-least)
	}
	return prefix, stretch
}

// mixVIF compares how well each source of a mix is shuffled with the same source read alone, with
// the part of the memory that it has in the mix and in batches of its share.
func (b *bench) mixVIF() error {
	const global = 2048
	samples, shares := []uint64{400_000, 800_000, 1_600_000, 800_000}, []uint64{1, 2, 8, 5}
	var tables []order.Table
	for _, n := range samples {
		tables = append(tables, unpacked(n))
	}
	var worst table.Sample
	detail := ""
	for seed := range uint64(3) {
		g, err := generate(tables, shares, order.Choice{Shuffle: true, Seed: seed, Memory: 512 << 20, GlobalBatch: global})
		if err != nil {
			return err
		}
		mixed, err := vifs(&g, global)
		if err != nil {
			return err
		}
		far := 1.0
		for s, in := range mixed {
			plan, err := order.New([]order.Source{{Table: tables[s]}}, g.Params(s))
			if err != nil {
				return err
			}
			labels := mixing.Parts(samples[s])
			alone, err := mixing.Measure(plan, labels, int(global*shares[s]/16), nil, mixing.Span{})
			if err != nil {
				return err
			}
			if r := in / alone.VIF; math.Abs(r-1) >= math.Abs(far-1) {
				far = r
				detail = fmt.Sprintf("source %d of %d: %.3f against %.3f", s, len(mixed), in, alone.VIF)
			}
		}
		worst = append(worst, far)
	}
	b.Within("mix", "VIF of a source in a mix / alone with its part of the memory", worst, "x", 0.05,
		"the source that is furthest off, of three mixes; sorted by class; in the last, "+detail)
	return nil
}

// vifs is the variance inflation of each source's part of the global batches, in the source's first
// epoch.
func vifs(g *generated, global int) (out []float64, err error) {
	c, err := g.seek(0)
	if err != nil {
		return nil, err
	}
	meters := make([]*mixing.Meter, len(g.tables))
	parts, left := make([][]order.Ref, len(meters)), len(meters)
	for s := range meters {
		meters[s] = mixing.NewMeter(mixing.Parts(g.Sources[s].Units))
	}
	var refs []order.Ref
	for ended := make([]bool, len(meters)); left > 0; {
		if refs, _, err = c.NextBatch(refs[:0], order.Split{GlobalBatch: global, World: 1}); err != nil {
			return nil, err
		}
		for s := range parts {
			parts[s] = parts[s][:0]
		}
		for _, r := range refs {
			parts[r.Source] = append(parts[r.Source], r)
		}
		for s, part := range parts {
			if !ended[s] && part[len(part)-1].Epoch == 0 {
				meters[s].Batch(part, len(part))
			} else if !ended[s] {
				ended[s] = true
				left--
			}
		}
	}
	for _, m := range meters {
		out = append(out, m.Figures().VIF)
	}
	return out, nil
}
