package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/shardtool/shardtool/bench/table"
	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/format/codec"
	"github.com/shardtool/shardtool/format/names"
	"github.com/shardtool/shardtool/format/sections"
	"github.com/shardtool/shardtool/format/tarblock"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/local"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/explain"
	"github.com/shardtool/shardtool/reader/mixfile"
	"github.com/shardtool/shardtool/reader/order"
	"github.com/shardtool/shardtool/reader/order/mix"
)

// tiled is a store whose shards have one block, again and again, in place of bytes that would fill
// a data center. Tables are read from the store below.
type tiled struct {
	objstore.Store
	block []byte
}

func (s *tiled) Open(ctx context.Context, name string) (objstore.Object, error) {
	if !strings.HasSuffix(name, format.ZstdSuffix) {
		return s.Store.Open(ctx, name)
	}
	return &tiledObject{s.block}, nil
}

type tiledObject struct{ block []byte }

func (o *tiledObject) ReadAt(_ context.Context, p []byte, off int64) error {
	for n := int(off % int64(len(o.block))); len(p) > 0; n = 0 {
		p = p[copy(p, o.block[n:]):]
	}
	return nil
}

// The shards of generate: 256 MiB decoded.
const (
	tiledSamples = 256 // of a block of 256 KiB, the default for small samples
	tiledBlocks  = 1024
	tiledTail    = 400_000 // bytes of an index of as many keys and sizes
)

func (o *tiledObject) Info(context.Context) (objstore.Info, error) {
	return objstore.Info{Size: int64(tiledBlocks*len(o.block)+len(sections.EndOfArchive(false))) + tiledTail}, nil
}

func (o *tiledObject) Close() error { return nil }

