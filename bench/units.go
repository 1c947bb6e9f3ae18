package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"runtime"
	"time"

	"github.com/shardtool/shardtool/bench/table"
	"github.com/shardtool/shardtool/reader/order"
	"github.com/shardtool/shardtool/reader/order/units"
)

// lengthsOf is n samples with lengths of a log-normal distribution, in blocks of 1 MiB.
type lengthsOf struct {
	mu, sigma float64
	bytes     float64 // of a unit of length
	scale     float64 // of the lengths: 100 makes frames of seconds
}

func (c lengthsOf) make(n int) (order.Table, []uint32) {
	r := rand.New(rand.NewPCG(11, 12))
	var t order.Table
	lengths := make([]uint32, n)
	samples, size := uint32(0), 0.0
	block := func() {
		if len(t.Samples)%256 == 0 {
			t.ShardFirst = append(t.ShardFirst, len(t.Samples))
		}
		t.Samples = append(t.Samples, samples)
		samples, size = 0, 0
	}
	for i := range lengths {
		lengths[i] = uint32(max(1, c.scale*math.Exp(c.mu+c.sigma*r.NormFloat64())))
		if own := c.bytes*float64(lengths[i]) + 512; size+own > 1<<20 && samples > 0 {
			block()
		}
		samples, size = samples+1, size+c.bytes*float64(lengths[i])+512
	}
	block()
	t.Decoded = uint64(len(t.Samples)) << 20
	return t, lengths
}

func (c lengthsOf) units(n int, p units.Params) (*units.Units, error) {
	t, lengths := c.make(n)
	return unitsOf(t, lengths, p)
}

func unitsOf(t order.Table, lengths []uint32, p units.Params) (*units.Units, error) {
	o, p, err := units.Choose(t, order.Choice{Shuffle: true, Seed: 42, Epochs: 1}, p)
	if err != nil {
		return nil, err
	}
	plan, err := order.New([]order.Source{{Table: t, Digest: "sha256:00"}}, o)
	if err != nil {
		return nil, err
	}
	return units.New(plan, lengths, p)
}

var (
	webText   = lengthsOf{mu: 6.2, sigma: 1.2, bytes: 4, scale: 1}
	shortText = lengthsOf{mu: 5.5, sigma: 0.9, bytes: 4, scale: 1}
	speech    = lengthsOf{mu: 1.8, sigma: 0.6, bytes: 320, scale: 100} // 10 ms frames of 16 kHz audio
)

// units measures how full units are, and what planning them costs.
func (b *bench) units() error {
	if err := b.fill(webText, 1e6, 8192, 99); err != nil {
		return err
	}
	if err := b.fill(shortText, 1e5, 4096, 98); err != nil {
		return err
	}
	if err := b.bucketPadding(); err != nil {
		return err
	}
	if err := b.planning(); err != nil {
		return err
	}
	if err := b.elasticUnits(); err != nil {
		return err
	}
	return b.unitStreams()
}

func (b *bench) fill(c lengthsOf, n int, length uint32, least float64) error {
	u, err := c.units(n, units.Params{Kind: units.Pack, Size: length, Long: units.LongSplit})
	if err != nil {
		return err
	}
	plan, err := u.Plan(b.ctx, 0, 2, nil)
	if err != nil {
		return err
	}
	fill := 100 * float64(u.Summary().Tokens) / float64(plan.Units()*uint64(length))
	b.AtLeast("units", fmt.Sprintf("fill of sequences of %d, lognormal(%.1f, %.1f)", length, c.mu, c.sigma), table.One(fill), "%", least,
		fmt.Sprintf("%d samples, default memory, windows of %d; long samples are split", n, u.Params().Window))
	return nil
}

// bucketPadding is the part of micro-batches that is padding: utterances of 6 s in the median.
func (b *bench) bucketPadding() error {
	const samples, budget = 2e5, 12_000 // two minutes
	u, err := speech.units(samples, units.Params{Kind: units.Bucket, Size: budget, Long: units.LongDrop})
	if err != nil {
		return err
	}
	c, err := u.Seek(0, 0, plansOf(b.ctx, u))
	if err != nil {
		return err
	}
	c.Until(1)
	var tokens, padded uint64
	var refs []order.Ref
	for {
		var batch order.Batch
		refs, batch, err = c.NextBatch(refs[:0], order.Split{GlobalBatch: 64, World: 1})
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		var count, longest uint64
		for i, cut := range batch.Cuts {
			tokens, count, longest = tokens+uint64(cut.Length), count+1, max(longest, uint64(cut.Length))
			if i+1 == len(batch.Cuts) || batch.Cuts[i+1].Unit != cut.Unit {
				padded += count * longest
				count, longest = 0, 0
			}
		}
	}
	b.AtMost("units", "padding of micro-batches by duration, lognormal(1.8, 0.6)", table.One(100-100*float64(tokens)/float64(padded)), "%", 5,
		fmt.Sprintf("%d utterances, two minutes a micro-batch, windows of %d", int(samples), u.Params().Window))
	return nil
}

