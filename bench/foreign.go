package main

import (
	"crypto/sha256"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/shardtool/shardtool/objstore/local"
	"github.com/shardtool/shardtool/writer"
)

// foreign indexes plain tars where they lie, which costs reading and hashing them.
func (b *bench) foreign() error {
	plain, err := b.dataset("text", true)
	if err != nil {
		return err
	}
	archives, err := filepath.Glob(filepath.Join(plain, "*.tar"))
	if err != nil {
		return err
	}
	dir := filepath.Join(b.dir, "foreign")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	total, names := int64(0), []string{}
	for range b.cores { // as many archives as there are cores, at least
		for _, from := range archives {
			name := fmt.Sprintf("x-%d.tar", len(names))
			data, err := os.ReadFile(from)
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, name), data, 0o644)
			}
			if err != nil {
				return err
			}
			names, total = append(names, name), total+int64(len(data))
		}
	}
	store, err := local.New(dir, local.Options{NoSync: true})
	if err != nil {
		return err
	}
	ours := func() error {
		_, err := writer.Index(b.ctx, store, names, writer.Options{Mode: writer.ModeOverwrite, KeepDuplicates: true})
		return err
	}
	r, our, base, err := b.ratio(ours, func() error { return b.checksums(dir, names) })
	if err != nil {
		return err
	}
	b.Info("foreign", fmt.Sprintf("index of tars of 3 KB texts / read, CRC-32C and SHA-256 on %d cores", b.cores), r, "x",
		fmt.Sprintf("%s against %s", mbs(total, our.Median()), mbs(total, base.Median())))
	return nil
}

// checksums reads files and computes what an index holds of them.
func (b *bench) checksums(dir string, names []string) error {
	table := crc32.MakeTable(crc32.Castagnoli)
	var next atomic.Int64
	var g errgroup.Group
	for range b.cores {
		g.Go(func() error {
			buf := make([]byte, 1<<20)
			for i := next.Add(1) - 1; i < int64(len(names)); i = next.Add(1) - 1 {
				f, err := os.Open(filepath.Join(dir, names[i]))
				if err != nil {
					return err
				}
				_, err = io.CopyBuffer(io.MultiWriter(crc32.New(table), sha256.New()), struct{ io.Reader }{f}, buf)
				f.Close()
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}
