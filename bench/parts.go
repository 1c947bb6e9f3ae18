package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/shardtool/shardtool/bench/corpus"
	"github.com/shardtool/shardtool/objstore/local"
	"github.com/shardtool/shardtool/objstore/mem"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source"
	"github.com/shardtool/shardtool/writer/source/parquet"
)

// parts measures a pack in eight parts, one after the other on this machine, and their commit,
// against one pack. Each part lists all sources, ends its own shard and puts a manifest. Each
// source is opened again, as in separate tasks.
func (b *bench) parts() error {
	rows := filepath.Join(b.dir, "parts.parquet")
	if err := writeParquet(rows, int64(b.mib)<<20); err != nil {
		return err
	}
	defer os.Remove(rows)
	err := b.partsOf("rows of 10 KB in Parquet", 1.1, func() (writer.Splitter, error) {
		store, err := local.New(filepath.Dir(rows), local.Options{})
		if err != nil {
			return nil, err
		}
		return parquet.New(b.ctx, []source.Input{{Store: store, Name: filepath.Base(rows)}}, parquet.Options{})
	})
	if err != nil {
		return err
	}
	archives, err := b.archives(32)
	if err != nil {
		return err
	}
	err = b.partsOf(fmt.Sprintf("texts of 3 KB in %d archives", len(archives)), 1.1, func() (writer.Splitter, error) {
		return tarSource(b, archives)
	})
	if err != nil {
		return err
	}
	folder := filepath.Join(b.dir, "parts-images")
	if _, _, err := corpus.WriteFiles(folder, b.samples("images")); err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	return b.partsOf("files of 100 KB", 0, func() (writer.Splitter, error) {
		return source.NewFiles(b.ctx, []string{folder}, source.FilesOptions{})
	})
}

// archives makes about n plain archives of texts.
func (b *bench) archives(n int64) ([]string, error) {
	dir := filepath.Join(b.dir, "parts-archives")
	store, err := local.New(dir, local.Options{NoSync: true})
	if err != nil {
		return nil, err
	}
	w, err := writer.New(b.ctx, store, writer.Options{Plain: true, ShardSize: max(1<<20, int64(b.mib)<<20/n)})
	if err != nil {
		return nil, err
	}
	defer w.Abort()
	for s := range b.samples("text") {
		if err := w.Write(b.ctx, sampleOf(s)); err != nil {
			return nil, err
		}
	}
	if _, err := w.Close(b.ctx); err != nil {
		return nil, err
	}
	return filepath.Glob(filepath.Join(dir, "*.tar"))
}

// partsOf measures with a store in memory: how a disk takes what is written would hide the rest.
func (b *bench) partsOf(what string, goal float64, open func() (writer.Splitter, error)) error {
	const parts = 8
	opt := writer.Options{ShardSize: 32 << 20} // so that a part has several
	with := func(pack func(src writer.Splitter) error) error {
		src, err := open()
		if err != nil {
			return err
		}
		defer src.Close()
		return pack(src)
	}
	r, our, base, err := b.ratio(func() error {
		store := mem.New()
		for part := range parts {
			err := with(func(src writer.Splitter) error {
				_, err := writer.PackPart(b.ctx, store, src, part, parts, opt)
				return err
			})
			if err != nil {
				return err
			}
		}
		_, err := writer.Commit(b.ctx, store, writer.CommitOptions{Parts: parts})
		return err
	}, func() error {
		return with(func(src writer.Splitter) error {
			_, err := writer.Pack(b.ctx, mem.New(), src, opt)
			return err
		})
	})
	if err != nil {
		return err
	}
	for i := range r {
		r[i] = 1 / r[i] // the time that ours takes, not its rate
	}
	name := fmt.Sprintf("%s: %d parts one after the other and commit / one pack", what, parts)
	detail := fmt.Sprintf("%.2f s against %.2f s, into memory", our.Median(), base.Median())
	if goal == 0 {
		b.Info("parts", name, r, "x", detail+"; each part lists all files")
		return nil
	}
	b.AtMost("parts", name, r, "x", goal, detail)
	return nil
}
