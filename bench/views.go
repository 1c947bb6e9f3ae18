package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"sort"
	"strings"
	"time"

	"github.com/shardtool/shardtool/bench/table"
	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/format/viewfile"
	"github.com/shardtool/shardtool/objstore/local"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/order"
	"github.com/shardtool/shardtool/reader/order/view"
	"github.com/shardtool/shardtool/reader/stats"
	"github.com/shardtool/shardtool/reshard/curate"
	"github.com/shardtool/shardtool/writer"
)

// viewed is the samples of the data set of this group, which has attributes: a class out of 1,000,
// of which the largest has 1,000 times as many samples as the smallest, and two numbers.
const viewed = 200_000

// views measures what making and reading views costs.
func (b *bench) views() error {
	dir := filepath.Join(b.dir, "views")
	if err := b.packViewed(dir); err != nil {
		return err
	}
	ds, err := b.open(dir, reader.Options{})
	if err != nil {
		return err
	}
	defer ds.Close()
	for _, measure := range []func(*reader.Dataset) error{b.viewBytes, b.viewRate, b.predicate, b.keyList, b.viewFiles, b.balanced} {
		if err := measure(ds); err != nil {
			return err
		}
	}
	return b.weightedPlan()
}

// packViewed packs the data set unless an earlier run did.
func (b *bench) packViewed(dir string) error {
	if _, err := os.Stat(filepath.Join(dir, format.ManifestName)); err == nil {
		return nil
	}
	store, err := local.New(dir, local.Options{NoSync: true})
	if err != nil {
		return err
	}
	w, err := writer.New(b.ctx, store, writer.Options{BlockSize: 32 << 10, ShardSize: 16 << 20})
	if err != nil {
		return err
	}
	defer w.Abort()
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range viewed {
		class := int(1000 * skewed(rnd.Float64()))
		s := writer.Sample{Key: viewedKey(i), Fields: []writer.Field{{Name: "txt", Data: []byte(fmt.Sprintf("%x", rnd.Uint64()))}}, Attrs: []format.AttrValue{
			{Attribute: format.Attribute{Name: "class", Kind: format.AttrLabel}, Label: fmt.Sprintf("c%03d", class)},
			{Attribute: format.Attribute{Name: "width", Kind: format.AttrInteger}, Integer: rnd.Int64N(2000)},
			{Attribute: format.Attribute{Name: "score", Kind: format.AttrNumber}, Number: rnd.Float64()},
		}}
		if err := w.Write(b.ctx, s); err != nil {
			return err
		}
	}
	_, err = w.Close(b.ctx)
	return err
}

func viewedKey(i int) string { return fmt.Sprintf("p%02d/%08d", i%100, i) }

// skewed maps a uniform x so that the density falls by a factor of 1,000 from 0 to 1.
func skewed(x float64) float64 {
	return -math.Log(1-x*(1-1e-3)) / math.Log(1000)
}

// subset is the view of the samples for which chosen holds.
func subset(ds *reader.Dataset, chosen func(i int) bool) *viewfile.View {
	v := &viewfile.View{Digest: ds.Digest(), Samples: ds.NumSamples(), Chosen: make([]byte, (ds.NumSamples()+7)/8)}
	for i := range int(v.Samples) {
		if chosen(i) {
			v.Chosen[i/8] |= 1 << (i % 8)
		}
	}
	return v
}

// readView reads an epoch of a view, or of all samples where v is nil.
func (b *bench) readView(ds *reader.Dataset, v *viewfile.View) (stats stats.Stream, err error) {
	d, err := b.open(filepath.Join(b.dir, "views"), reader.Options{})
	if err != nil {
		return stats, err
	}
	defer d.Close()
	if v != nil {
		if err := d.UseView(v); err != nil {
			return stats, err
		}
	}
	s, err := d.Stream(b.ctx, reader.StreamOptions{Order: reader.Order{Shuffle: true, Epochs: 1, GlobalBatch: 256}, Read: reader.Read{Workers: b.cores}})
	if err != nil {
		return stats, err
	}
	defer s.Close()
	for {
		if _, err = s.Next(b.ctx); err != nil {
			break
		}
	}
	if !errors.Is(err, io.EOF) {
		return stats, err
	}
	return s.Stats(), nil
}

