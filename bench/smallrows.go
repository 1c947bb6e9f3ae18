package main

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"path/filepath"

	"github.com/shardtool/shardtool/internal/npy"
	"github.com/shardtool/shardtool/objstore/local"
	"github.com/shardtool/shardtool/writer"
)

// smallStacked measures rows against ordinary samples of the same tokens, against decoding, and
// against a gather of rows in memory.
func (b *bench) smallStacked() error {
	tar, err := b.tokenRows(100, writer.LayoutSamples, true)
	if err != nil {
		return err
	}
	for _, plain := range []bool{true, false} {
		rows, err := b.tokenRows(100, writer.LayoutStacked, plain)
		if err != nil {
			return err
		}
		ours, floor, name := b.smallRun(rows), b.smallRun(tar), "rows of 200 B, uncompressed / the same samples in tars"
		ours.Rows = true
		if plain {
			err = b.smallRows(name, ours, floor, smallGoals{5, 6, smallTimes.cold})
		} else {
			floor = ours
			floor.Rows, floor.Decode = false, true
			err = b.smallRows("rows of 200 B, compressed / DecodeAll of frames in memory", ours, floor, smallGoals{0, 0.85, smallTimes.steady})
		}
		if err != nil {
			return err
		}
	}
	rows, err := b.tokenRows(2049, writer.LayoutStacked, true)
	if err != nil {
		return err
	}
	ours := b.smallRun(rows)
	floor := ours
	ours.Rows, floor.Gather = true, 4098
	return b.smallRows("rows of 4,098 B, uncompressed / the gather alone", ours, floor, smallGoals{0, 0.8, smallTimes.steady})
}

// tokenRows packs samples of one field, tokens.npy, with the given number of token ids of two bytes
// each, which zstd makes about a quarter smaller.
func (b *bench) tokenRows(tokens int, layout writer.Layout, plain bool) (string, error) {
	name := fmt.Sprintf("rows-%d-%v-plain=%v", tokens, layout, plain)
	if dir, ok := b.data[name]; ok {
		return dir, nil
	}
	dir := filepath.Join(b.dir, name)
	store, err := local.New(dir, local.Options{NoSync: true})
	if err != nil {
		return "", err
	}
	w, err := writer.New(b.ctx, store, writer.Options{Plain: plain, Layout: layout})
	if err != nil {
		return "", err
	}
	defer w.Abort()
	random := rand.New(rand.NewPCG(1, uint64(tokens)))
	header := npy.AppendHeader(nil, "<u2", int64(tokens))
	data := make([]byte, len(header)+2*tokens)
	copy(data, header)
	for i := range 4 * b.mib << 20 / (2 * tokens) {
		for k := range tokens {
			x := random.Uint64() // half of the tokens are one of 256, as in text
			token := uint16(x>>16) >> (8 * (x & 1))
			binary.LittleEndian.PutUint16(data[len(header)+2*k:], token)
		}
		if err := w.Write(b.ctx, writer.Sample{Key: fmt.Sprintf("%09d", i), Fields: []writer.Field{{Name: "tokens.npy", Data: data}}}); err != nil {
			return "", err
		}
	}
	if _, err := w.Close(b.ctx); err != nil {
		return "", err
	}
	b.data[name] = dir
	return dir, nil
}
