package main

import (
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"strconv"
	"time"

	"github.com/shardtool/shardtool/bench/table"
	"github.com/shardtool/shardtool/reader"
)

// pythonEpochs is how many epochs a reading has. The first, in which memory is allocated and
// workers are started, counts by itself.
const pythonEpochs = 3

// pythonRun is the script's result for one reading.
type pythonRun struct {
	Cold                     float64 // seconds of the first epoch, opening included
	Seconds, CPU, Ratios     table.Sample
	Batches, Samples, Blocks uint64 // blocks: fetched in all epochs
}

// pythonBench is what the group has in common.
type pythonBench struct {
	*bench
	interpreter string
}

// pythonKind is how data of one kind is read.
type pythonKind struct {
	id, shown, way string
	batch, workers int // 0 workers: the default
	plain          bool
	goal           float64 // of the epochs after the first
}

// loops holds a loop in Python that only waits, with the default workers, against the Go reader
// with its own, and a loop that computes all the time against the same without a loader. They need
// no packages but numpy.
func (b *bench) loops() error {
	interpreter, err := b.python("numpy")
	if err != nil {
		return err
	}
	p := &pythonBench{b, interpreter}
	text := pythonKind{"text", "text 3 KB, compressed", "shardtool", 256, 0, false, 0.9}
	for _, k := range []pythonKind{{"phrases", "2,049 tokens, compressed", "shardtool", 64, 0, false, 0.9}, text,
		{"tokens", "2,049 tokens, raw", "shardtool", 64, 0, false, 0.85}, {"text", "text 3 KB, plain tars", "shardtool",
			256, 0, true, 0.8}, {"images", "incompressible 100 KB", "shardtool", 64, 0, false, 0.85}} {
		if _, err := p.against(k, "loop",
			": a loop that only waits, default workers / the Go reader that gathers the bytes"); err != nil {
			return err
		}
	}
	r, err := p.call("loop", text)
	if err != nil {
		return err
	}
	_, what, err := p.windows(text)
	if err != nil {
		return err
	}
	p.AtLeast("loop", text.shown+": a loop that computes all the time, its own steps beside a loader / alone", r.Ratios,
		"x", 0.97,
		fmt.Sprintf("%d steps of 20 ms on one core, a batch of %d each; %s; %d were fetched meanwhile", r.Batches,
			text.batch, what, r.Blocks))
	return nil
}

// pythonPackage measures the Python package against the Go reader, and what it costs by itself. The
// group peers has other loaders.
func (b *bench) pythonPackage() error {
	if b.others("python") == "" {
		return nil
	}
	p := &pythonBench{b, b.interpreter}
	for _, k := range []pythonKind{
		{"text", "text 3 KB", "views", 256, 2, false, 0.7},
		{"images", "incompressible 100 KB", "views", 64, 2, false, 0},
		{"tensors", "uint8 tensors of 3 x 224 x 224", "views", 64, 2, false, 0.9},
	} {
		cpu, err := p.against(k, "python", ": views / the Go reader")
		if err != nil {
			return err
		}
		if err := p.cost(k, cpu); err != nil {
			return err
		}
	}
	for _, k := range []pythonKind{{"tokens", "2,049 tokens", "", 64, 0, false, 1.3},
		{"images", "incompressible 100 KB", "", 64, 0, false, 1.3}} {
		if err := p.dataLoader(k); err != nil {
			return err
		}
	}
	return nil
}

// dataLoader holds torch's DataLoader with two workers against a Loader, by the processor time of
// all processes.
func (p *pythonBench) dataLoader(k pythonKind) error {
	costs := map[string]table.Sample{}
	for range p.times {
		for _, k.way = range []string{"loader", "workers", "mapped"} {
			r, err := p.call("whole", k)
			if err != nil {
				return err
			}
			costs[k.way] = append(costs[k.way], 1e6*r.CPU.Median()/float64(r.Batches))
		}
	}
	alone, name := costs["loader"], k.shown+": a DataLoader with 2 workers / a Loader, CPU of all processes"
	detail := func(way string) string {
		return fmt.Sprintf("%.0f against %.0f µs for a batch of %d", costs[way].Median(), alone.Median(), k.batch)
	}
	p.AtMost("python", name, costs["workers"].Over(alone), "x", k.goal, detail("workers")+"; the workers have nothing to do")
	p.Info("python", name+", workers that call a function", costs["mapped"].Over(alone), "x", detail("mapped"))
	return nil
}

