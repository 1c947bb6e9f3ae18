package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/shardtool/shardtool/bench/table"
	"github.com/shardtool/shardtool/internal/format/codec"
)

// writeBench measures writing from Python.
type writeBench struct{ *bench }

// written is what the script prints.
type written struct {
	Seconds, CPU   float64
	Samples, Bytes int64
}

// writes measures shardtool.Writer and shardtool.optimize: against the floor, and against other
// writers.
func (b *bench) writes() error {
	if b.others("write") == "" {
		return nil
	}
	w := &writeBench{b}
	if err := w.text(); err != nil {
		return err
	}
	return w.images()
}

// writePasses is how often the samples are written: what counts is the rate of a long run.
const writePasses = 2

// text writes samples of 3 KB.
func (w *writeBench) text() error {
	dir, err := w.dataset("text", false)
	if err != nil {
		return err
	}
	blocks, _, err := w.blocks(dir)
	if err != nil {
		return err
	}
	floor := w.encodeAll(blocks, codec.LevelDefault)
	for _, c := range []struct {
		mode, name string
		goal       float64
	}{{"write", "dicts of 3 KB by write", 0.7}, {"batch", "3 KB by write_batch of 1,000", 0.85},
		{"table", "3 KB by write_table of 1,000 rows", 0.85}} {
		r, took, base, cpu, err := w.against("text", "txt", c.mode, writePasses, floor)
		if err != nil {
			return err
		}
		w.AtLeast("write", fmt.Sprintf("%s / EncodeAll + SHA-256 on %d cores", c.name, w.cores), r, "x", c.goal,
			fmt.Sprintf("%.0f samples/s, %s of fields; %.2f s against %.2f s, %.2f s of processor time, Python's included, against %.2f s",
				float64(took.Samples)/took.Seconds, mbs(took.Bytes, took.Seconds), took.Seconds, base, took.CPU, cpu))
	}
	return w.peers(w.encodeAll(blocks, codec.LevelFastest))
}

// against runs the floor, which is one pass, and the script in turn. It returns how many times as
// fast as the floor the script is, its last run, and the floor's seconds and processor seconds for
// that many passes.
func (w *writeBench) against(corpus, field, mode string, passes int,
	floor func() error) (r table.Sample, took written, base, processor float64, err error) {
	var bases, cpus table.Sample
	for range w.times {
		used, begin := cpu(), time.Now()
		for range passes {
			if err := floor(); err != nil {
				return nil, took, 0, 0, err
			}
		}
		bases, cpus = append(bases, time.Since(begin).Seconds()), append(cpus, (cpu()-used).Seconds())
		if took, err = w.run(corpus, field, mode, passes); err != nil {
			return nil, took, 0, 0, err
		}
		r = append(r, bases[len(bases)-1]/took.Seconds)
	}
	return r, took, bases.Median(), cpus.Median(), nil
}

// peers writes the same samples by other tools, a quarter of them with gzip. Ours has the level
// that is nearest to zstd:1; floor encodes and hashes the samples once at that level.
func (w *writeBench) peers(floor func() error) error {
	ours, err := w.run("text", "txt", "fastest", writePasses)
	if err != nil {
		return err
	}
	per := func(x written) float64 { return x.CPU / float64(x.Samples) }
	used := cpu()
	if err := floor(); err != nil {
		return err
	}
	least := written{CPU: (cpu() - used).Seconds(), Samples: ours.Samples / writePasses}
	for _, c := range []struct {
		mode, name string
		goal       float64
	}{{"mosaicml", "MDSWriter " + release("mosaicml-streaming") + " with zstd:1", 1},
		{"webdataset", "ShardWriter " + release("webdataset") + " with gzip", 0.125}} {
		theirs, err := w.run("text", "txt", c.mode, writePasses)
		if err != nil {
			return err
		}
		w.AtMost("write", "dicts of 3 KB by write, level fastest: processor time for a sample / "+c.name,
			table.One(per(ours)/per(theirs)), "x", c.goal,
			fmt.Sprintf("%.0f µs against %.0f µs; %.0f samples/s against %.0f", 1e6*per(ours), 1e6*per(theirs),
				float64(ours.Samples)/ours.Seconds, float64(theirs.Samples)/theirs.Seconds))
		w.Info("write", "EncodeAll at level fastest + SHA-256 alone: processor time for a sample / "+c.name,
			table.One(per(least)/per(theirs)), "x",
			fmt.Sprintf("%.0f µs: %.2f of ours", 1e6*per(least), per(least)/per(ours)))
	}
	our, err := w.run("text", "txt", "optimize", 1)
	if err != nil {
		return err
	}
	theirs, err := w.run("text", "txt", "litdata", 1)
	if err != nil {
		return err
	}
	w.AtLeast("write", "optimize of an identity function, 3 KB / litdata.optimize "+release("litdata")+" with zstd",
		table.One(theirs.Seconds/our.Seconds), "x", 3,
		fmt.Sprintf("%.0f samples/s against %.0f", float64(our.Samples)/our.Seconds,
			float64(theirs.Samples)/theirs.Seconds))
	return nil
}

// images writes samples of 100 KB that cannot be compressed. The floor hashes them on one core and
// writes them to a file.
func (w *writeBench) images() error {
	var payloads [][]byte
	for s := range w.samples("images") {
		payloads = append(payloads, append([]byte{}, s.Fields[0].Data...))
	}
	floor := func() error {
		f, err := os.Create(filepath.Join(w.dir, "floor"))
		if err != nil {
			return err
		}
		defer os.Remove(f.Name())
		for _, p := range payloads {
			sha256.Sum256(p)
			if _, err := f.Write(p); err != nil {
				return errors.Join(err, f.Close())
			}
		}
		return errors.Join(f.Sync(), f.Close())
	}
	r, took, base, _, err := w.against("images", "bin", "write", 1, floor)
	if err != nil {
		return err
	}
	w.AtLeast("write", "incompressible 100 KB by write / SHA-256 and a write to disk, one core", r, "x", 0.9,
		fmt.Sprintf("%s against %s", mbs(took.Bytes, took.Seconds), mbs(took.Bytes, base)))
	return nil
}

// run writes a corpus by a tool.
func (w *writeBench) run(corpus, field, mode string, passes int) (out written, err error) {
	dir, err := w.dataset(corpus, true)
	if err != nil {
		return out, err
	}
	archives, err := filepath.Glob(filepath.Join(dir, "*.tar"))
	if err != nil {
		return out, err
	}
	args := append([]string{mode, filepath.Join(w.dir, "written"), strconv.Itoa(passes), field}, archives...)
	return out, w.ask(&out, w.interpreter, "write.py", args...)
}