// planning is what an epoch costs before its first batch: where no plan was kept, and where one
// was.
func (b *bench) planning() error {
	for _, n := range []int{1e5, 1e6, 1e7, 1e8} {
		runtime.GC()
		before := heap()
		t, lengths := webText.make(n)
		u, err := unitsOf(t, lengths, units.Params{Kind: units.Pack, Size: 8192, Long: units.LongSplit})
		if err != nil {
			return err
		}
		one, all, kept, err := b.starts(u, lengths)
		if err != nil {
			return err
		}
		if n == 1e7 {
			b.AtLeast("units", "planning of packed sequences", one.per(float64(n)/1e6), "M samples/s", 5, "one core, the order included")
		}
		size := fmt.Sprintf("10^%.0f samples", math.Log10(float64(n)))
		b.Info("units", "plan of an epoch, "+size, all.By(1e-3), "ms", fmt.Sprintf("%d cores, the hash of all lengths included; lengths, tables and plan take %.1f bytes a sample",
			b.cores, float64(heap()-before)/float64(n)))
		b.Info("units", "start with a kept plan, "+size, kept.By(1e-3), "ms", "until the order has its first batch, in the middle of the epoch; reading the lengths not included")
		runtime.KeepAlive(u)
	}
	return nil
}

// starts measures, in seconds, a plan by one core, one by all of them with the hash that names it,
// and the first batch of the order where the plan is there.
func (b *bench) starts(u *units.Units, lengths []uint32) (one, all, kept seconds, err error) {
	times := b.times
	if u.Order().Samples() > 1e7 {
		times = 1
	}
	timed := func(to *seconds, f func() error) {
		if begin := time.Now(); err == nil {
			err = f()
			to.Sample = append(to.Sample, time.Since(begin).Seconds())
		}
	}
	for range times {
		var text []byte
		timed(&one, func() error { _, err := u.Plan(b.ctx, 0, 1, nil); return err })
		timed(&all, func() error {
			again, err := units.New(u.Order(), lengths, u.Params())
			if err != nil {
				return err
			}
			again.Key(0)
			plan, err := again.Plan(b.ctx, 0, b.cores, nil)
			if err == nil {
				text = units.AppendPlan(nil, plan)
			}
			return err
		})
		timed(&kept, func() error {
			again, err := units.New(u.Order(), lengths, u.Params())
			if err != nil {
				return err
			}
			again.Key(0)
			plan, err := again.DecodePlan(0, text)
			if err != nil {
				return err
			}
			c, err := again.Seek(0, plan.Units()/2, func(uint64) (*units.Plan, error) { return plan, nil })
			if err == nil {
				_, _, err = c.NextBatch(nil, order.Split{GlobalBatch: 16, World: 1})
			}
			return err
		})
	}
	return one, all, kept, err
}

// seconds are measurements of the same thing.
type seconds struct{ table.Sample }

// per returns the rates of n things.
func (s seconds) per(n float64) table.Sample {
	out := make(table.Sample, len(s.Sample))
	for i, took := range s.Sample {
		out[i] = n / took
	}
	return out
}

// heap is what is in use.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// elasticUnits resumes chains of jobs at random places, with other batches and ranks each time, and
// counts every token by sample and offset.
func (b *bench) elasticUnits() error {
	const chains, samples = 100, 1000
	r := rand.New(rand.NewPCG(13, 14))
	u, err := webText.units(samples, units.Params{Kind: units.Pack, Size: 512, Long: units.LongSplit, Window: 64})
	if err != nil {
		return err
	}
	_, lengths := webText.make(samples)
	first := make([]uint64, samples+1) // token of each sample
	for i, n := range lengths {
		first[i+1] = first[i] + uint64(n)
	}
	wrong, starts := 0, 0
	for range chains {
		seen := make([]uint8, first[samples])
		for epoch, position := uint64(0), uint64(0); epoch == 0; starts++ {
			s := order.Split{GlobalBatch: 1 + r.IntN(64), World: 1 + r.IntN(8)}
			if epoch, position, err = startUnits(b.ctx, u, epoch, position, s, 1+r.IntN(20), func(number uint64, cut order.Cut) {
				for k := range uint64(cut.Length) {
					seen[first[number]+uint64(cut.Offset)+k]++
				}
			}); err != nil {
				return err
			}
		}
		for _, times := range seen {
			if times != 1 {
				wrong++
			}
		}
	}
	b.AtMost("units", "100 elastic chains: tokens lost or repeated", table.One(float64(wrong)), "", 0,
		fmt.Sprintf("%d tokens in each, counted by document and offset; %d starts with other batches and ranks", first[samples], starts))
	return nil
}

// startUnits reads some steps of all ranks from a place on, and returns the place after them.
func startUnits(ctx context.Context, u *units.Units, epoch, position uint64, s order.Split, steps int, see func(uint64, order.Cut)) (uint64, uint64, error) {
	plans := plansOf(ctx, u)
	cursors := make([]*units.Cursor, s.World)
	for rank := range cursors {
		var err error
		if cursors[rank], err = u.Seek(epoch, position, plans); err != nil {
			return 0, 0, err
		}
		cursors[rank].Until(1)
	}
	for range steps {
		for rank, c := range cursors {
			s.Rank = rank
			refs, b, err := c.NextBatch(nil, s)
			if errors.Is(err, io.EOF) {
				return epoch, position, nil
			}
			if err != nil {
				return 0, 0, err
			}
			for i, cut := range b.Cuts {
				see(refs[i].Number, cut)
			}
		}
		epoch, position = cursors[0].Place()
	}
	return epoch, position, nil
}

// plansOf makes the plan of each epoch once.
func plansOf(ctx context.Context, u *units.Units) units.Plans {
	made := map[uint64]*units.Plan{}
	return func(epoch uint64) (_ *units.Plan, err error) {
		if made[epoch] == nil {
			made[epoch], err = u.Plan(ctx, epoch, 2, nil)
		}
		return made[epoch], err
	}
}