// memory is the shuffle memory of the group: a quarter of the data, so that neither reader holds
// the data whole, and at most the default.
func (p *pythonBench) memory() uint64 { return uint64(min(p.mib, 2048)) << 20 }

// windows returns the blocks of the data, and describes them beside the shuffle memory.
func (p *pythonBench) windows(k pythonKind) (blocks uint64, what string, err error) {
	dir, err := p.dataset("large "+k.id, k.plain)
	if err != nil {
		return 0, "", err
	}
	ds, err := p.open(dir, reader.Options{})
	if err != nil {
		return 0, "", err
	}
	defer ds.Close()
	i := ds.Info()
	return i.Blocks, fmt.Sprintf("%d MiB in %d blocks, shuffle memory %d MiB for both", i.DecodedBytes>>20, i.Blocks,
		p.memory()>>20), nil
}

// call runs the script on data of a kind, with the package of this repository and its binary.
func (p *pythonBench) call(what string, k pythonKind) (r pythonRun, err error) {
	args := []string{what}
	if what != "wake" {
		dir, err := p.dataset("large "+k.id, k.plain)
		if err != nil {
			return r, err
		}
		args = append(args, k.way, k.id, strconv.Itoa(k.workers), strconv.FormatUint(p.memory(), 10), dir)
	}
	return r, p.ask(&r, p.interpreter, "python.py", args...)
}

// stream opens the stream that the script reads.
func (p *pythonBench) stream(k pythonKind) (*reader.Dataset, *reader.Stream, error) {
	dir, err := p.dataset("large "+k.id, k.plain)
	if err != nil {
		return nil, nil, err
	}
	ds, err := p.open(dir, reader.Options{Workers: k.workers})
	if err != nil {
		return nil, nil, err
	}
	o := reader.StreamOptions{Shuffle: true, Seed: 1, GlobalBatch: k.batch, Tail: "short", World: 1,
		Epochs: pythonEpochs, Order: reader.OrderOptions{ShuffleMemory: p.memory()}}
	o.Tuning.Workers = k.workers
	s, err := ds.Stream(p.ctx, o)
	if err != nil {
		ds.Close()
	}
	return ds, s, err
}

// goReader streams as the script does. Where the script gets copies, it gathers the bytes of a
// batch.
func (p *pythonBench) goReader(k pythonKind) (r pythonRun, err error) {
	debug.FreeOSMemory() // the script's process is new
	begin := time.Now()
	ds, s, err := p.stream(k)
	if err != nil {
		return r, err
	}
	defer ds.Close()
	defer s.Close()
	bytes, seen, gathered := 0, uint64(0), []byte(nil)
	for {
		batch, err := s.Next(p.ctx)
		if errors.Is(err, io.EOF) {
			r.Cold, r.Seconds, r.Samples, r.Blocks = r.Seconds[0], r.Seconds[1:], ds.NumSamples(), s.Stats().Blocks
			return r, nil
		}
		if err != nil {
			return r, err
		}
		gathered = gathered[:0]
		for i := range batch.Samples {
			if data := batch.Samples[i].Fields[0].Data; k.way == "views" {
				bytes += len(data)
			} else {
				gathered = append(gathered, data...)
			}
		}
		if seen += uint64(len(batch.Samples)); seen == ds.NumSamples() {
			r.Seconds, begin, seen = append(r.Seconds, time.Since(begin).Seconds()), time.Now(), 0
		}
	}
}

