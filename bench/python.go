package main

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/shardtool/shardtool/bench/table"
	"github.com/shardtool/shardtool/objstore/local"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/writer"
)

//go:embed python.py
var pythonScript string

// pythonEpochs is the number of epochs of a reading. An epoch before them is not counted: memory is
// allocated and workers are started in it.
const pythonEpochs = 2

// pythonRun is the script's result for one reading.
type pythonRun struct {
	Seconds, CPU, Ratios    table.Sample
	Batches, Samples, Bytes int64
}

// pythonBench is what the group has in common.
type pythonBench struct {
	*bench
	interpreter, script string
}

// pythonKind is data of one kind: in plain tars, and compressed by ours.
type pythonKind struct {
	id, shown, corpus string
	batch             int
	plain, packed     string
}

// pythonPackage measures the Python package against the Go reader, and what it costs by itself. The
// group peers has other loaders.
func (b *bench) pythonPackage() error {
	script := filepath.Join(b.dir, "python.py")
	if err := os.WriteFile(script, []byte(pythonScript), 0o600); err != nil {
		return err
	}
	if err := b.pythonDefaults(script); err != nil {
		return err
	}
	interpreter, err := b.pythonWithTorch()
	if err != nil {
		return err
	}
	if interpreter == "" {
		b.LeftOut("python", needsTorch)
		return nil
	}
	p := &pythonBench{bench: b, interpreter: interpreter, script: script}
	for _, k := range []pythonKind{
		{id: "text", shown: "text 3 KB", corpus: "text", batch: 256},
		{id: "images", shown: "incompressible 100 KB", corpus: "large images", batch: 64},
		{id: "tensors", shown: "uint8 tensors of 3 x 224 x 224", corpus: "large tensors", batch: 64},
	} {
		if err := p.measure(k); err != nil {
			return err
		}
	}
	return nil
}

func (p *pythonBench) measure(k pythonKind) (err error) {
	// Shards of 32 MiB, that the others' workers have some each.
	if k.plain, err = p.pack(k, writer.Options{ShardSize: 32 << 20, Plain: true}); err != nil {
		return err
	}
	if k.packed, err = p.pack(k, writer.Options{ShardSize: 32 << 20}); err != nil {
		return err
	}
	defer os.RemoveAll(k.plain)
	defer os.RemoveAll(k.packed)
	if err := p.againstGo(k); err != nil {
		return err
	}
	return p.cost(k)
}

// pack writes a corpus.
func (p *pythonBench) pack(k pythonKind, opt writer.Options) (string, error) {
	dir := filepath.Join(p.dir, fmt.Sprintf("python-%s-plain=%v", k.id, opt.Plain))
	store, err := local.New(dir, local.Options{NoSync: true})
	if err != nil {
		return "", err
	}
	_, err = p.write(store, p.samples(k.corpus), opt)
	return dir, err
}

// call runs the script, with the package of this repository and its binary.
func (p *pythonBench) call(args ...string) (r pythonRun, err error) {
	env, err := p.packageEnv()
	if err != nil {
		return r, err
	}
	cmd := exec.CommandContext(p.ctx, p.interpreter, append([]string{p.script}, args...)...)
	cmd.Env = env
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return r, fmt.Errorf("%v: %w\n%s", args, err, exit.Stderr)
	}
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal(out, &r)
}

// read has a loader go through a data set.
func (p *pythonBench) read(loader string, k pythonKind, workers int, from ...string) (pythonRun, error) {
	return p.call(append([]string{"read", loader, k.id, strconv.Itoa(workers), strconv.Itoa(pythonEpochs)}, from...)...)
}

// order is that of the script.
func (k *pythonKind) order() reader.StreamOptions {
	return reader.StreamOptions{Order: reader.Order{Shuffle: true, Seed: 1, GlobalBatch: k.batch, ShuffleMemory: 128 << 20, Tail: "short", World: 1}, Read: reader.Read{Workers: 2}}
}