// generate publishes the tables of a data set of about n samples in shards of one block repeated.
func (b *bench) generate(name string, n uint64) (*tiled, error) {
	store, err := local.New(filepath.Join(b.dir, name), local.Options{NoSync: true})
	if err != nil {
		return nil, err
	}
	var plain []byte
	var cuts, payloads []int
	rng := rand.NewChaCha8([32]byte{1})
	for i := range tiledSamples {
		cuts = append(cuts, len(plain))
		plain = tarblock.AppendHeader(plain, fmt.Sprintf("%016x.txt", uint64(i)*0x9E3779B97F4A7C15), 300)
		payloads = append(payloads, len(plain))
		text := make([]byte, 300)
		_, _ = rng.Read(text[:225])
		plain = append(plain, base64.StdEncoding.AppendEncode(nil, text[:225])...)
		plain = append(plain, make([]byte, 212)...)
	}
	enc := codec.NewEncoder(codec.LevelDefault)
	defer enc.Close()
	block, storedAs, err := enc.AppendFrame(nil, plain, cuts, payloads)
	if err != nil {
		return nil, err
	}
	row := format.Row{Stored: uint32(len(block)), Decoded: uint32(len(plain)), Samples: tiledSamples, CRC: codec.Checksum(block), Codec: storedAs}
	rows := make([]format.Row, tiledBlocks)
	for i := range rows {
		rows[i] = row
	}
	m := &sections.Manifest{Generation: 1, Meta: format.Metadata{"tool": "bench"}}
	s := &tiled{store, block}
	info, _ := (&tiledObject{block}).Info(b.ctx)
	for i := uint64(0); i*tiledBlocks*tiledSamples < n; i++ {
		m.Shards = append(m.Shards, sections.ShardEntry{Rows: rows, ShardInfo: sections.ShardInfo{
			Name: fmt.Sprintf("train-%06d%s", i, format.ZstdSuffix), Size: uint64(info.Size), Tail: tiledTail,
			Samples: tiledBlocks * tiledSamples, Blocks: tiledBlocks, Rows: tiledBlocks, FirstKey: "0", LastKey: "f",
		}})
	}
	total := uint64(len(m.Shards)) * tiledBlocks * tiledSamples
	m.Fields = []format.FieldTotal{{Name: "txt", Samples: total, Bytes: 300 * total, Min: 300, Max: 300}}
	raw, hash, _, err := sections.EncodeTables(m)
	if err != nil {
		return nil, err
	}
	t, err := sections.OpenTables(func(p []byte, off int64) error { copy(p, raw[off:]); return nil }, int64(len(raw)))
	if err != nil {
		return nil, err
	}
	for name, data := range map[string][]byte{names.Tables(hash): raw, format.ManifestName: t.Summary(names.Tables(hash)).Encode()} {
		if _, err := objstore.Put(b.ctx, store, name, data, objstore.Condition{}); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// mixes measures streams of several sources, and what explains their steps.
func (b *bench) mixes() error { return errors.Join(b.mix(), b.explainSteps()) }

// explainSteps measures what a user waits for who asks what a step read: opening, order and keys.
func (b *bench) explainSteps() error {
	one, err := b.generate("explain-one", 1e9)
	if err != nil {
		return err
	}
	part, err := b.generate("explain-part", 1e9/64)
	if err != nil {
		return err
	}
	const batch = 4096
	rank := explain.Options{GlobalBatch: batch, World: 8, OneRank: true, Rank: 3, Keys: true}
	for _, where := range []struct {
		name    string
		latency time.Duration
	}{{"local", 0}, {"30 ms away", 30 * time.Millisecond}} {
		open := func(s *tiled) (*reader.Dataset, error) {
			var store objstore.Store = s
			if where.latency > 0 {
				store = &distant{Store: s, latency: where.latency, rate: distantRate}
			}
			return reader.Open(b.ctx, store, reader.Options{})
		}
		for _, what := range []struct {
			name string
			o    explain.Options
			goal bool
			run  func(open func() (*reader.Dataset, error), o explain.Options) (*explain.Step, error)
			of   *tiled
		}{
			{"10^9 samples: one rank's 512 samples of a step", rank, true, b.explainOne, one},
			{"10^9 samples: the 4,096 samples of a step, without keys", explain.Options{GlobalBatch: batch}, true, b.explainOne, one},
			{"10^9 samples: the 4,096 samples of a step", explain.Options{GlobalBatch: batch, Keys: true}, true, b.explainOne, one},
			{"64 sources of 1.5·10^7: one rank's 512 samples of a step", rank, true, b.explainMix, part},
			{"64 sources of 1.5·10^7: the 4,096 samples of a step", explain.Options{GlobalBatch: batch, Keys: true}, true, b.explainMix, part},
		} {
			var took table.Sample
			var blocks map[string]bool
			for range b.times {
				begin := time.Now()
				step, err := what.run(func() (*reader.Dataset, error) { return open(what.of) }, what.o)
				if err != nil {
					return err
				}
				took = append(took, time.Since(begin).Seconds())
				blocks = map[string]bool{}
				for _, s := range step.Samples {
					if what.o.Keys && s.Key == "" {
						return fmt.Errorf("no key: %+v", s)
					}
					blocks[fmt.Sprint(s.Source, s.Shard, s.Block)] = true
				}
			}
			b.AtMost("mix", "explain, "+where.name+", "+what.name, took, "s", 1, fmt.Sprintf("opening included; in %d blocks of %d KiB stored", len(blocks), len(what.of.block)>>10))
		}
	}
	return nil
}

// explainOne explains a step in the middle of the second epoch.
func (b *bench) explainOne(open func() (*reader.Dataset, error), o explain.Options) (*explain.Step, error) {
	ds, err := open()
	if err != nil {
		return nil, err
	}
	defer ds.Close()
	t, err := ds.OrderTable(b.ctx)
	if err != nil {
		return nil, err
	}
	plan, err := newPlan(t, order.Choice{})
	if err != nil {
		return nil, err
	}
	return explain.Dataset(b.ctx, ds, plan, 1, plan.Samples()/2, o)
}

// explainMix explains a step of a mix of 64 sources of equal weights, in the middle of an epoch.
func (b *bench) explainMix(open func() (*reader.Dataset, error), o explain.Options) (*explain.Step, error) {
	file := &mixfile.File{Name: "mix"}
	var x reader.Mix
	var data []mixfile.Data
	x.Sets, data = make([]*reader.Dataset, 64), make([]mixfile.Data, 64)
	var g errgroup.Group
	for i := range x.Sets {
		file.Sources = append(file.Sources, mixfile.Source{Name: fmt.Sprintf("s%02d", i)})
		g.Go(func() (err error) {
			if x.Sets[i], err = open(); err != nil {
				return err
			}
			data[i].Digest = format.DigestString(x.Sets[i].Digest())
			data[i].Table, err = x.Sets[i].OrderTable(b.ctx)
			return err
		})
	}
	err := g.Wait()
	for _, ds := range x.Sets {
		if ds != nil {
			defer ds.Close()
		}
	}
	if err != nil {
		return nil, err
	}
	m, err := file.Mix(data, order.Choice{Seed: 7, Shuffle: true}, nil)
	if err != nil {
		return nil, err
	}
	if x.Plan, err = mix.New(m); err != nil {
		return nil, err
	}
	return explain.Mix(b.ctx, x, m.Epoch/2, o)
}
