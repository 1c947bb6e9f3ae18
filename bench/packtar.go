package main

import (
	"archive/tar"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/shardtool/shardtool/bench/table"
	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/format/codec"
	"github.com/shardtool/shardtool/internal/npy"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/local"
	"github.com/shardtool/shardtool/objstore/storetest"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source"
	tarsource "github.com/shardtool/shardtool/writer/source/tar"
)

// packTars turns plain archives into shards: of texts of 3 KB, and of samples of 200 bytes.
func (b *bench) packTars() error {
	plain, err := b.dataset("text", true)
	if err != nil {
		return err
	}
	archives, err := filepath.Glob(filepath.Join(plain, "*.tar"))
	if err != nil {
		return err
	}
	if err := b.packTar("3 KB texts", archives, 0.8); err != nil {
		return err
	}
	small := filepath.Join(b.dir, "small.tar")
	defer os.Remove(small)
	if err := b.writeSmall(small); err != nil {
		return err
	}
	if err := b.packTar("200-byte texts", []string{small}, 0.5); err != nil {
		return err
	}
	return b.packTiny()
}

// writeSmall writes texts of 200 bytes, 1,000 for each MiB of a corpus.
func (b *bench) writeSmall(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	w := tar.NewWriter(f)
	var text bytes.Buffer
	n := 0
	for s := range b.samples("text") {
		for text.Write(s.Fields[0].Data); text.Len() >= 200 && n < 1000*b.mib; n++ {
			err = errors.Join(err, w.WriteHeader(&tar.Header{Name: fmt.Sprintf("%09d.txt", n), Size: 200, Mode: 0o644, Format: tar.FormatUSTAR}))
			_, werr := w.Write(text.Next(200))
			err = errors.Join(err, werr)
		}
		if err != nil || n == 1000*b.mib {
			break
		}
	}
	return errors.Join(err, w.Close(), f.Close())
}

func (b *bench) packTar(name string, archives []string, goal float64) error {
	dir := filepath.Join(b.dir, "of-tar")
	defer os.RemoveAll(dir)
	near, err := local.New(dir, local.Options{NoSync: true})
	if err != nil {
		return err
	}
	pack := func(store objstore.Store) error {
		src, err := tarSource(b, archives)
		if err != nil {
			return err
		}
		defer src.Close()
		_, err = writer.Pack(b.ctx, store, src, writer.Options{})
		return err
	}
	if err := pack(near); err != nil {
		return err
	}
	blocks, total, err := b.blocks(dir)
	if err != nil {
		return err
	}
	r, our, base, err := b.ratio(func() error { return pack(discarding()) }, b.encodeAll(blocks, codec.LevelDefault))
	if err != nil {
		return err
	}
	b.AtLeast("pack", fmt.Sprintf("a tar of %s to shards / EncodeAll + SHA-256 on %d cores", name, b.cores), r, "x", goal,
		fmt.Sprintf("%s of decoded blocks against %s; %s", mbs(total, our.Median()), mbs(total, base.Median()), b.processor()))
	return nil
}

// discarding returns a store that forgets the bytes of shards.
func discarding() *storetest.Discard {
	return storetest.NewDiscard(func(name string) bool { return strings.HasSuffix(name, format.ZstdSuffix) })
}

// packTiny writes samples of 16 bytes, 5,000 for each MiB of a corpus and at least a million, so
// that what a pack costs once counts for little. It reports what 20 million take at that rate, in
// both layouts. The goal is a fifth of the 65 s that they took as samples before shards could be
// stacked.
func (b *bench) packTiny() error {
	n, all := max(5000*b.mib, 1_000_000), 20e6
	var text strings.Builder // one string, so that the garbage collector has nothing to scan in it
	for i := range n {
		fmt.Fprintf(&text, "%09d", i)
	}
	keys := text.String()
	row := npy.AppendHeader(nil, "|u1", 16)
	for _, c := range []tinySamples{
		{writer.LayoutSamples, "bin", nil, "each is 1 KiB of tar"},
		{writer.LayoutStacked, "x.npy", row, "each is a row of 16 bytes, and its key is numbered"},
	} {
		if c.layout == writer.LayoutSamples {
			floor, err := b.tinyFloor(c, keys[:9*(n/5)])
			if err != nil {
				return err
			}
			c.detail += fmt.Sprintf(", whose compression and SHA-256 alone take %.0f s of it", floor*all/float64(n/5))
		}
		var took, used table.Sample
		for range min(b.times, 3) {
			before := cpu()
			seconds, err := seconds1(func() error { return b.writeTiny(discarding(), c, keys) })
			if err != nil {
				return err
			}
			took, used = append(took, seconds*all/float64(n)), append(used, (cpu()-before).Seconds()*all/float64(n))
		}
		b.AtMost("pack", fmt.Sprintf("20 million samples of 16 bytes with keys, from memory, layout %v", c.layout), took, "s", 13,
			fmt.Sprintf("measured with %d; processor time %.0f s; %s", n, used.Median(), c.detail))
	}
	return nil
}

// tinySamples are 16 bytes each after a header.
type tinySamples struct {
	layout writer.Layout
	name   string
	header []byte
	detail string
}

// writeTiny writes a sample for each 9 bytes of keys.
func (b *bench) writeTiny(store objstore.Store, c tinySamples, keys string) error {
	data := append(slices.Clone(c.header), make([]byte, 16)...)
	changing := data[len(c.header):]
	fields := []writer.Field{{Name: c.name, Data: data}}
	w, err := writer.New(b.ctx, store, writer.Options{Layout: c.layout})
	if err != nil {
		return err
	}
	defer w.Abort()
	for i := range len(keys) / 9 {
		binary.LittleEndian.PutUint32(changing, uint32(i))
		if err := w.Write(b.ctx, writer.Sample{Key: keys[9*i : 9*i+9], Fields: fields}); err != nil {
			return err
		}
	}
	_, err = w.Close(b.ctx)
	return err
}

// tinyFloor is the processor time of compressing and hashing the blocks of such samples, in
// seconds.
func (b *bench) tinyFloor(c tinySamples, keys string) (seconds float64, err error) {
	dir := filepath.Join(b.dir, "tiny")
	defer os.RemoveAll(dir)
	store, err := local.New(dir, local.Options{NoSync: true})
	if err == nil {
		err = b.writeTiny(store, c, keys)
	}
	if err != nil {
		return 0, err
	}
	blocks, _, err := b.blocks(dir)
	if err != nil {
		return 0, err
	}
	var used table.Sample
	for range min(b.times, 3) {
		before := cpu()
		if err := b.encodeAll(blocks, codec.LevelDefault)(); err != nil {
			return 0, err
		}
		used = append(used, (cpu() - before).Seconds())
	}
	return used.Median(), nil
}

// tarSource is archives on disk.
func tarSource(b *bench, paths []string) (*tarsource.Tar, error) {
	var inputs []source.Input
	for _, p := range paths {
		in, err := source.LocalInput(p)
		if err != nil {
			return nil, err
		}
		inputs = append(inputs, in)
	}
	return tarsource.New(b.ctx, inputs, tarsource.Options{})
}
