package main

import (
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/shardtool/shardtool/bench/table"
	"github.com/shardtool/shardtool/objstore/local"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/writer"
)

// get measures random access: samples by number and by key, from the page cache.
func (b *bench) get() error {
	for _, kind := range []string{"text", "images"} {
		dir, err := b.dataset(kind, false)
		if err != nil {
			return err
		}
		ds, err := b.open(dir, reader.Options{})
		if err != nil {
			return err
		}
		rng := rand.New(rand.NewPCG(1, 2))
		p50, p99, err := b.latency(400, func() error {
			_, err := ds.Get(b.ctx, rng.Uint64N(ds.NumSamples()))
			return err
		})
		kib := meanBlock(ds) >> 10
		ds.Close()
		if err != nil {
			return err
		}
		b.AtMost("get", kind+": a random sample by number, p50", table.One(p50), "ms", 1, fmt.Sprintf("one ranged read of a block of %d KiB decoded; p99 %.2f ms", kib, p99))
	}
	return b.getMany()
}

// latency calls f and returns milliseconds.
func (b *bench) latency(n int, f func() error) (p50, p99 float64, err error) {
	var ms []float64
	for i := range n + n/10 {
		begin := time.Now()
		if err := f(); err != nil {
			return 0, 0, err
		}
		if i >= n/10 { // the first tenth warms caches
			ms = append(ms, time.Since(begin).Seconds()*1e3)
		}
	}
	slices.Sort(ms)
	return ms[n/2], ms[n*99/100], nil
}

// getMany asks a data set of 1,000 shards and 10^6 samples by key.
func (b *bench) getMany() error {
	const shards, perShard = 1000, 1000
	dir := filepath.Join(b.dir, "many")
	store, err := local.New(dir, local.Options{NoSync: true})
	if err != nil {
		return err
	}
	w, err := writer.New(b.ctx, store, writer.Options{SamplesPerShard: perShard})
	if err != nil {
		return err
	}
	defer w.Abort()
	key := func(i uint64) string { return fmt.Sprintf("%03d/%016x", i%1000, i*0x9E3779B97F4A7C15) }
	data := make([]byte, 200)
	rng := rand.NewChaCha8([32]byte{1})
	for i := range uint64(shards * perShard) {
		_, _ = rng.Read(data)
		if err := w.Write(b.ctx, writer.Sample{Key: key(i), Fields: []writer.Field{{Name: "bin", Data: data}}}); err != nil {
			return err
		}
	}
	if _, err := w.Close(b.ctx); err != nil {
		return err
	}
	begin := time.Now()
	ds, err := b.open(dir, reader.Options{})
	if err != nil {
		return err
	}
	defer ds.Close()
	opening := time.Since(begin).Seconds() * 1e3
	pick := rand.New(rand.NewPCG(3, 4))
	p50, p99, err := b.latency(1000, func() error {
		numbers, err := ds.Lookup(b.ctx, key(pick.Uint64N(shards*perShard)))
		if err != nil {
			return err
		}
		_, err = ds.Get(b.ctx, numbers[0])
		return err
	})
	if err != nil {
		return err
	}
	b.AtMost("get", "1,000 shards, 10^6 samples: by key, p50", table.One(p50), "ms", 2, fmt.Sprintf("look-up and read; p99 %.2f ms; opening took %.1f ms once", p99, opening))
	bin, err := b.binary()
	if err != nil {
		return err
	}
	whole, _, err := b.latency(40, func() error {
		return exec.Command(bin, "get", dir, key(pick.Uint64N(shards*perShard))+".bin").Run()
	})
	if err != nil {
		return err
	}
	b.Info("get", "the same as a process (`shardtool get`), p50", table.One(whole), "ms", "start of the program and opening in every one")
	return nil
}
