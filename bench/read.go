package main

import (
	"fmt"
	"runtime"

	"github.com/shardtool/shardtool/bench/table"
	"github.com/shardtool/shardtool/reader"
)

// read measures streaming in storage order.
func (b *bench) read() error {
	if err := b.readText(); err != nil {
		return err
	}
	return b.readImages()
}

// scan reads every sample and touches it.
func (b *bench) scan(dir string, opt reader.Options) func() error {
	return func() error {
		ds, err := b.open(dir, opt)
		if err != nil {
			return err
		}
		defer ds.Close()
		n := uint64(0)
		for s, err := range ds.Samples(b.ctx, reader.Range{}) {
			if err != nil {
				return err
			}
			n += uint64(len(s.Fields))
		}
		if n < ds.NumSamples() {
			return fmt.Errorf("%d fields of %d samples", n, ds.NumSamples())
		}
		return nil
	}
}

func (b *bench) readText() error {
	dir, err := b.dataset("text", false)
	if err != nil {
		return err
	}
	ds, err := b.open(dir, reader.Options{})
	if err != nil {
		return err
	}
	defer ds.Close()
	all, decoded, err := b.frames(ds, dir)
	if err != nil {
		return err
	}
	detail := func(our, base table.Sample) string {
		return fmt.Sprintf("%s against %s", mbs(decoded, our.Median()), mbs(decoded, base.Median()))
	}
	for _, c := range []struct {
		n    int
		goal float64
	}{{1, 0.95}, {2, 0.93}} {
		r, our, base, err := b.ratio(b.scan(dir, reader.Options{Workers: c.n}), decodeAll(all, c.n))
		if err != nil {
			return err
		}
		b.AtLeast("read", fmt.Sprintf("text 3 KB, %d goroutines / DecodeAll of frames in memory", c.n), r, "x", c.goal,
			detail(our, base))
	}
	r, _, _, err := b.ratio(b.scan(dir, reader.Options{Workers: 2}), b.scan(dir, reader.Options{Workers: 1}))
	if err != nil {
		return err
	}
	r0, _, _, err := b.ratio(decodeAll(all, 2), decodeAll(all, 1))
	if err != nil {
		return err
	}
	b.AtLeast("read", "text: two goroutines / one", r, "x", 1.85, fmt.Sprintf("DecodeAll alone gains %.2fx here",
		r0.Median()))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if err := b.scan(dir, reader.Options{Workers: 2})(); err != nil {
		return err
	}
	runtime.ReadMemStats(&after)
	per := float64(after.Mallocs-before.Mallocs) / float64(ds.NumSamples())
	b.AtMost("read", "text: allocations a sample", table.One(per), "", 0.05,
		fmt.Sprintf("%d allocations in all, opening included, for %d samples", after.Mallocs-before.Mallocs,
			ds.NumSamples()))
	return nil
}

func (b *bench) readImages() error {
	dir, err := b.dataset("images", false)
	if err != nil {
		return err
	}
	ds, err := b.open(dir, reader.Options{})
	if err != nil {
		return err
	}
	defer ds.Close()
	base, total, err := b.pread(dir, ds, 2, 0)
	if err != nil {
		return err
	}
	r, our, bas, err := b.ratio(b.scan(dir, reader.Options{Workers: 2}), base)
	if err != nil {
		return err
	}
	b.AtLeast("read", "incompressible 100 KB, 2 goroutines / pread + CRC-32C", r, "x", 0.75,
		fmt.Sprintf("%s against %s", mbs(total, our.Median()), mbs(total, bas.Median())))
	return nil
}
