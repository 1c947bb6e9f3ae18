package main

import (
	"bufio"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/shardtool/shardtool/bench/table"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/writer"
)

//go:embed rows.py
var rowsScript string

// tensorJob is what rows.py reads.
type tensorJob struct {
	Rows    string  `json:"rows"`   // a file of all rows
	Packed  string  `json:"packed"` // our data set of the same
	Work    string  `json:"work"`
	Window  int     `json:"window"` // bytes that ours shuffles
	Warm    float64 `json:"warm"`
	Seconds float64 `json:"seconds"`
	Cold    bool    `json:"cold"`
}

// tensorBest is what it prints of a system's fastest setting.
type tensorBest struct {
	Setting, Shown, Version string
	Rate                    float64
}

// smallTensors measures rows of 4,098 bytes as PyTorch tensors.
type smallTensors struct {
	*bench
	interpreter, script string
	job                 tensorJob
	cgroup              string // that readings are in
	best                map[string]tensorBest
}

// tensorPeers are other systems with formats of their own.
var tensorPeers = []struct{ id, shown string }{
	{"mosaicml", "MosaicML Streaming, ndarray columns"},
	{"litdata", "LitData, TokensLoader"},
	{"grain", "Grain, ArrayRecord"},
	{"webdataset", "WebDataset"},
}

// smallInPython compares rows in tensors with the gather alone, with numpy, and with other systems.
func (b *bench) smallInPython(packed string) error {
	interpreter, err := b.pythonWithTorch(append(peerPackages, mixPeerPackages...)...)
	if err != nil {
		return err
	}
	if interpreter == "" {
		b.LeftOut("small", "rows in PyTorch tensors: "+needsTorch)
		return nil
	}
	p := &smallTensors{bench: b, interpreter: interpreter, script: filepath.Join(b.dir, "rows.py"), best: map[string]tensorBest{}}
	if err := os.WriteFile(p.script, []byte(rowsScript), 0o600); err != nil {
		return err
	}
	if err := p.prepare(packed); err != nil {
		return err
	}
	defer os.RemoveAll(p.job.Work)
	if err := p.gather(); err != nil {
		return err
	}
	if err := p.take("np.take on a memmap, page cache warm", 1); err != nil {
		return err
	}
	if err := p.peers(); err != nil {
		return err
	}
	return p.limited()
}

// prepare writes the file of all rows.
func (p *smallTensors) prepare(packed string) error {
	work, err := os.MkdirTemp(p.dir, "rows-tensors-*")
	if err != nil {
		return err
	}
	p.job = tensorJob{Rows: filepath.Join(work, "rows.bin"), Packed: packed, Work: work, Window: p.mib << 20 / 2, Warm: 1, Seconds: 2}
	f, err := os.Create(p.job.Rows)
	if err != nil {
		return err
	}
	defer f.Close()
	ds, err := p.open(packed, reader.Options{})
	if err != nil {
		return err
	}
	defer ds.Close()
	w := bufio.NewWriterSize(f, 1<<20)
	for s, err := range ds.Samples(p.ctx, reader.Range{}) {
		if err != nil {
			return err
		}
		file := s.Fields[0].Data
		if _, err := w.Write(file[len(file)-wideRow:]); err != nil {
			return err
		}
	}
	return errors.Join(w.Flush(), f.Close())
}

// call runs the script, in the cgroup if there is one.
func (p *smallTensors) call(out any, args ...string) error {
	env, err := p.packageEnv()
	if err != nil {
		return err
	}
	job, err := json.Marshal(p.job)
	if err != nil {
		return err
	}
	all := append([]string{p.interpreter, p.script}, append([]string{args[0], args[1], string(job)}, args[2:]...)...)
	if p.cgroup != "" {
		all = append([]string{"sh", "-c", `echo $$ > "$0/cgroup.procs" && exec "$@"`, p.cgroup}, all...)
	}
	cmd := exec.CommandContext(p.ctx, all[0], all[1:]...)
	cmd.Env = append(env, "PYTHONWARNINGS=ignore", "TMPDIR="+p.job.Work)
	text, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return fmt.Errorf("%v: %w\n%s", args, err, exit.Stderr[max(0, len(exit.Stderr)-2000):])
		}
		return err
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(text, out)
}

// fastest finds a system's fastest setting, once.
func (p *smallTensors) fastest(system string) (best tensorBest, err error) {
	key := system + p.cgroup
	best, ok := p.best[key]
	if !ok {
		if err = p.call(&best, "best", system); err == nil && best.Rate == 0 {
			err = fmt.Errorf("%s: no setting works", system)
		}
		p.best[key] = best
	}
	return best, err
}

// rate reads with a setting.
func (p *smallTensors) rate(system string, best tensorBest) (float64, error) {
	var r struct{ Rate float64 }
	err := p.call(&r, "read", system, best.Setting)
	return r.Rate, err
}

