package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/shardtool/shardtool/bench/table"
)

// packPeerPackages are what the comparison of packing needs. TRL is installed without PyTorch: its
// packing does not use it.
var (
	packPeerPackages = []string{"numpy==2.4.6", "datasets==5.2.0", "transformers==5.23.0", "grain==0.2.18"}
	packPeerAlone    = []string{"trl==1.16.0"}
)

// packPeers are measured on the same documents, in this order.
var packPeers = []peerSystem{
	{"shardtool", "shardtool, Pack"},
	{"grain", "Grain, packing"},
	{"trl", "TRL, pack_dataset with bfd_split"},
}

const packPeerBatch = 16

// packPeerJob is what bench/peers/packing.py needs.
type packPeerJob struct {
	System    string `json:"system"`
	Work      string `json:"work"`
	Packed    string `json:"packed"` // ours
	Tokens    string `json:"tokens"` // of all documents: an array
	Limits    string `json:"limits"` // of the documents in it
	Plans     string `json:"plans"`
	Length    int    `json:"length"`
	Batch     int    `json:"batch"`
	Sequences int    `json:"sequences"` // of an epoch, nearly
	Readings  int    `json:"readings"`
	Window    int64  `json:"window"`
}

// packPeerResult is what it prints.
type packPeerResult struct {
	peerAnswer              // rates in tokens, without padding
	Swept      []string     `json:"swept"`
	First      table.Sample `json:"first"` // seconds
	Fill       float64      `json:"fill"`
	Prepare    float64      `json:"prepare"` // seconds before the first batch of all
}

// packPeersGroup packs the same documents by other systems and by ours.
func (b *bench) packPeersGroup() error {
	p := &peersBench{bench: b}
	var err error
	if p.interpreter, err = p.packingPython(); err != nil {
		return err
	}
	if err := p.unpack(); err != nil {
		return err
	}
	job, err := p.preparePacking()
	if err != nil {
		return err
	}
	defer os.RemoveAll(job.Work)
	b.packPeersMachine = []string{
		fmt.Sprintf("%s, %d CPUs, %.0f GiB of memory, load %s before, %s", cpuModel(), p.cores, memoryGiB(), load(), says("uname", "-sr")),
		fmt.Sprintf("%d tokens (int32) in documents of lognormal(6.2, 1.2), sequences of %d, batches of %d; shuffled, longer documents are split; local files on %s, page cache warm",
			job.Sequences*job.Length, job.Length, job.Batch, fsKind(p.dir)),
	}
	for _, system := range packPeers {
		job.System = system.id
		var r packPeerResult
		if err := p.ask(system, "packing.py", 20*time.Minute, job, &r, &r.peerAnswer); err != nil {
			return err
		}
		p.packPeers = append(p.packPeers, r)
		p.add("packpeers", &r.peerAnswer, 1e6, "M tokens/s", r.detail)
	}
	return nil
}

// packingPython is an environment with the other systems in pinned versions.
func (p *peersBench) packingPython() (string, error) {
	dir := filepath.Join(p.dir, "venv-packing")
	bin := filepath.Join(dir, "bin", "python")
	if err := command("python3", "-m", "venv", dir)(); err != nil {
		return "", err
	}
	pip := []string{"-m", "pip", "install", "--quiet", "--disable-pip-version-check"}
	if err := command(bin, append(pip, packPeerPackages...)...)(); err != nil {
		return "", err
	}
	return bin, command(bin, append(append(pip, "--no-deps"), packPeerAlone...)...)()
}

// preparePacking writes the documents as ours, and as two arrays.
func (p *peersBench) preparePacking() (job packPeerJob, err error) {
	_, lengths := webText.make(p.mib << 20 / 4 / 1000)
	limits := make([]int64, len(lengths)+1)
	for i, n := range lengths {
		limits[i+1] = limits[i] + int64(n)
	}
	total := limits[len(lengths)]
	job = packPeerJob{Work: filepath.Join(p.dir, "packpeers"), Length: sequence, Batch: packPeerBatch, Sequences: int(total) / sequence, Readings: min(p.times, 3)}
	p.temporary = job.Work
	job.Plans, job.Tokens, job.Limits = filepath.Join(job.Work, "plans"), filepath.Join(job.Work, "tokens.npy"), filepath.Join(job.Work, "limits.npy")
	job.Window = max(int64(p.mib)<<20/16, 8<<20)
	if job.Packed, err = p.tokenData(filepath.Join("packpeers", "documents"), lengths); err != nil {
		return job, err
	}
	ids := vocabulary(rand.New(rand.NewPCG(15, 16))) // as tokenData has them
	if err := arrayFile(job.Tokens, "<i4", total, func(dst []byte, _ int64) []byte { return binary.LittleEndian.AppendUint32(dst, uint32(ids.Uint64())) }); err != nil {
		return job, err
	}
	return job, arrayFile(job.Limits, "<i8", int64(len(limits)), func(dst []byte, i int64) []byte { return binary.LittleEndian.AppendUint64(dst, uint64(limits[i])) })
}

// arrayFile writes an .npy file with one dimension.
func arrayFile(path, descr string, n int64, appendValue func([]byte, int64) []byte) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	out := bufio.NewWriterSize(f, 1<<20)
	if _, err := out.Write(arrayHeader(descr, n)); err != nil {
		return err
	}
	var value []byte
	for i := range n {
		value = appendValue(value[:0], i)
		if _, err := out.Write(value); err != nil {
			return err
		}
	}
	if err := out.Flush(); err != nil {
		return err
	}
	return f.Close()
}

// detail is what the row adds to the rate.
func (r *packPeerResult) detail() string {
	detail := fmt.Sprintf("%.1f %% full; first batch after %s", 100*r.Fill, duration(r.First.Median()))
	if r.Prepare > 0 {
		detail += fmt.Sprintf(", and %s to write a packed copy", duration(r.Prepare))
	}
	return detail
}

// packPeersMarkdown is the table of a page, and the settings tried.
func (b *bench) packPeersMarkdown() string {
	var out strings.Builder
	out.WriteString(stamp(append([]string{today()}, b.packPeersMachine...)...))
	out.WriteString("| | fill | M tokens/s | packed copy | first batch | resume | after it | two ranks with the state of one | setting |\n|---|---:|---:|---:|---:|---:|---|---|---|\n")
	var swept strings.Builder
	for _, r := range b.packPeers {
		if r.Reason != "" {
			fmt.Fprintf(&out, "| %s | – | – | – | – | – | – | – | %s |\n", r.system, table.Cell(r.Reason))
			continue
		}
		prepare, resume := "none", "–"
		if r.Prepare > 0 {
			prepare = duration(r.Prepare)
		}
		if len(r.Resume) > 0 {
			resume = duration(r.Resume.Median())
		}
		fmt.Fprintf(&out, "| %s | %.1f %% | %.3g | %s | %s | %s | %s | %s | %s |\n", r.system, 100*r.Fill, r.Rates.Median()/1e6, prepare,
			duration(r.First.Median()), resume, table.Cell(r.Way), table.Cell(r.World), table.Cell(r.Setting))
		for _, line := range r.Swept {
			fmt.Fprintf(&swept, "- %s, %s\n", r.system, line)
		}
	}
	return out.String() + "\nSettings that were tried, one reading each:\n\n" + swept.String() + "\n"
}
