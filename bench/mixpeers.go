package main

import (
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/shardtool/shardtool/bench/corpus"
	"github.com/shardtool/shardtool/bench/table"
	"github.com/shardtool/shardtool/objstore/local"
	"github.com/shardtool/shardtool/writer"
)

// mixPeerPackages are what the comparison of mixes needs beside peerPackages. The versions are the
// newest that agree with a numpy of 1.24.
var mixPeerPackages = []string{"grain==0.2.18", "array-record==0.8.6", "absl-py", "etils", "protobuf", "more-itertools", "portpicker",
	"datasets==4.4.1", "pyarrow==19.0.1", "dill==0.4.0", "multiprocess==0.70.16", "fsspec==2025.9.0", "httpx", "httpcore", "h11", "anyio", "sniffio",
	"pandas<3", "pytz", "python-dateutil", "tzdata", "six", "cloudpickle"}

// mixPeers are measured on one mix, in this order.
var mixPeers = []peerSystem{
	{"shardtool", "shardtool"},
	{"litdata", "LitData, CombinedStreamingDataset"},
	{"mosaicml", "MosaicML Streaming, streams"},
	{"grain", "Grain, MapDataset.mix"},
	{"datasets", "Hugging Face, interleave_datasets"},
}

// The mix that all of them read.
const (
	mixPeerBatch   = 32
	mixPeerBatches = 10_000
)

var mixPeerShares = []float64{0.4, 0.3, 0.2, 0.1}

// mixPeerJob is what bench/peers/mixed.py needs.
type mixPeerJob struct {
	System   string          `json:"system"`
	Work     string          `json:"work"`
	Sources  []mixPeerSource `json:"sources"`
	Batch    int             `json:"batch"`
	Batches  int             `json:"batches"`
	Readings int             `json:"readings"`
	Shard    int64           `json:"shard"`
	Window   int64           `json:"window"`
}

type mixPeerSource struct {
	Name   string   `json:"name"`
	Share  float64  `json:"share"`
	Plain  []string `json:"plain"`
	Packed string   `json:"packed"`
}

// mixPeerResult is what it prints.
type mixPeerResult struct {
	peerAnswer         // rates in samples
	Error      float64 `json:"error"` // the largest of a source, in samples, after all batches
}

// mixPeersGroup reads one mix by other systems and by ours.
func (b *bench) mixPeersGroup() error {
	interpreter, err := b.pythonWithTorch(append(peerPackages, mixPeerPackages...)...)
	if err != nil {
		return err
	}
	if interpreter == "" {
		b.LeftOut("mixpeers", needsTorch)
		return nil
	}
	p := &peersBench{bench: b, interpreter: interpreter, noS3: "this comparison is on local disk"}
	if err := p.unpack(); err != nil {
		return err
	}
	job, err := p.prepareMix()
	if err != nil {
		return err
	}
	defer os.RemoveAll(job.Work)
	b.mixPeersMachine = append(p.machine()[:2],
		fmt.Sprintf("%d sources of %d MiB of text, samples of 3 KB, shares %v, batches of %d; local files on %s, page cache warm",
			len(job.Sources), p.mib/8, mixPeerShares, mixPeerBatch, fsKind(p.dir)))
	for _, system := range mixPeers {
		job.System = system.id
		var r mixPeerResult
		if err := p.ask(system, "mixed.py", 10*time.Minute, job, &r, &r.peerAnswer); err != nil {
			return err
		}
		p.mixPeers = append(p.mixPeers, r)
		p.add("mixpeers", &r.peerAnswer, 1, "samples/s", r.detail)
	}
	return nil
}

// prepareMix writes the sources as plain tars, and as ours. A sample begins with the number of its
// source and its own.
func (p *peersBench) prepareMix() (job mixPeerJob, err error) {
	job = mixPeerJob{Work: filepath.Join(p.dir, "mixpeers"), Batch: mixPeerBatch, Batches: mixPeerBatches, Readings: min(p.times, 3)}
	p.temporary = job.Work
	size := int64(p.mib) << 20 / 8
	job.Shard, job.Window = max(size/4, 1<<20), max(size/2, 8<<20)
	for i, share := range mixPeerShares {
		of := mixPeerSource{Name: fmt.Sprintf("s%d", i), Share: share, Packed: filepath.Join(job.Work, fmt.Sprintf("packed-%d", i))}
		plain := filepath.Join(job.Work, fmt.Sprintf("plain-%d", i))
		for dir, opt := range map[string]writer.Options{plain: {ShardSize: job.Shard, Plain: true}, of.Packed: {ShardSize: job.Shard}} {
			store, err := local.New(dir, local.Options{NoSync: true})
			if err != nil {
				return job, err
			}
			if _, err := p.write(store, numbered(i, int(size/3000)), opt); err != nil {
				return job, err
			}
		}
		if of.Plain, err = filepath.Glob(filepath.Join(plain, "*.tar")); err != nil {
			return job, err
		}
		job.Sources = append(job.Sources, of)
	}
	return job, nil
}

// numbered is text that begins with the number of a source and that of the sample.
func numbered(source, n int) iter.Seq[corpus.Sample] {
	return func(yield func(corpus.Sample) bool) {
		i := 0
		for s := range corpus.Text(corpus.Options{Samples: n, Seed: uint64(20 + source)}) {
			text := append(fmt.Appendf(nil, "%d %08d ", source, i), s.Fields[0].Data...)
			if i++; !yield(corpus.Sample{Key: s.Key, Fields: []corpus.Field{{Name: s.Fields[0].Name, Data: text}}}) {
				return
			}
		}
	}
}

// detail is what the row adds to the rate.
func (r *mixPeerResult) detail() string {
	return fmt.Sprintf("share error after %d batches: %.1f samples", mixPeerBatches, r.Error)
}

// mixPeersMarkdown is the table of a page.
func (b *bench) mixPeersMarkdown() string {
	var out strings.Builder
	out.WriteString(stamp(append([]string{today()}, b.mixPeersMachine...)...))
	fmt.Fprintf(&out, "| | samples/s | share error after %d batches | resume | after it | two ranks with the state of one | setting |\n|---|---:|---:|---:|---|---|---|\n", mixPeerBatches)
	for _, r := range b.mixPeers {
		if r.Reason != "" {
			fmt.Fprintf(&out, "| %s | – | – | – | – | – | %s |\n", r.system, table.Cell(r.Reason))
			continue
		}
		resume := "–"
		if len(r.Resume) > 0 {
			resume = duration(r.Resume.Median())
		}
		fmt.Fprintf(&out, "| %s | %s | %.1f | %s | %s | %s | %s |\n", r.system, table.Count(r.Rates.Median()), r.Error, resume, table.Cell(r.Way), table.Cell(r.World), r.Setting)
	}
	return out.String() + "\n"
}