// gather compares with a gather from memory.
func (p *smallTensors) gather() error {
	best, err := p.fastest("ours")
	if err != nil {
		return err
	}
	floor := p.smallRun(p.job.Packed)
	floor.Gather = wideRow
	var ratio, rates table.Sample
	for range p.times {
		ours, err := p.rate("ours", best)
		if err != nil {
			return err
		}
		base, err := p.smallProcess(floor)
		if err != nil {
			return err
		}
		rates = append(rates, ours)
		ratio = append(ratio, ours*base.Steady/float64(base.Samples))
	}
	p.AtLeast("small", "rows of 4,098 B in PyTorch tensors / the gather alone, steady", ratio, "x", 0.6,
		fmt.Sprintf("%s rows/s, %s; the gather in Go, with all cores", thousands(rates.Median()), best.Shown))
	return nil
}

func thousands(n float64) string {
	if n < 10e3 {
		return fmt.Sprintf("%.0f", n)
	}
	return fmt.Sprintf("%.0f K", n/1e3)
}

// against reads with ours and another system in turn.
func (p *smallTensors) against(system string) (ratio, theirs table.Sample, detail string, err error) {
	our, err := p.fastest("ours")
	if err != nil {
		return nil, nil, "", err
	}
	their, err := p.fastest(system)
	if err != nil {
		return nil, nil, "", err
	}
	var rates table.Sample
	for i := range p.times {
		var r [2]float64
		for k := range 2 {
			j := (k + i) % 2 // who goes first alternates
			if r[j], err = p.rate([]string{"ours", system}[j], []tensorBest{our, their}[j]); err != nil {
				return nil, nil, "", err
			}
		}
		rates, theirs, ratio = append(rates, r[0]), append(theirs, r[1]), append(ratio, r[0]/r[1])
	}
	return ratio, theirs, fmt.Sprintf("%s rows/s (%s) against %s (%s)", thousands(rates.Median()), our.Shown, thousands(theirs.Median()), their.Shown), nil
}

// take compares with numpy.
func (p *smallTensors) take(what string, goal float64) error {
	ratio, _, detail, err := p.against("take")
	if err == nil {
		p.AtLeast("small", "rows of 4,098 B in PyTorch tensors / "+what, ratio, "x", goal, detail)
	}
	return err
}

// peers compares with other systems. One that fails is a row that gives the reason.
func (p *smallTensors) peers() error {
	var best, rates table.Sample
	of := ""
	for _, peer := range tensorPeers {
		fmt.Fprintf(os.Stderr, "bench: small: %s …\n", peer.shown)
		err := p.call(nil, "pack", peer.id)
		var ratio, theirs table.Sample
		var detail string
		if err == nil {
			ratio, theirs, detail, err = p.against(peer.id)
		}
		if p.ctx.Err() != nil {
			return p.ctx.Err()
		}
		if err != nil {
			p.LeftOut("small", fmt.Sprintf("rows of 4,098 B in PyTorch tensors / %s: %v", peer.shown, err))
			continue
		}
		shown := fmt.Sprintf("%s %s", peer.shown, p.best[peer.id].Version)
		p.Info("small", "rows of 4,098 B in PyTorch tensors / "+shown, ratio, "x", detail)
		if best == nil || theirs.Median() > rates.Median() {
			best, rates, of = ratio, theirs, shown
		}
	}
	if best != nil {
		p.AtLeast("small", "rows of 4,098 B in PyTorch tensors / the best other system", best, "x", 5, of+"; all shuffled, each with its fastest setting")
	}
	return nil
}

const (
	limitedBytes = 8 << 30 // of rows, read within
	limit        = 2 << 30 // bytes of memory and page cache
)

// limited compares with numpy where a quarter of the data fits into memory.
func (p *smallTensors) limited() error {
	const what = "np.take on a memmap, 8 GiB of rows within 2 GiB"
	if !p.cgroups {
		p.LeftOut("small", "rows of 4,098 B in PyTorch tensors / "+what+": -cgroup measures it, with 17 GB of disk")
		return nil
	}
	cgroup, end, err := newCgroup(limit)
	if err != nil {
		p.LeftOut("small", fmt.Sprintf("rows of 4,098 B in PyTorch tensors / %s: %v", what, err))
		return nil
	}
	defer end()
	packed, err := p.tokenRowsOf(limitedBytes, tokensRow, writer.LayoutStacked, true)
	if err != nil {
		return err
	}
	defer os.RemoveAll(packed)
	large := *p
	if err := large.prepare(packed); err != nil {
		return err
	}
	defer os.RemoveAll(large.job.Work)
	large.cgroup = cgroup
	large.job.Window, large.job.Warm, large.job.Seconds, large.job.Cold = 512<<20, 5, 10, true
	return large.take(what, 3)
}
