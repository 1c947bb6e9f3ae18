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

// tokenRows packs samples of one field, tokens.npy: so many token numbers of two bytes each, which
// zstd makes about a quarter smaller.
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
			f := random.Float64() // small numbers are more frequent, as in text
			binary.LittleEndian.PutUint16(data[len(header)+2*k:], uint16(50_000*f*f*f*f))
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
