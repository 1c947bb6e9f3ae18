package main

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/shardtool/shardtool/bench/table"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/local"
	s3store "github.com/shardtool/shardtool/objstore/s3"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/test/bench/peak"
)

//go:embed layers.py
var layersScript string

// layersBench has a data set of images of 100 KB in photos, with a layer of captions of 100 bytes
// and one of arrays of 768 float16.
type layersBench struct {
	*bench
	dir     string
	bin     string
	samples int
}

// layers measures what layers cost: in reading, beside the data set alone, and in making them.
func (b *bench) layers() (err error) {
	l := &layersBench{bench: b, dir: filepath.Join(b.dir, "layers"), samples: (b.mib << 20) / 100_000}
	defer os.RemoveAll(l.dir)
	if l.bin, err = b.program(); err == nil {
		err = l.make()
	}
	if err != nil {
		return err
	}
	for _, rows := range []func() error{l.local, l.alone, l.resident, l.far, l.adding, l.annotate} {
		if err := rows(); err != nil {
			return err
		}
	}
	return nil
}

func (l *layersBench) run(args ...string) error {
	cmd := exec.CommandContext(l.ctx, l.bin, append(args, "--quiet")...)
	cmd.Dir = l.dir
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("shardtool %s: %w\n%s", strings.Join(args, " "), err, text)
	}
	return nil
}