// goReader streams as the script does, an epoch uncounted and then some that are, and returns
// seconds an epoch.
func (p *pythonBench) goReader(o reader.StreamOptions, with reader.Options, dir string) (table.Sample, error) {
	ds, err := p.open(dir, with)
	if err != nil {
		return nil, err
	}
	defer ds.Close()
	o.Epochs = pythonEpochs + 1
	s, err := ds.Stream(p.ctx, o)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	var took table.Sample
	begin, samples, bytes := time.Now(), uint64(0), 0
	for {
		batch, err := s.Next(p.ctx)
		if errors.Is(err, io.EOF) {
			return took[1:], nil
		}
		if err != nil {
			return nil, err
		}
		for i := range batch.Samples {
			bytes += len(batch.Samples[i].Fields[0].Data)
		}
		if samples += uint64(len(batch.Samples)); samples == ds.NumSamples() {
			took, begin, samples = append(took, time.Since(begin).Seconds()), time.Now(), 0
		}
	}
}

// againstGo holds views and copies against the Go reader, in turn.
func (p *pythonBench) againstGo(k pythonKind) error {
	goal := map[string]float64{"text": 0.7, "tensors": 0.9}[k.id]
	for _, c := range []struct {
		loader, shown string
		goal          float64
	}{{"views", "views", goal}, {"shardtool", "copies", 0}} {
		for _, dir := range []string{k.packed, k.plain} {
			if c.goal == 0 && dir == k.plain {
				continue
			}
			var ratios, theirs, ours table.Sample
			n := 0.
			for range p.times {
				our, err := p.read(c.loader, k, 2, dir)
				if err != nil {
					return err
				}
				runtime.GC()
				their, err := p.goReader(k.order(), reader.Options{Workers: 2}, dir)
				if err != nil {
					return err
				}
				n = float64(our.Samples)
				ratios = append(ratios, their.Median()/our.Seconds.Median())
				theirs, ours = append(theirs, their.Median()), append(ours, our.Seconds.Median())
			}
			name := fmt.Sprintf("%s: %s / the Go reader", k.shown, c.shown)
			detail := fmt.Sprintf("%.0f against %.0f samples/s, 2 workers each, the same order", n/ours.Median(), n/theirs.Median())
			switch {
			case dir == k.plain:
				p.Info("python", name+", plain tars", ratios, "x", detail)
			case c.goal > 0:
				p.AtLeast("python", name, ratios, "x", c.goal, detail)
			default:
				p.Info("python", name, ratios, "x", detail)
			}
		}
	}
	return nil
}

// cost is what this process pays for a batch, and how soon there is one.
func (p *pythonBench) cost(k pythonKind) error {
	var cpu, copied, ready, woken table.Sample
	for range 3 {
		for _, c := range []struct {
			into *table.Sample
			args []string
		}{
			{&cpu, []string{"read", "views", k.id, "2", strconv.Itoa(pythonEpochs), k.packed}},
			{&copied, []string{"read", "shardtool", k.id, "2", strconv.Itoa(pythonEpochs), k.packed}},
			{&ready, []string{"ready", "views", k.id, k.packed}},
			{&woken, []string{"wake", "", ""}},
		} {
			r, err := p.call(c.args...)
			if err != nil {
				return err
			}
			*c.into = append(*c.into, 1e6*r.CPU.Median()/float64(r.Batches))
		}
	}
	p.AtMost("python", k.shown+": CPU of the training process for a batch of views", cpu, "µs", 20,
		fmt.Sprintf("batches of %d, each waited for; to be woken by a message of 64 bytes and nothing else costs a process %.0f µs here; with copies %.0f µs", k.batch, woken.Median(), copied.Median()))
	p.Info("python", k.shown+": CPU of the training process for a batch of views that is there", ready, "µs",
		"in a loop that does something else for 5 ms between batches")
	if k.id == "tensors" {
		return nil
	}
	var late table.Sample
	for range 3 {
		r, err := p.call("start", "shardtool", k.id, k.packed)
		if err != nil {
			return err
		}
		ours := slices.Min(r.Seconds)
		theirs := []float64{}
		for range 5 {
			took, err := seconds1(func() error {
				ds, err := p.open(k.packed, reader.Options{Workers: 2})
				if err != nil {
					return err
				}
				defer ds.Close()
				return p.batches(ds, k.order(), 1)()
			})
			if err != nil {
				return err
			}
			theirs = append(theirs, took)
		}
		late = append(late, 1000*(ours-slices.Min(theirs)))
	}
	p.AtMost("python", k.shown+": first batch, more than the Go reader's", late, "ms", 50, "the child's start among it; the best of 5 each")
	return nil
}
