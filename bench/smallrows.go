package main

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"

	"github.com/shardtool/shardtool/internal/npy"
	"github.com/shardtool/shardtool/objstore/local"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/writer"
)

// smallStacked measures rows against ordinary samples of the same tokens, against decoding, and
// against a gather of rows in memory.
func (b *bench) smallStacked() error {
	tar, err := b.tokenRows(100, writer.LayoutSamples, true)
	if err != nil {
		return err
	}
	plain, err := b.tokenRows(100, writer.LayoutStacked, true)
	if err != nil {
		return err
	}
	ours, floor := b.smallRun(plain), b.smallRun(tar)
	ours.Rows = true
	if err := b.smallRows("rows of 200 B, uncompressed / the same samples in tars", ours, floor, smallGoals{
		cold: 5, steady: 6, coldFloor: smallTimes.cold, detail: "; tars as they are read today",
	}); err != nil {
		return err
	}
	packed, err := b.tokenRows(100, writer.LayoutStacked, false)
	if err != nil {
		return err
	}
	ratio, err := b.stored(packed)
	if err != nil {
		return err
	}
	ours, floor = b.smallRun(packed), b.smallRun(packed)
	ours.Rows, floor.Decode = true, true
	if err := b.smallRows("rows of 200 B, compressed / DecodeAll of frames in memory", ours, floor, smallGoals{
		steady: 0.85, coldFloor: smallTimes.steady, detail: fmt.Sprintf("; stored in %.2f of the bytes", ratio),
	}); err != nil {
		return err
	}
	wide, err := b.tokenRows(tokensRow, writer.LayoutStacked, true)
	if err != nil {
		return err
	}
	ours, floor = b.smallRun(wide), b.smallRun(wide)
	ours.Rows, floor.Gather = true, wideRow
	if err := b.smallRows("rows of 4,098 B, uncompressed / the gather alone", ours, floor, smallGoals{steady: 0.8, coldFloor: smallTimes.steady}); err != nil {
		return err
	}
	return b.smallInPython(wide)
}

// wideRow is the bytes of a row of 2,049 tokens.
const wideRow = 2 * tokensRow

// stored returns what share of the decoded bytes of a data set its shards have.
func (b *bench) stored(dir string) (float64, error) {
	ds, err := b.open(dir, reader.Options{})
	if err != nil {
		return 0, err
	}
	defer ds.Close()
	info := ds.Info()
	return float64(info.Bytes) / float64(info.DecodedBytes), nil
}

// zipfTokens are token numbers by a random number of 16 bits: token k has a share of 1/(k+2)^1.9, so
// that zstd stores about half of the bytes. Numbers that it cannot compress would be stored raw, and
// decoding them is a copy.
func zipfTokens() (tokens [1 << 16]uint16) {
	weight := func(k int) float64 { return math.Pow(float64(k+2), -1.9) }
	total, seen := 0.0, 0.0
	for k := range tokens {
		total += weight(k)
	}
	k := 0
	seen = weight(0)
	for i := range tokens {
		for seen/total < (float64(i)+0.5)/float64(len(tokens)) {
			k++
			seen += weight(k)
		}
		tokens[i] = uint16(k)
	}
	return tokens
}

// tokenRows packs samples of one field, tokens.npy, with the given number of token ids of two bytes
// each.
func (b *bench) tokenRows(tokens int, layout writer.Layout, plain bool) (string, error) {
	return b.tokenRowsOf(4*b.mib<<20, tokens, layout, plain)
}

// tokenRowsOf is tokenRows of a number of bytes.
func (b *bench) tokenRowsOf(size, tokens int, layout writer.Layout, plain bool) (string, error) {
	name := fmt.Sprintf("rows-%d-%d-%v-plain=%v", size, tokens, layout, plain)
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
	words := zipfTokens()
	header := npy.AppendHeader(nil, "<i2", int64(tokens)) // not every torch has uint16
	data := make([]byte, len(header)+2*tokens)
	copy(data, header)
	for i := range size / (2 * tokens) {
		x := uint64(0)
		for k := range tokens {
			if k%4 == 0 {
				x = random.Uint64()
			}
			binary.LittleEndian.PutUint16(data[len(header)+2*k:], words[uint16(x)])
			x >>= 16
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
