package main

import (
	"fmt"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/shardtool/shardtool/bench/corpus"
	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/local"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/writer"
)

// samples is a corpus of about mib MiB: 3 KB of text, 100 KB that cannot be compressed, tensors,
// rows of tokens that do not repeat, or rows of phrases, which compress as those of prose do.
func (b *bench) samples(kind string) iter.Seq[corpus.Sample] {
	size := int64(b.mib) << 20
	if large, ok := strings.CutPrefix(kind, "large "); ok { // many times what a shuffled stream holds
		kind, size = large, 4*size
	}
	switch kind {
	case "text":
		return corpus.Text(corpus.Options{Samples: int(size / 4000), Seed: 1})
	case "images":
		return corpus.Images(corpus.Options{Samples: int(size / 100_000), Seed: 2})
	case "tensors":
		return corpus.Tensors(corpus.Options{Samples: int(size / 150_528), Seed: 4})
	case "tokens":
		return tokenRows(int(size / (2 * tokensRow)))
	case "phrases":
		return phraseRows(int(size / (2 * tokensRow)))
	}
	panic("bench: no corpus " + kind)
}

// dataset packs a corpus once and returns where it is.
func (b *bench) dataset(kind string, plain bool) (string, error) {
	name := fmt.Sprintf("%s-plain=%v", strings.ReplaceAll(kind, " ", "-"), plain)
	if dir, ok := b.data[name]; ok {
		return dir, nil
	}
	dir := filepath.Join(b.dir, name)
	store, err := local.New(dir, local.Options{NoSync: true})
	if err != nil {
		return "", err
	}
	if _, err := b.write(store, b.samples(kind), writer.Options{Plain: plain}); err != nil {
		return "", err
	}
	b.data[name] = dir
	return dir, nil
}

func (b *bench) write(store objstore.Store, samples iter.Seq[corpus.Sample],
	opt writer.Options) (*writer.Result, error) {
	w, err := writer.New(b.ctx, store, opt)
	if err != nil {
		return nil, err
	}
	defer w.Abort()
	for s := range samples {
		if err := w.Write(b.ctx, sampleOf(s)); err != nil {
			return nil, err
		}
	}
	return w.Close(b.ctx)
}

func sampleOf(s corpus.Sample) writer.Sample {
	out := writer.Sample{Key: s.Key, Fields: make([]writer.Field, len(s.Fields))}
	for i, f := range s.Fields {
		out.Fields[i] = writer.Field{Name: f.Name, Data: f.Data}
	}
	return out
}

func (b *bench) open(dir string, opt reader.Options) (*reader.Dataset, error) {
	store, err := local.New(dir, local.Options{})
	if err != nil {
		return nil, err
	}
	return reader.Open(b.ctx, store, opt)
}

// frame is a block's stored bytes in memory.
type frame struct {
	stored []byte
	row    format.Row
}

// frames loads all frames of a data set, by offsets alone.
func (b *bench) frames(ds *reader.Dataset, dir string) (all []frame, decoded int64, err error) {
	for i := range ds.NumShards() {
		s, err := ds.Shard(b.ctx, i)
		if err != nil {
			return nil, 0, err
		}
		rows, err := ds.Rows(b.ctx, i)
		if err != nil {
			return nil, 0, err
		}
		data, err := os.ReadFile(filepath.Join(dir, s.Name))
		if err != nil {
			return nil, 0, err
		}
		off := 0
		for _, r := range rows {
			all = append(all, frame{data[off : off+int(r.Stored)], r})
			off += int(r.Stored)
			decoded += int64(r.Decoded)
		}
	}
	return all, decoded, nil
}

// place is where a block's stored bytes are.
type place struct {
	file   *os.File
	offset int64
	row    format.Row
}

// places lists the blocks of a data set. The files stay open: there are few, and the process ends
// soon.
func (b *bench) places(ds *reader.Dataset, dir string) (all []place, err error) {
	for i := range ds.NumShards() {
		s, err := ds.Shard(b.ctx, i)
		if err != nil {
			return nil, err
		}
		rows, err := ds.Rows(b.ctx, i)
		if err != nil {
			return nil, err
		}
		f, err := os.Open(filepath.Join(dir, s.Name))
		if err != nil {
			return nil, err
		}
		offset := int64(0)
		for _, r := range rows {
			all = append(all, place{f, offset, r})
			offset += int64(r.Stored)
		}
	}
	return all, nil
}

// binary builds the command once.
func (b *bench) binary() (string, error) {
	if b.bin != "" {
		return b.bin, nil
	}
	bin := filepath.Join(b.dir, "shardtool")
	cmd := exec.Command("go", "build", "-o", bin, "./cmd/shardtool")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building shardtool: %w\n%s", err, out)
	}
	b.bin = bin
	return bin, nil
}

// packageEnv returns the environment of a script that imports the Python package of this
// repository, with its binary.
func (b *bench) packageEnv() ([]string, error) {
	bin, err := b.binary()
	if err != nil {
		return nil, err
	}
	source, err := filepath.Abs("python/src")
	if err != nil {
		return nil, err
	}
	return append(os.Environ(), "PYTHONPATH="+source, "SHARDTOOL_BINARY="+bin, "PYTHONDONTWRITEBYTECODE=1"), nil
}

// shardFiles are the shards of a data set.
func shardFiles(dir string) ([]string, error) {
	return filepath.Glob(filepath.Join(dir, "*.tar*"))
}

// fsKind returns the type of a folder's file system.
func fsKind(dir string) string {
	out, err := exec.Command("stat", "-f", "-c", "%T", dir).Output()
	if err != nil {
		return "a temporary folder"
	}
	return strings.TrimSpace(string(out))
}
