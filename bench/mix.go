package main

import (
	"errors"
	"fmt"
	"io"
	"runtime"

	"golang.org/x/sync/errgroup"

	"github.com/shardtool/shardtool/bench/table"
	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/mixfile"
	"github.com/shardtool/shardtool/reader/order/mix"
)

// mixed reads some epochs of a mix of n sources on several ranks of one process. Each source is the data
// set of dir, opened for itself: with n of them, an epoch of the mix has the bytes of n epochs of one.
func (b *bench) mixed(dir string, n, ranks, workers int, o reader.StreamOptions) func() error {
	return func() error {
		x, err := b.openMix(dir, n, workers, o)
		if err != nil {
			return err
		}
		for _, ds := range x.Sets {
			defer ds.Close()
		}
		var g errgroup.Group
		seen, blocks := make([]uint64, ranks), make([]uint64, ranks)
		for rank := range ranks {
			g.Go(func() error {
				o := o
				o.Rank, o.World, o.Epochs, o.Workers = rank, ranks, epochs, workers
				s, err := reader.OpenMix(b.ctx, x, o)
				if err != nil {
					return err
				}
				defer s.Close()
				defer func() { blocks[rank] = s.Stats().Blocks }()
				for {
					batch, err := s.Next(b.ctx)
					if errors.Is(err, io.EOF) {
						return nil
					}
					if err != nil {
						return err
					}
					seen[rank] += uint64(len(batch.Samples))
				}
			})
		}
		if err := g.Wait(); err != nil {
			return err
		}
		total, read := uint64(0), uint64(0)
		for rank, n := range seen {
			total, read = total+n, read+blocks[rank]
		}
		b.twice = float64(read)/float64(uint64(n)*epochs*x.Sets[0].NumBlocks()) - 1
		if want := epochs * x.Plan.Mix().Epoch; total != want {
			return fmt.Errorf("%d samples of %d came", total, want)
		}
		return nil
	}
}

func (b *bench) openMix(dir string, n, workers int, o reader.StreamOptions) (x reader.Mix, err error) {
	file := &mixfile.File{Name: "mix"}
	var data []mixfile.Data
	for i := range n {
		ds, err := b.open(dir, reader.Options{Workers: workers})
		if err != nil {
			return x, err
		}
		table, err := ds.OrderTable(b.ctx)
		if err != nil {
			return x, err
		}
		x.Sets = append(x.Sets, ds)
		file.Sources = append(file.Sources, mixfile.Source{Name: fmt.Sprintf("s%02d", i)})
		data = append(data, mixfile.Data{Table: table, Digest: format.DigestString(ds.Digest()), Tables: ds.Tables()})
	}
	m, err := file.Mix(data, o.Choice(), nil)
	if err != nil {
		return x, err
	}
	x.Plan, err = mix.New(m)
	return x, err
}

// mix measures streams of several sources against a stream of the same bytes from one.
func (b *bench) mix() error {
	text, err := b.dataset("large text", false)
	if err != nil {
		return err
	}
	const sources = 4
	one := shuffled
	one.Epochs = sources * epochs
	one.ShuffleMemory /= sources // the same window on each data set: what is read once and used in two epochs is alike
	var again, alone float64
	mixed := func() error {
		err := b.mixed(text, sources, 1, 2, shuffled)()
		again = b.twice
		return err
	}
	single := func() error {
		err := b.streams(text, 1, 2, one)()
		alone = b.twice
		return err
	}
	r, _, _, err := b.ratio(mixed, single)
	if err != nil {
		return err
	}
	b.AtLeast("mix", fmt.Sprintf("text 3 KB: %d sources / the same bytes from one", sources), r, "x", 0.97,
		fmt.Sprintf("1 rank with 2 workers; %.1f %% of blocks are read twice an epoch, against %.1f %%", 100*again, 100*alone))
	before := runtime.NumGoroutine()
	var taken [2]int
	for i, n := range []int{1, 64} {
		x, err := b.openMix(text, n, 1, reader.StreamOptions{Order: reader.Order{Shuffle: true, ShuffleMemory: 4 << 30}})
		if err != nil {
			return err
		}
		s, err := reader.OpenMix(b.ctx, x, reader.StreamOptions{Read: reader.Read{Workers: 1}})
		if err != nil {
			return err
		}
		_, err = s.Next(b.ctx)
		taken[i] = runtime.NumGoroutine() - before
		s.Close()
		for _, ds := range x.Sets {
			ds.Close()
		}
		if err != nil {
			return err
		}
	}
	b.AtMost("mix", "goroutines of 64 sources / of one", table.One(float64(taken[1])/float64(taken[0])), "x", 1.5, fmt.Sprintf("%d and %d", taken[1], taken[0]))
	return nil
}
