package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/shardtool/shardtool/bench/corpus"
	"github.com/shardtool/shardtool/bench/table"
	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/format/codec"
	"github.com/shardtool/shardtool/objstore/local"
	"github.com/shardtool/shardtool/objstore/storetest"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source"
	"github.com/shardtool/shardtool/writer/source/tokens"
)

// tokens measures token ids on their way to shards: a long array that is cut, and documents that
// are joined.
func (b *bench) tokens() error {
	src := filepath.Join(b.dir, "ids.npy")
	ids := int64(b.mib) << 19
	defer os.Remove(src)
	for _, c := range []struct {
		name, shape string
		open        func(path string) (writer.Source, error)
	}{
		{"a long array, cut into samples of 2,048 tokens, to shards", fmt.Sprintf("(%d,)", ids), func(path string) (writer.Source, error) {
			return b.arrays(path, tokens.Options{Length: 2048})
		}},
		{"the same as int32", fmt.Sprintf("(%d,)", ids), func(path string) (writer.Source, error) {
			return b.arrays(path, tokens.Options{Length: 2048, DType: tokens.Int32})
		}},
		{"documents of 512 tokens, joined into samples of 2,048, to shards", fmt.Sprintf("(%d, 512)", ids/512), func(path string) (writer.Source, error) {
			return b.joined(path, tokens.JoinOptions{Length: 2048, Separator: []int64{50256}, DType: tokens.Uint16})
		}},
		{"these as int32", fmt.Sprintf("(%d, 512)", ids/512), func(path string) (writer.Source, error) {
			return b.joined(path, tokens.JoinOptions{Length: 2048, Separator: []int64{50256}})
		}},
	} {
		if err := writeTokens(src, c.shape, ids); err != nil {
			return err
		}
		if err := b.tokensRate(c.name, func() (writer.Source, error) { return c.open(src) }); err != nil {
			return err
		}
	}
	return b.mapSize(src)
}

// textTokens are ids of the words of a text by their first appearance: as with a tokenizer, words
// that are common have low ids.
func textTokens(n int) []byte {
	ids := make([]byte, 0, 2*n)
	known := map[string]uint16{}
	for s := range corpus.Text(corpus.Options{Samples: n/300 + 1, Seed: 1}) {
		for word := range bytes.FieldsSeq(s.Fields[0].Data) {
			id, ok := known[string(word)]
			if !ok {
				id = uint16(len(known) % 50256)
				known[string(word)] = id
			}
			ids = binary.LittleEndian.AppendUint16(ids, id)
		}
	}
	return ids[:min(len(ids), 2*n)]
}

// writeTokens makes a .npy file of n uint16 ids: 16 MiB of them, again and again, which is more
// than blocks can make use of.
func writeTokens(path, shape string, n int64) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	head := "{'descr': '<u2', 'fortran_order': False, 'shape': " + shape + ", }"
	head += strings.Repeat(" ", 117-len(head)) + "\n"
	if _, err := fmt.Fprintf(f, "\x93NUMPY\x01\x00%c\x00%s", len(head), head); err != nil {
		return err
	}
	ids := textTokens(8 << 20)
	for left := 2 * n; left > 0; left -= int64(len(ids)) {
		if _, err := f.Write(ids[:min(left, int64(len(ids)))]); err != nil {
			return err
		}
	}
	return f.Close()
}

func (b *bench) arrays(path string, opt tokens.Options) (*tokens.Arrays, error) {
	store, err := local.New(filepath.Dir(path), local.Options{})
	if err != nil {
		return nil, err
	}
	return tokens.NewArrays(b.ctx, []source.Input{{Store: store, Name: filepath.Base(path)}}, opt)
}

func (b *bench) joined(path string, opt tokens.JoinOptions) (writer.Source, error) {
	rows, err := b.arrays(path, tokens.Options{})
	if err != nil {
		return nil, err
	}
	return tokens.NewJoin(rows, opt)
}

// tokensRate holds packing against compressing and hashing the blocks that come of it.
func (b *bench) tokensRate(name string, open func() (writer.Source, error)) error {
	dir := filepath.Join(b.dir, "tokens-packed")
	defer os.RemoveAll(dir)
	kept, err := local.New(dir, local.Options{})
	if err != nil {
		return err
	}
	src, err := open()
	if err != nil {
		return err
	}
	if _, err := writer.Pack(b.ctx, kept, src, writer.Options{}); err != nil {
		return err
	}
	if err := src.Close(); err != nil {
		return err
	}
	blocks, total, err := b.blocks(dir)
	if err != nil {
		return err
	}
	r, our, base, err := b.ratio(func() error {
		src, err := open()
		if err != nil {
			return err
		}
		defer src.Close()
		_, err = writer.Pack(b.ctx, storetest.NewDiscard(func(name string) bool { return strings.HasSuffix(name, format.ZstdSuffix) }), src, writer.Options{})
		return err
	}, b.encodeAll(blocks, codec.LevelDefault))
	if err != nil {
		return err
	}
	b.AtLeast("tokens", fmt.Sprintf("%s / EncodeAll + SHA-256 on %d cores", name, b.cores), r, "x", 0.8,
		fmt.Sprintf("%s against %s, decoded", mbs(total, our.Median()), mbs(total, base.Median())))
	return nil
}

// mapSize is what the map of documents adds to shards, at a level that compresses ids where nothing
// repeats too.
func (b *bench) mapSize(path string) error {
	for _, length := range []int64{2048, 8192} {
		var stored [2]uint64
		for i, without := range []bool{true, false} {
			src, err := b.joined(path, tokens.JoinOptions{Length: length, Separator: []int64{50256}, DType: tokens.Uint16, NoMap: without})
			if err != nil {
				return err
			}
			res, err := writer.Pack(b.ctx, storetest.NewDiscard(func(name string) bool { return strings.HasSuffix(name, format.ZstdSuffix) }), src, writer.Options{Level: codec.LevelBetter})
			if err == nil {
				err = src.Close()
			}
			if err != nil {
				return err
			}
			stored[i] = res.Bytes
		}
		b.Info("tokens", fmt.Sprintf("documents.json, at samples of %d uint16 tokens and documents of 512", length), table.One(100*(float64(stored[1])/float64(stored[0])-1)), "% of shards",
			fmt.Sprintf("%d MiB with, %d MiB without", stored[1]>>20, stored[0]>>20))
	}
	return nil
}