// viewBytes is what views of one sample in a hundred read.
func (b *bench) viewBytes(ds *reader.Dataset) error {
	whole, err := b.readView(ds, nil)
	if err != nil {
		return err
	}
	rnd := rand.New(rand.NewPCG(3, 4))
	spread := subset(ds, func(int) bool { return rnd.IntN(100) == 0 })
	t, err := ds.OrderTable(b.ctx)
	if err != nil {
		return err
	}
	held, first := 0, 0
	for _, n := range t.Samples {
		for i := first; i < first+int(n); i++ {
			if spread.Chosen[i/8]>>(i%8)&1 != 0 {
				held++
				break
			}
		}
		first += int(n)
	}
	stats, err := b.readView(ds, spread)
	if err != nil {
		return err
	}
	b.AtMost("views", "1 % of samples, spread: blocks read / blocks that hold them", table.One(float64(stats.Blocks)/float64(held)), "x", 1.05,
		fmt.Sprintf("%d of %d blocks hold a chosen sample", held, ds.Info().Blocks))
	stats, err = b.readView(ds, subset(ds, func(i int) bool { return i/(viewed/100) == 37 }))
	if err != nil {
		return err
	}
	b.AtMost("views", "1 % of samples, together: bytes read / those of the data set", table.One(100*float64(stats.StoredBytes)/float64(whole.StoredBytes)), "%", 1.2,
		fmt.Sprintf("%d blocks of %d", stats.Blocks, ds.Info().Blocks))
	return nil
}

// viewRate is the rate of a view of every other sample.
func (b *bench) viewRate(ds *reader.Dataset) error {
	rnd := rand.New(rand.NewPCG(5, 6))
	half := subset(ds, func(int) bool { return rnd.IntN(2) == 0 })
	r, _, _, err := b.ratio(func() error { _, err := b.readView(ds, half); return err }, func() error { _, err := b.readView(ds, nil); return err })
	if err != nil {
		return err
	}
	b.AtLeast("views", "half of all samples, spread: blocks a second / those of the whole data set", r, "x", 0.9, "both read every block once")
	return nil
}

// predicate evaluates an expression over 1e8 rows: those of the data set, many times.
func (b *bench) predicate(ds *reader.Dataset) error {
	const rows = 100_000_000
	spec := curate.Spec{Where: []string{"score >= 0.5 and (class in (c000, c001, c777) or width between 100 and 1500) and class is not null"}}
	before := cpu()
	for range rows / viewed {
		if _, _, err := curate.Make(b.ctx, ds, spec); err != nil {
			return err
		}
	}
	took := cpu() - before
	b.AtMost("views", "an expression over 1e8 rows of three attributes", table.One(took.Seconds()), "s CPU", 10, "indexes read and decoded each time")
	return nil
}

// keyList makes a view of a list of 1e7 keys, of which the data set has some.
func (b *bench) keyList(ds *reader.Dataset) error {
	const keys = 10_000_000
	name := filepath.Join(b.dir, "keys.txt")
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer os.Remove(name)
	w := bufio.NewWriterSize(f, 1<<20)
	for i := range keys {
		fmt.Fprintln(w, viewedKey(i))
	}
	if err := errors.Join(w.Flush(), f.Close()); err != nil {
		return err
	}
	runtime.GC()
	var most uint64
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for tick := time.NewTicker(50 * time.Millisecond); ; {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			most = max(most, m.HeapInuse)
			select {
			case <-tick.C:
			case <-stop:
				return
			}
		}
	}()
	begin := time.Now()
	_, r, err := curate.Make(b.ctx, ds, curate.Spec{Keys: curate.KeyFile(name), AllowMissing: true, Temp: b.dir})
	took := time.Since(begin)
	close(stop)
	<-ended
	if err != nil {
		return err
	}
	if r.Chosen != viewed {
		return fmt.Errorf("%d samples were found", r.Chosen)
	}
	b.AtMost("views", "a list of 1e7 keys: time", table.One(took.Seconds()), "s", 5, fmt.Sprintf("%d of them are in the data set", r.Chosen))
	b.AtMost("views", "a list of 1e7 keys: heap in use", table.One(float64(most)/(1<<20)), "MiB", 256, "")
	return nil
}

// viewFiles is the size of views of 1e7 samples.
func (b *bench) viewFiles(*reader.Dataset) error {
	const n = 10_000_000
	rnd := rand.New(rand.NewPCG(7, 8))
	half, weights := &viewfile.View{Samples: n, Chosen: make([]byte, n/8)}, &viewfile.View{Samples: n, Weights: make([]uint32, n), Draws: n}
	for i := range half.Chosen {
		half.Chosen[i] = byte(rnd.Uint32())
	}
	for i := range weights.Weights {
		weights.Weights[i] = rnd.Uint32()
	}
	for _, c := range []struct {
		name string
		v    *viewfile.View
		goal float64
	}{{"subset, chosen at random", half, 1. / 8}, {"weights, at random", weights, 4}} {
		file, err := c.v.Encode()
		if err != nil {
			return err
		}
		b.AtMost("views", c.name+": bytes a sample", table.One(float64(len(file))/n), "B", c.goal*1.001, "1e7 samples, which no compression makes smaller")
	}
	return nil
}

