package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/shardtool/shardtool/bench/table"
	"github.com/shardtool/shardtool/objstore/local"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/writer"
)

// pythonDefaults holds a loop in Python that only waits, with the default workers, against the Go
// reader with its own, in turn. It needs no packages but numpy.
func (b *bench) pythonDefaults(script string) error {
	interpreter, err := b.python("numpy")
	if err != nil {
		return err
	}
	p := &pythonBench{bench: b, interpreter: interpreter, script: script}
	for _, c := range []struct {
		pythonKind
		plain bool
		goal  float64
	}{
		{pythonKind{id: "tokens", shown: "2,049 tokens, compressed", batch: 64}, false, 0.8},
		{pythonKind{id: "text", shown: "text 3 KB, compressed", batch: 256}, false, 0.65},
		{pythonKind{id: "text", shown: "text 3 KB, plain tars", batch: 256}, true, 0.6},
	} {
		if err := p.againstGoByDefault(c.pythonKind, c.plain, c.goal); err != nil {
			return err
		}
	}
	return nil
}

func (p *pythonBench) againstGoByDefault(k pythonKind, plain bool, goal float64) error {
	dir := filepath.Join(p.dir, fmt.Sprintf("python-default-%s-plain=%v", k.id, plain))
	defer os.RemoveAll(dir)
	store, err := local.New(dir, local.Options{NoSync: true})
	if err != nil {
		return err
	}
	samples := p.samples("large text") // many times what the window holds
	if k.id == "tokens" {
		samples = tokenRows(4 * p.mib << 20 / (2 * tokensRow))
	}
	if _, err := p.write(store, samples, writer.Options{ShardSize: 32 << 20, Plain: plain}); err != nil {
		return err
	}
	order := k.order()
	order.Workers = 0
	var ratios, theirs, ours table.Sample
	n := 0.
	for range p.times {
		our, err := p.read("shardtool", k, 0, dir)
		if err != nil {
			return err
		}
		runtime.GC()
		their, err := p.goReader(order, reader.Options{}, dir)
		if err != nil {
			return err
		}
		n = float64(our.Samples)
		ratios = append(ratios, their.Median()/our.Seconds.Median())
		theirs, ours = append(theirs, their.Median()), append(ours, our.Seconds.Median())
	}
	p.AtLeast("python", k.shown+": a loop that only waits, default workers / the Go reader", ratios, "x", goal,
		fmt.Sprintf("copies; %.0f against %.0f samples/s, the same order", n/ours.Median(), n/theirs.Median()))
	if k.id != "text" || plain {
		return nil
	}
	r, err := p.call("loop", "shardtool", k.id, dir)
	if err != nil {
		return err
	}
	p.AtLeast("python", k.shown+": a loop that computes all the time, its own steps beside a loader / alone", r.Ratios, "x", 0.97,
		fmt.Sprintf("100 steps of 20 ms on one core, a batch of %d each", k.batch))
	return nil
}
