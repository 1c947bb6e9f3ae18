package main

import (
	"context"
	"fmt"
	"iter"
	"os"
	"path/filepath"

	"github.com/shardtool/shardtool/bench/corpus"
	"github.com/shardtool/shardtool/bench/table"
	"github.com/shardtool/shardtool/objstore/local"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/writer"
)

// mixed reads some epochs of a mix of the data sets in these folders, on several ranks of one
// process.
func (b *bench) mixed(dirs []string, ranks, workers int, o reader.StreamOptions) func() error {
	return func() error {
		x, err := b.openMix(dirs, workers)
		if err != nil {
			return err
		}
		defer x.Close()
		o := o
		o.World, o.Epochs, o.Tuning.Workers = ranks, epochs, workers
		asked := reader.Spec{Order: o.Choice()}
		length, _, err := x.Extent(nil, false)
		if err != nil {
			return err
		}
		blocks := uint64(0)
		for _, ds := range x.All() {
			blocks += epochs * ds.Info().Blocks
		}
		run, err := x.Resolve(b.ctx, asked, nil, reader.Change{}, reader.Planning{})
		if err != nil {
			return err
		}
		defer run.Close()
		return b.drain(o, epochs*length, blocks,
			func(o reader.StreamOptions) (*reader.Stream, error) { return run.Stream(b.ctx, o) })
	}
}

// openMix opens the sources of a mix in which each data set has a share in proportion to its
// samples.
func (b *bench) openMix(dirs []string, workers int) (*reader.Sources, error) {
	var spec reader.Spec
	for i, dir := range dirs {
		spec.Sources = append(spec.Sources, reader.SourceSpec{Name: fmt.Sprintf("s%03d", i), Data: dir})
	}
	return reader.OpenSources(b.ctx, spec,
		func(_ context.Context, s *reader.SourceSpec, _ string) (*reader.Dataset, error) {
			return b.open(s.Data, reader.Options{Workers: workers})
		}, nil)
}

// partsAndWhole packs a corpus into n data sets, and once more into one with the samples of all of
// them.
func (b *bench) partsAndWhole(kind string, n int, opt writer.Options,
	part func(i int) iter.Seq[corpus.Sample]) (dirs []string, whole string, err error) {
	whole = filepath.Join(b.dir, "mix-"+kind)
	pack := func(dir string, samples iter.Seq[corpus.Sample]) error {
		store, err := local.New(dir, local.Options{NoSync: true})
		if err != nil {
			return err
		}
		_, err = b.write(store, samples, opt)
		return err
	}
	for i := range n {
		dirs = append(dirs, fmt.Sprintf("%s-%03d", whole, i))
		if err := pack(dirs[i], part(i)); err != nil {
			return nil, "", err
		}
	}
	return dirs, whole, pack(whole, func(yield func(corpus.Sample) bool) {
		for i := range n {
			for s := range part(i) {
				s.Key = fmt.Sprintf("%d/%s", i, s.Key)
				if !yield(s) {
					return
				}
			}
		}
	})
}

// mixes compares a stream of four data sets with one of a data set that has the samples of all
// four, with the same memory.
func (b *bench) mixes() error {
	const sources = 4
	for _, kind := range []struct {
		name, shown string
		size        int // of a sample
	}{{"text", "text 3 KB", 3000}, {"short", "text 250 B", 250}} {
		samples := 4 * b.mib << 20 / (kind.size + 1000) / sources // each has a header, and fills whole blocks of a tar
		dirs, whole, err := b.partsAndWhole(kind.name, sources, writer.Options{}, func(i int) iter.Seq[corpus.Sample] {
			return corpus.Text(corpus.Options{Samples: samples, MeanSize: kind.size, Seed: uint64(10 + i)})
		})
		if err != nil {
			return err
		}
		ours, base := cpuTimed{run: b.mixed(dirs, 1, 2, shuffled)}, cpuTimed{run: b.streams(whole, 1, 2, shuffled)}
		var again, alone float64
		r, _, _, err := b.ratio(func() error { defer func() { again = b.twice }(); return ours.call() },
			func() error { defer func() { alone = b.twice }(); return base.call() })
		if err != nil {
			return err
		}
		what := fmt.Sprintf("%s: %d sources / the same samples from one", kind.shown, sources)
		b.AtLeast("mixes", what, r, "x", 0.97,
			fmt.Sprintf("1 rank with 2 workers; %.1f %% of blocks are read twice an epoch, against %.1f %%", 100*again,
				100*alone))
		per := 1e9 / float64(epochs*sources*samples)
		b.AtLeast("mixes", what+", by CPU time", base.took[1:].Over(ours.took[1:]), "x", 0.97,
			fmt.Sprintf("%.0f ns a sample against %.0f ns: what else runs on the machine disturbs this less",
				per*ours.took.Median(), per*base.took.Median()))
		for _, dir := range append(dirs, whole) {
			if err := os.RemoveAll(dir); err != nil {
				return err
			}
		}
	}
	return nil
}

// cpuTimed notes the processor time that this process takes for each call, in seconds.
type cpuTimed struct {
	run  func() error
	took table.Sample
}

func (c *cpuTimed) call() error {
	before := cpu()
	err := c.run()
	c.took = append(c.took, (cpu() - before).Seconds())
	return err
}
