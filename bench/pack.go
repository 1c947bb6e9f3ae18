package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/shardtool/shardtool/bench/corpus"
	"github.com/shardtool/shardtool/internal/format/codec"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/local"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source"
)

// pack measures writing against compressing and hashing the same blocks, and against reading and
// hashing the same files.
func (b *bench) pack() error {
	for _, level := range []codec.Level{codec.LevelFastest, codec.LevelDefault} {
		if err := b.packText(level); err != nil {
			return err
		}
	}
	for _, kind := range []string{"text", "images"} {
		if err := b.packFiles(kind); err != nil {
			return err
		}
	}
	return nil
}

// blocks decodes a data set.
func (b *bench) blocks(dir string) (blocks [][]byte, total int64, err error) {
	ds, err := b.open(dir, reader.Options{})
	if err != nil {
		return nil, 0, err
	}
	defer ds.Close()
	for f, err := range ds.Frames(b.ctx, reader.Range{}) {
		if err != nil {
			return nil, 0, err
		}
		blocks = append(blocks, append([]byte{}, f.Decoded...))
		total += int64(len(f.Decoded))
	}
	return blocks, total, nil
}

func (b *bench) packText(level codec.Level) error {
	dir, err := b.dataset("text", false)
	if err != nil {
		return err
	}
	blocks, total, err := b.blocks(dir)
	if err != nil {
		return err
	}
	var all []writer.Sample
	for s := range b.samples("text") {
		out := sampleOf(s)
		for i := range out.Fields {
			out.Fields[i].Data = append([]byte{}, out.Fields[i].Data...)
		}
		all = append(all, out)
	}
	const passes = 4 // over the same data with other keys: what counts is the rate of a long run, not its start
	keys := make([]string, passes*len(all))
	for i := range keys {
		keys[i] = fmt.Sprint(i/len(all), "/", all[i%len(all)].Key)
	}
	ours := func() error {
		store := discarding()
		w, err := writer.New(b.ctx, store, writer.Options{Level: level})
		if err != nil {
			return err
		}
		defer w.Abort()
		for i, key := range keys {
			s := all[i%len(all)]
			s.Key = key
			if err := w.Write(b.ctx, s); err != nil {
				return err
			}
		}
		_, err = w.Close(b.ctx)
		return err
	}
	r, our, base, err := b.ratio(ours, func() error {
		for range passes {
			if err := b.encodeAll(blocks, level)(); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	b.AtLeast("pack", fmt.Sprintf("text 3 KB from memory, level %v / EncodeAll + SHA-256 on %d cores", level, b.cores),
		r, "x", 0.9,
		fmt.Sprintf("%s of decoded blocks against %s; %s", mbs(passes*total, our.Median()),
			mbs(passes*total, base.Median()), b.processor()))
	return nil
}

// hashFiles reads and hashes files on all cores: the floor of packing what cannot be compressed.
// With a folder to copy to, it writes them, too, one file a core.
func (b *bench) hashFiles(files []string, copyTo string) func() error {
	run := 0
	return func() error {
		run++
		outputs := make([]io.Writer, b.cores)
		for core := range outputs {
			outputs[core] = io.Discard
			if copyTo != "" {
				f, err := os.Create(filepath.Join(copyTo, fmt.Sprintf("floor-%d-%d", run, core)))
				if err != nil {
					return err
				}
				defer f.Close()
				outputs[core] = f
			}
		}
		return each(len(files), b.cores, func(core int) (func(int) error, func()) {
			buf := make([]byte, 1<<20)
			return func(i int) error {
				f, err := os.Open(files[i])
				if err != nil {
					return err
				}
				defer f.Close()
				_, err = io.CopyBuffer(io.MultiWriter(sha256.New(), outputs[core]), struct{ io.Reader }{f}, buf)
				return err
			}, nothing
		})
	}
}

func (b *bench) packFiles(kind string) error {
	src := filepath.Join(b.dir, "files-"+kind)
	n, bytes, err := corpus.WriteFiles(src, b.samples(kind))
	if err != nil {
		return err
	}
	var files []string
	err = filepath.WalkDir(src, func(p string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, p)
		}
		return err
	})
	if err != nil {
		return err
	}
	packed := filepath.Join(b.dir, "packed-"+kind)
	defer os.RemoveAll(packed)
	b.before = func() { // a file that is removed soon is never written to the disk
		_ = os.RemoveAll(packed)
		_ = os.MkdirAll(packed, 0o755)
	}
	defer func() { b.before = nil }()
	run := 0
	ours := func() error {
		run++
		out := filepath.Join(packed, fmt.Sprint(run))
		store, err := local.New(out, local.Options{NoSync: true})
		if err != nil {
			return err
		}
		return packFolder(b.ctx, store, src)
	}
	nowhere := func() error { return packFolder(b.ctx, discarding(), src) }
	if kind == "images" {
		r, our, base, err := b.ratio(nowhere, b.hashFiles(files, ""))
		if err != nil {
			return err
		}
		b.AtLeast("pack", fmt.Sprintf("incompressible files of 100 KB / read and SHA-256 on %d cores", b.cores), r, "x",
			0.5,
			fmt.Sprintf("%s against %s, %d files, listing included; the bytes of neither are written; ours has checksums of stored and of decoded bytes too; %s",
				mbs(bytes, our.Median()), mbs(bytes, base.Median()), n, b.processor()))
		if r, our, base, err = b.ratio(ours, b.hashFiles(files, packed)); err != nil {
			return err
		}
		b.AtLeast("pack", "the same / read, SHA-256 and write", r, "x", 0.9,
			fmt.Sprintf("%s against %s: as much is written as read, without fsync; %s", mbs(bytes, our.Median()),
				mbs(bytes, base.Median()), b.processor()))
		return nil
	}
	dir, err := b.dataset("text", false)
	if err != nil {
		return err
	}
	blocks, total, err := b.blocks(dir)
	if err != nil {
		return err
	}
	r, our, base, err := b.ratio(nowhere, b.encodeAll(blocks, codec.LevelDefault))
	if err != nil {
		return err
	}
	b.Info("pack", "text files of 3 KB / EncodeAll + SHA-256 of the same blocks in memory", r, "x",
		fmt.Sprintf("%s against %s, %d files, listing and reading included; %s", mbs(total, our.Median()),
			mbs(total, base.Median()), n, b.processor()))
	return b.againstTar(src, packed, ours, dir, b.used[1].Median())
}

func packFolder(ctx context.Context, store objstore.Store, src string) error {
	files, err := source.NewFiles(ctx, []string{src}, source.FilesOptions{})
	if err != nil {
		return err
	}
	defer files.Close()
	_, err = writer.Pack(ctx, store, files, writer.Options{})
	return err
}

// againstTar compares our default level with the pipe people use, at its default level, 3. Both
// write their result below packed. encode is the processor time that our encoder takes alone.
func (b *bench) againstTar(src, packed string, ours func() error, dir string, encode float64) error {
	shards, err := shardFiles(dir)
	if err != nil {
		return err
	}
	size := int64(0)
	for _, s := range shards {
		info, err := os.Stat(s)
		if err != nil {
			return err
		}
		size += info.Size()
	}
	pipe := "tar -C " + src + " -cf - . | zstd -T2 -q -3"
	out, err := exec.Command("sh", "-c", pipe+" | wc -c").Output()
	if err != nil {
		return err
	}
	r, our, base, err := b.ratio(ours, command("sh", "-c", pipe+" > "+filepath.Join(packed, "theirs")))
	if err != nil {
		return err
	}
	b.AtLeast("pack", "text files of 3 KB / tar | zstd -T2, its level 3", r, "x", 1.3,
		fmt.Sprintf("%.2f s against %.2f s of `%s`; %d against %s bytes stored, ours at level default; theirs has no index, hashes or checks; %s; EncodeAll + SHA-256 of our blocks alone take %.2f s of it",
			our.Median(), base.Median(), strings.ReplaceAll(pipe, src, "FILES"), size, strings.TrimSpace(string(out)),
			b.processor(), encode))
	return nil
}