func (l *layersBench) make() error {
	store, err := local.New(filepath.Join(l.dir, "photos"), local.Options{NoSync: true})
	if err != nil {
		return err
	}
	if err := l.packTo(store, noise(l.mib)); err != nil {
		return err
	}
	var captions strings.Builder
	for i := range l.samples {
		fmt.Fprintf(&captions, "{\"id\": \"%08d\", \"caption\": \"a photo of the thing with the number %063d\"}\n", i,
			i)
	}
	head := fmt.Sprintf("{'descr': '<f2', 'fortran_order': False, 'shape': (%d, 768), }", l.samples)
	head = fmt.Sprintf("\x93NUMPY\x01\x00\x76\x00%-117s\n", head)
	array := make([]byte, 2*768*l.samples)
	for i := range array {
		array[i] = byte(i * i >> (i % 7))
	}
	for name, text := range map[string]string{"captions.jsonl": captions.String(), "emb.npy": head + string(array)} {
		if err := os.WriteFile(filepath.Join(l.dir, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return errors.Join(
		l.run("layer", "add", "photos", "captions", "captions.jsonl", "--key", "id", "--columns", "caption"),
		l.run("layer", "add", "photos", "clip", "emb.npy", "--aligned"),
		l.run("pack", "captions.jsonl", "packed", "--key", "id", "--columns", "caption"))
}

// on opens data sets in the folder.
func (l *layersBench) on(name string) (objstore.Store, error) {
	return local.New(filepath.Join(l.dir, name), local.Options{})
}

// read streams some epochs of a data set with layers, shuffled.
func (l *layersBench) read(open func(name string) (objstore.Store, error), epochs uint64, set string, fields []string,
	layers ...string) (bytes int64, err error) {
	store, err := open(set)
	if err != nil {
		return 0, err
	}
	o := reader.Options{Fields: fields}
	for _, name := range layers {
		of, err := open(set + "/layers/" + name)
		if err != nil {
			return 0, err
		}
		o.Layers = append(o.Layers, reader.Layer{Name: name, Store: of})
	}
	ds, err := reader.Open(l.ctx, store, o)
	if err != nil {
		return 0, err
	}
	defer ds.Close()
	how := shuffled
	how.Epochs = epochs
	return drain(l.bench, ds, how)
}

// compare returns the ratio of two ways to read, in time and in processor time.
func (l *layersBench) compare(ours, base func() error) (wall table.Sample, detail string, err error) {
	var used [2]float64
	counted := func(i int, f func() error) func() error {
		return func() error {
			before := processor(os.Getpid())
			err := f()
			used[i] += processor(os.Getpid()) - before
			return err
		}
	}
	rates, err := l.rates(1, counted(0, ours), counted(1, base))
	if err != nil {
		return nil, "", err
	}
	return rates[0].Over(rates[1]), fmt.Sprintf("%.0f ms against %.0f ms; processor time %.2f x",
		1e3/rates[0].Median(), 1e3/rates[1].Median(), used[1]/max(used[0], 0.01)), nil
}

func (l *layersBench) local() error {
	const rounds = 4
	base := func() error { _, err := l.read(l.on, rounds, "photos", nil); return err }
	for _, c := range []struct{ name, layer string }{
		{"images and a layer of captions / the images alone", "captions"}, {"images and a layer of 768 float16 / the images alone: rows", "clip"},
	} {
		r, detail, err := l.compare(func() error {
			_, err := l.read(l.on, rounds, "photos", nil, c.layer)
			return err
		}, base)
		if err != nil {
			return err
		}
		l.AtLeast("layers", c.name+", local disk", r, "x", 0.95, detail)
	}
	return nil
}

func (l *layersBench) alone() error {
	const rounds = 50 // so that opening does not count
	r, detail, err := l.compare(
		func() error { _, err := l.read(l.on, rounds, "packed", nil); return err },
		func() error {
			_, err := l.read(l.on, rounds, "photos", []string{"caption.txt"}, "captions")
			return err
		})
	if err == nil {
		l.AtMost("layers", "captions alone, by a layer: time / the same captions packed alone", r, "x", 2, detail)
	}
	return err
}

// resident measures the memory of a process that reads the images with both layers.
func (l *layersBench) resident() error {
	cat := exec.CommandContext(l.ctx, l.bin, "cat", "photos", "--layer", "captions", "--layer", "clip", "--epochs", "2",
		"--shuffle", "--shuffle-memory", "48MiB", "--memory", "64MiB")
	cat.Dir, cat.Stderr = l.dir, os.Stderr
	most, err := peak.Memory(cat)
	if err == nil {
		l.AtMost("layers", "cat of images and two layers, shuffled: peak resident memory less the budget",
			table.One(most-64), "MiB", 64,
			fmt.Sprintf("%.0f MiB with --memory 64MiB, local disk", most))
	}
	return err
}

// far reads from a store over a network.
func (l *layersBench) far() error {
	here := &host{}
	defer here.end()
	if err := credentials(l.dir); err != nil {
		return err
	}
	s, stored := farS3(here), int64(0)
	err := fs.WalkDir(os.DirFS(l.dir), "photos", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(filepath.Join(l.dir, path))
		if strings.Contains(path, "layers/captions/data-") {
			stored += int64(len(data))
		}
		s.fill(path, data)
		return err
	})
	if err != nil {
		return err
	}
	_, endpoint, _ := strings.Cut(s.addr, "endpoint=")
	open := func(name string) (objstore.Store, error) {
		// On a busy machine, requests are sent twice because they seem slow; they would be counted.
		return s3store.New(l.ctx, "bucket", name, s3store.Options{
			Endpoint: endpoint, Region: "us-east-1", ReadOptions: objstore.ReadOptions{NoHedge: true},
		})
	}
	var share table.Sample
	for range l.times {
		l.slow(s)
		begin := time.Now()
		bytes, err := l.read(open, epochs, "photos", nil, "captions")
		if err != nil {
			return err
		}
		share = append(share, float64(bytes)/time.Since(begin).Seconds()/float64(l.total))
	}
	l.AtLeast("layers", "images and a layer of captions, S3 / cap", share, "x", 0.95,
		mbs(share.Median()*float64(l.total))+"; opening and the first batch included")
	var requests [2]int
	for i, layers := range [][]string{nil, {"captions"}} {
		n := l.slow(s)
		// two epochs share blocks, as many as timing has it
		if _, err := l.read(open, 1, "photos", nil, layers...); err != nil {
			return err
		}
		requests[i] = len(n.asked)
	}
	l.AtMost("layers", "images and a layer of captions, S3: requests / the images alone",
		table.One(float64(requests[1])/float64(requests[0])), "x", 2,
		fmt.Sprintf("%d and %d in an epoch", requests[1], requests[0]))
	n := l.slow(s)
	if _, err := l.read(open, 1, "photos", []string{"caption.txt"}, "captions"); err != nil {
		return err
	}
	l.AtMost("layers", "captions alone, by a layer, S3: bytes of shards read / stored",
		table.One(float64(n.ofLayers.Load())/float64(stored)), "x", 1.02,
		fmt.Sprintf("%d of %d bytes; %d bytes of the images' shards", n.ofLayers.Load(), stored, n.ofBase.Load()))
	if n.ofBase.Load() > 0 {
		return errors.New("shards of the data set were read for fields of a layer alone")
	}
	return nil
}

// script runs the script, if its interpreter has what it imports.
func (l *layersBench) script(needs string, args ...string) (out []byte, err error) {
	if err := exec.CommandContext(l.ctx, l.python, "-c", "import "+needs).Run(); err != nil {
		l.LeftOut("layers", fmt.Sprintf("%s: %s has no %s: %v", args[0], l.python, needs, err))
		return nil, nil
	}
	source, err := filepath.Abs("../python/src")
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(l.ctx, l.python, append([]string{"-c", layersScript}, args...)...)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+source, "SHARDTOOL_BINARY="+l.bin, "PYTHONDONTWRITEBYTECODE=1",
		"TMPDIR="+l.dir)
	cmd.Stderr = os.Stderr
	if out, err = cmd.Output(); out == nil {
		out = []byte{}
	}
	return out, err
}

// adding compares layer add of rows in random order with a pack of the same file.
func (l *layersBench) adding() error {
	if out, err := l.script("pyarrow, numpy", "rows", l.dir, fmt.Sprint(l.rows)); out == nil || err != nil {
		return err
	}
	if err := l.run("pack", "ordered.parquet", "rows", "--key", "id", "--columns", "caption"); err != nil {
		return err
	}
	var r table.Sample
	var took [2]time.Duration
	most := 0.0
	for range l.times {
		for i, args := range [][]string{{"pack", "shuffled.parquet", "again"},
			{"layer", "add", "rows", "again", "shuffled.parquet"}} {
			cmd := exec.CommandContext(l.ctx, l.bin, append(args, "--key", "id", "--columns", "caption", "--quiet")...)
			cmd.Dir, cmd.Stderr = l.dir, os.Stderr
			begin := time.Now()
			memory, err := peak.Memory(cmd)
			if err != nil {
				return err
			}
			if took[i] = time.Since(begin); i == 1 {
				most = max(most, memory)
			}
		}
		r = append(r, took[1].Seconds()/took[0].Seconds())
		if err := errors.Join(os.RemoveAll(filepath.Join(l.dir, "again")),
			os.RemoveAll(filepath.Join(l.dir, "rows/layers"))); err != nil {
			return err
		}
	}
	what := fmt.Sprintf("layer add of %d rows of Parquet in random order", l.rows)
	l.AtMost("layers", what+": time / pack of the file", r, "x", 2,
		fmt.Sprintf("%.1f s against %.1f s", took[1].Seconds(), took[0].Seconds()))
	l.AtMost("layers", what+": memory", table.One(most), "MiB", 512, "the most that was resident")
	return nil
}

func (l *layersBench) annotate() error {
	out, err := l.script("numpy", "annotate")
	if out == nil || err != nil {
		return err
	}
	var rates struct{ Loader, Annotate float64 }
	if err := json.Unmarshal(out, &rates); err != nil {
		return err
	}
	l.AtLeast("layers", "annotate with a function that returns a constant / Loader",
		table.One(rates.Annotate/rates.Loader), "x", 0.8,
		fmt.Sprintf("%.0f against %.0f samples/s of 100 KB in storage order; the best of five each", rates.Annotate,
			rates.Loader))
	return nil
}