// against holds the script against the Go reader, in turn, on data that both decode anew in every
// epoch: the first epoch, and those after it. A few blocks stay from one epoch to the next. It
// returns the script's processor time for a batch.
func (p *pythonBench) against(k pythonKind, group, name string) (cpu table.Sample, err error) {
	blocks, what, err := p.windows(k)
	if err != nil {
		return nil, err
	}
	var ours, theirs, coldOurs, coldTheirs table.Sample
	var our, their pythonRun
	for range p.times {
		if our, err = p.call("read", k); err != nil {
			return nil, err
		}
		if their, err = p.goReader(k); err != nil {
			return nil, err
		}
		if min(our.Blocks, their.Blocks) < (pythonEpochs-1)*blocks {
			return nil, fmt.Errorf("%s%s: of %d blocks, Python fetched %d and Go %d in %d epochs: the data is held",
				k.shown, name, blocks, our.Blocks, their.Blocks, pythonEpochs)
		}
		ours, theirs = append(ours, our.Seconds.Median()), append(theirs, their.Seconds.Median())
		coldOurs, coldTheirs = append(coldOurs, our.Cold), append(coldTheirs, their.Cold)
		cpu = append(cpu, 1e6*our.CPU.Median()/float64(our.Batches))
	}
	n := float64(our.Samples)
	detail := fmt.Sprintf("%.0f against %.0f samples/s, %s with %s, the same order; %s; %d and %d were fetched and decoded in %d epochs",
		n/ours.Median(), n/theirs.Median(), map[string]string{"views": "views", "shardtool": "arrays and bytes"}[k.way],
		workersShown(k.workers), what, our.Blocks, their.Blocks, pythonEpochs)
	if k.goal > 0 {
		p.AtLeast(group, k.shown+name, theirs.Over(ours), "x", k.goal, detail)
	} else {
		p.Info(group, k.shown+name, theirs.Over(ours), "x", detail)
	}
	p.Info(group, k.shown+name+", the first epoch", coldTheirs.Over(coldOurs), "x",
		fmt.Sprintf("%.0f against %.0f samples/s from the creation of the loader", n/coldOurs.Median(),
			n/coldTheirs.Median()))
	return cpu, nil
}

func workersShown(n int) string {
	if n == 0 {
		return "the default workers of each"
	}
	return fmt.Sprintf("%d workers each", n)
}

// cost is what the training process pays for a batch, and how soon there is one.
func (p *pythonBench) cost(k pythonKind, cpu table.Sample) error {
	var ready, woken, late table.Sample
	for range 3 {
		for what, into := range map[string]*table.Sample{"ready": &ready, "wake": &woken} {
			r, err := p.call(what, k)
			if err != nil {
				return err
			}
			*into = append(*into, 1e6*r.CPU.Median()/float64(r.Batches))
		}
	}
	p.AtMost("python", k.shown+": CPU of the training process for a batch of views", cpu, "µs", 20,
		fmt.Sprintf("batches of %d, each waited for; to be woken by a message of 64 bytes and nothing else costs a process %.0f µs here", k.batch, woken.Median()))
	p.Info("python", k.shown+": CPU of the training process for a batch of views that is there", ready, "µs",
		"in a loop that does something else for 5 ms between batches")
	if k.id == "tensors" {
		return nil
	}
	for range 3 {
		r, err := p.call("start", k)
		if err != nil {
			return err
		}
		theirs := table.Sample{}
		for range 5 {
			took, err := seconds1(func() error {
				ds, s, err := p.stream(k)
				if err != nil {
					return err
				}
				defer ds.Close()
				defer s.Close()
				_, err = s.Next(p.ctx)
				return err
			})
			if err != nil {
				return err
			}
			theirs = append(theirs, took)
		}
		late = append(late, 1000*(slices.Min(r.Seconds)-slices.Min(theirs)))
	}
	p.AtMost("python", k.shown+": first batch, more than the Go reader's", late, "ms", 50,
		"the child's start among it; the best of 5 each")
	return nil
}