// weightedPlan plans epochs of a view of 1e8 samples.
func (b *bench) weightedPlan() error {
	const n = 100_000_000
	t := unpacked(n)
	u := make([]uint32, n)
	for i := range u {
		u[i] = uint32(i%1000) + 1
	}
	var err error
	if t.View, err = view.Weights(t.Samples, u, n); err != nil {
		return err
	}
	plan, err := newPlan(t, order.Choice{})
	if err != nil {
		return err
	}
	var took table.Sample
	for epoch := range uint64(b.times) {
		begin := time.Now()
		c, err := plan.Seek(epoch, n/2)
		if err == nil {
			_, _, err = c.NextBatch(nil, order.Split{GlobalBatch: 1024, World: 1})
		}
		if err != nil {
			return err
		}
		took = append(took, time.Since(begin).Seconds())
	}
	b.AtMost("views", "weights of 1e8 samples: an epoch planned, and a batch in its middle", took, "s", 0.5, "")
	return nil
}

// balanced compares batches of a balanced view with independent draws, as a WeightedRandomSampler
// makes them.
func (b *bench) balanced(ds *reader.Dataset) error {
	v, _, err := curate.Make(b.ctx, ds, curate.Spec{Balance: "class"})
	if err != nil {
		return err
	}
	class := make([]string, viewed)
	for i := range ds.NumShards() {
		first, err := ds.FirstSample(b.ctx, i)
		if err != nil {
			return err
		}
		columns, err := ds.Columns(b.ctx, i, []string{"class"})
		if err != nil {
			return err
		}
		for k := range columns[0].Len() {
			value, _ := columns[0].At(k)
			class[int(first)+k] = strings.Clone(value.Label)
		}
	}
	t, err := ds.OrderTable(b.ctx)
	if err != nil {
		return err
	}
	if t.View, err = view.Weights(t.Samples, v.Weights, v.Draws); err != nil {
		return err
	}
	for _, window := range []uint64{1, 8} { // the data set is that many times the shuffle memory
		memory := t.Decoded / window
		if window == 1 {
			memory = order.DefaultMemory
		}
		if err := b.balancedBatches(t, v, class, memory); err != nil {
			return err
		}
	}
	return nil
}

// balancedBatches measures an order of a balanced view.
func (b *bench) balancedBatches(t order.Table, v *viewfile.View, class []string, memory uint64) error {
	plan, err := newPlan(t, order.Choice{Memory: memory})
	if err != nil {
		return err
	}
	const batch = 1024
	batches, opened, err := wholeBatches(plan, batch)
	if err != nil {
		return err
	}
	ours, theirs := inflation(batches, class), inflation(independentDraws(v, len(batches), batch), class)
	p := plan.Params()
	name := "1,000 classes, 1 : 1,000, balanced: variance of classes in a batch / that of independent draws"
	detail := fmt.Sprintf("global batch %d, V=%d W=%d E=%d, %d runs opened", batch, p.Lanes, p.Delay, p.RunBlocks, opened)
	if memory == order.DefaultMemory {
		b.AtMost("views", name, table.One(ours/theirs), "x", 1.2, detail+"; the shuffle memory holds the data set")
	} else {
		b.Info("views", name, table.One(ours/theirs), "x", detail+"; the data set is 8 times the shuffle memory, so the draws of a rare class lie together")
	}
	return nil
}

// wholeBatches lists the samples of the whole batches of an epoch.
func wholeBatches(plan *order.Plan, size int) (batches [][]uint64, opened int, err error) {
	c, err := plan.Seek(0, 0)
	if err != nil {
		return nil, 0, err
	}
	c.Until(1)
	for {
		refs, info, err := c.NextBatch(nil, order.Split{GlobalBatch: size, World: 1})
		if errors.Is(err, io.EOF) {
			return batches, opened, nil
		}
		if err != nil {
			return nil, 0, err
		}
		opened += len(info.Opened)
		if len(refs) == size {
			numbers := make([]uint64, size)
			for i, r := range refs {
				numbers[i] = r.Number
			}
			batches = append(batches, numbers)
		}
	}
}

// independentDraws are batches of draws with replacement.
func independentDraws(v *viewfile.View, n, size int) [][]uint64 {
	rnd := rand.New(rand.NewPCG(9, 10))
	sums := make([]uint64, len(v.Weights))
	total := uint64(0)
	for i, u := range v.Weights {
		total += uint64(u)
		sums[i] = total
	}
	batches := make([][]uint64, n)
	for i := range batches {
		for range size {
			x := rnd.Uint64N(total)
			batches[i] = append(batches[i], uint64(sort.Search(len(sums), func(k int) bool { return sums[k] > x })))
		}
	}
	return batches
}

// inflation is the variance of how often a class is in a batch, over that of independent draws
// where all classes are equally frequent.
func inflation(batches [][]uint64, class []string) float64 {
	number := map[string]int{}
	for _, c := range class {
		if _, known := number[c]; !known {
			number[c] = len(number)
		}
	}
	classes, sum := float64(len(number)), 0.
	for _, batch := range batches {
		counts := make([]float64, len(number))
		for _, n := range batch {
			counts[number[class[n]]]++
		}
		mean := float64(len(batch)) / classes
		for _, c := range counts {
			sum += (c - mean) * (c - mean)
		}
	}
	size := float64(len(batches[0]))
	return sum / (float64(len(batches)) * classes * size / classes * (1 - 1/classes))
}
