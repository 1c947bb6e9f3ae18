package main

import (
	_ "embed"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/shardtool/shardtool/bench/table"
	"github.com/shardtool/shardtool/reader"
)

//go:embed webdataset.py
var webdatasetScript string

// webdatasetVersion is what the comparison is with.
const webdatasetVersion = "1.0.2"

// python makes a virtual environment with packages in it, once, and returns its interpreter.
func (b *bench) python(packages ...string) (string, error) {
	dir := filepath.Join(b.dir, "venv")
	bin := filepath.Join(dir, "bin", "python")
	if b.data[dir] == "" {
		if err := command("python3", "-m", "venv", dir)(); err != nil {
			return "", err
		}
		b.data[dir] = bin
	}
	return bin, command(bin, append([]string{"-m", "pip", "install", "--quiet", "--disable-pip-version-check"}, packages...)...)()
}

// webdataset reads the same samples by WebDataset from plain tars, which it is fastest with: no
// decompression, no decoding, no shuffling, a process for each core. Ours are compressed, shuffled
// and verified.
func (b *bench) webdataset() error {
	python, err := b.python("webdataset=="+webdatasetVersion, "numpy")
	if err != nil {
		return err
	}
	for _, c := range []struct {
		kind, name string
		goal       float64
	}{{"large text", "text 3 KB", 20}, {"large images", "incompressible 100 KB", 5}} {
		dir, err := b.dataset(c.kind, false)
		if err != nil {
			return err
		}
		plain, err := b.dataset(c.kind, true)
		if err != nil {
			return err
		}
		files, err := filepath.Glob(filepath.Join(plain, "*.tar"))
		if err != nil {
			return err
		}
		ds, err := b.open(dir, reader.Options{})
		if err != nil {
			return err
		}
		want := ds.NumSamples()
		ds.Close()
		var best table.Sample
		setting := ""
		for _, processes := range []int{1, 2} {
			var took table.Sample
			for range 3 {
				out, err := exec.Command(python, append([]string{"-c", webdatasetScript, strconv.Itoa(processes)}, files...)...).Output()
				if err != nil {
					return fmt.Errorf("webdataset: %w", err)
				}
				var seconds float64
				var samples uint64
				if _, err := fmt.Sscan(strings.TrimSpace(string(out)), &seconds, &samples); err != nil {
					return err
				}
				if samples != want {
					return fmt.Errorf("webdataset read %d samples of %d", samples, want)
				}
				took = append(took, seconds)
			}
			if best == nil || took.Median() < best.Median() {
				best, setting = took, fmt.Sprintf("%d processes", processes)
			}
		}
		detail := fmt.Sprintf("WebDataset %s at its best of the settings tried: %s, plain tars, no shuffling, no decoding, start-up not counted: %.2f s for %d samples in %d shards",
			webdatasetVersion, setting, best.Median(), want, len(files))
		ours, err := b.timesAsFast(best, b.streams(plain, 2, 1, shuffled))
		if err != nil {
			return err
		}
		b.AtLeast("webdataset", c.name+": shuffled, verified stream of the same tars, 2 ranks / WebDataset", ours, "x", c.goal, detail)
		if ours, err = b.timesAsFast(best, b.streams(dir, 2, 1, shuffled)); err != nil {
			return err
		}
		b.Info("webdataset", c.name+": the same, ours compressed", ours, "x", "WebDataset reads plain tars all the same")
	}
	return nil
}

// timesAsFast measures streams that have some epochs against readings of one.
func (b *bench) timesAsFast(other table.Sample, streams func() error) (r table.Sample, err error) {
	if err := streams(); err != nil {
		return nil, err
	}
	for i := range other {
		our, err := seconds1(streams)
		if err != nil {
			return nil, err
		}
		r = append(r, other[i]/(our/epochs))
	}
	return r, nil
}
