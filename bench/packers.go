package main

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/shardtool/shardtool/bench/corpus"
	"github.com/shardtool/shardtool/bench/table"
	"github.com/shardtool/shardtool/objstore/local"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source"
)

//go:embed packers.py
var packersScript string

// mosaicmlVersion is what the comparison is with.
const mosaicmlVersion = "0.13.0"

// packer is a tool that packs files.
type packer struct {
	name, shown string
	python      string
	goal        float64
	compression string // the fastest it has
}

// packers packs the same files by WebDataset's ShardWriter and MosaicML's MDSWriter.
func (b *bench) packers() error {
	var all []packer
	python, err := b.python("webdataset=="+webdatasetVersion, "numpy")
	if err != nil {
		return err
	}
	all = append(all, packer{"webdataset", "WebDataset ShardWriter " + webdatasetVersion, python, 10, "gz"})
	if python, err = b.pythonWithTorch("mosaicml-streaming==" + mosaicmlVersion); err != nil {
		return err
	}
	if python != "" {
		all = append(all, packer{"mosaicml", "MosaicML MDSWriter " + mosaicmlVersion, python, 5, "zstd:1"})
	} else {
		b.LeftOut("packers", "MosaicML: "+needsTorch)
	}
	for _, c := range []struct{ kind, name string }{{"text", "text 3 KB"}, {"images", "incompressible 100 KB"}} {
		src := filepath.Join(b.dir, "files-packers-"+c.kind)
		n, bytes, err := corpus.WriteFiles(src, b.samples(c.kind))
		if err != nil {
			return err
		}
		for _, p := range all {
			if err := b.against(p, c.name+": pack as plain tar, hashed / ", "none", src, n, bytes); err != nil {
				return err
			}
			if c.kind == "images" {
				continue // compressing them is for nobody
			}
			if err := b.against(p, c.name+": pack, compressed and hashed / ", p.compression, src, n, bytes); err != nil {
				return err
			}
		}
		if err := os.RemoveAll(src); err != nil {
			return err
		}
	}
	return nil
}

// against packs a folder by another tool, on one process and on two, and by ours.
func (b *bench) against(p packer, name, compression, src string, files int, bytes int64) error {
	script := filepath.Join(b.dir, "packers.py")
	if err := os.WriteFile(script, []byte(packersScript), 0o600); err != nil {
		return err
	}
	out := filepath.Join(b.dir, "packed-packers")
	var best table.Sample
	setting := ""
	for _, processes := range []string{"1", "2"} {
		var took table.Sample
		for range 3 {
			text, err := exec.Command(p.python, script, p.name, processes, compression, src, out).Output()
			if err != nil {
				return fmt.Errorf("%s: %w", p.shown, err)
			}
			seconds, rest, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
			t, err := strconv.ParseFloat(seconds, 64)
			if err != nil || rest != strconv.Itoa(files) {
				return fmt.Errorf("%s packed %q of %d files", p.shown, text, files)
			}
			took = append(took, t)
		}
		if best == nil || took.Median() < best.Median() {
			best, setting = took, fmt.Sprintf("%s processes, compression %s", processes, compression)
		}
	}
	var r table.Sample
	for i := range best {
		our, err := seconds1(func() error { return b.packFolder(src, out, compression == "none") })
		if err != nil {
			return err
		}
		r = append(r, best[i]/our)
	}
	b.AtLeast("packers", name+p.shown, r, "x", p.goal,
		fmt.Sprintf("its best of 1 and 2 processes: %s, start-up not counted: %.2f s for %d files of %d MB in the page cache", setting, best.Median(), files, bytes/1e6))
	return nil
}

// packFolder packs by ours with default settings, and removes the result, which is not counted in
// others either.
func (b *bench) packFolder(src, out string, plain bool) error {
	store, err := local.New(out, local.Options{NoSync: true})
	if err != nil {
		return err
	}
	files, err := source.NewFiles(b.ctx, []string{src}, source.FilesOptions{})
	if err != nil {
		return err
	}
	defer files.Close()
	if _, err := writer.Pack(b.ctx, store, files, writer.Options{Plain: plain}); err != nil {
		return err
	}
	return os.RemoveAll(out)
}

// needsTorch is why what pythonWithTorch is for is left out.
const needsTorch = "it needs torch and torchvision; Debian's python3-torch and python3-torchvision will do"

// pythonWithTorch makes a virtual environment over an interpreter of the system that has torch and
// torchvision, and returns its interpreter; "" if there is none. Of the packages'
// dependencies only those that are needed here are installed.
func (b *bench) pythonWithTorch(packages ...string) (string, error) {
	dir := filepath.Join(b.dir, "venv-torch")
	bin := filepath.Join(dir, "bin", "python")
	for _, python := range []string{"python3", "/usr/bin/python3"} {
		if exec.Command(python, "-c", "import torch, torchvision").Run() != nil {
			continue
		}
		if err := command(python, "-m", "venv", "--system-site-packages", dir)(); err != nil {
			return "", err
		}
		pip := []string{"-m", "pip", "install", "--quiet", "--quiet", "--disable-pip-version-check"}
		if err := command(bin, append(append(pip, "--no-deps"), packages...)...)(); err != nil {
			return "", err
		}
		return bin, command(bin, append(pip, "transformers==4.46.3", "numpy", "xxhash<4", "zstd<2", "Brotli", "python-snappy", "boto3", "tqdm", "catalogue")...)()
	}
	return "", nil
}
