package main

import (
	"fmt"
	"math"

	"github.com/klauspost/compress/zstd"

	"github.com/shardtool/shardtool/bench/table"
	"github.com/shardtool/shardtool/reader"
)

// index compares the size of the index, per sample and per block, with the entropy of its content.
func (b *bench) index() error {
	for _, kind := range []string{"text", "images", "triples"} {
		dir, err := b.dataset(kind, false)
		if err != nil {
			return err
		}
		ds, err := b.open(dir, reader.Options{})
		if err != nil {
			return err
		}
		err = b.indexOf(kind, ds)
		ds.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) indexOf(kind string, ds *reader.Dataset) error {
	var tail, keys, seek, blocks, samples float64
	sizes := map[string][]uint64{}
	for i := range ds.NumShards() {
		s, err := ds.Shard(b.ctx, i)
		if err != nil {
			return err
		}
		ix, err := ds.Index(b.ctx, i)
		if err != nil {
			return err
		}
		tail += float64(s.Tail)
		seek += float64(17 + 8*(len(ix.Rows)+4)) // SPEC 5: its frame, and a line for each frame before it
		blocks += float64(s.Blocks)
		samples += float64(s.Samples)
		keys += float64(keysLen(ix.Keys.Slice()))
		for f := range ix.Sizes {
			for k := range ix.Sizes[f].Len() {
				sizes[ix.Fields[f]] = append(sizes[ix.Fields[f]], ix.Sizes[f].At(k))
			}
		}
	}
	floor := 12 * blocks
	bits := 0.0
	for _, v := range sizes {
		h := entropy(v)
		bits += h * float64(len(v)) / samples
		floor += 1.1 * h * float64(len(v)) / 8
	}
	b.AtMost("index", kind+": whole tail without keys / (1.1 x entropy of sizes + 12 B a block)", table.One((tail-keys)/floor), "x", 1,
		fmt.Sprintf("%.2f B a sample (entropy %.2f), keys %.1f B a sample, %.1f B a block in all; %d samples, %d blocks, %d shards",
			(tail-keys)/samples, bits/8, keys/samples, tail/blocks, int(samples), int(blocks), ds.NumShards()))
	b.Info("index", kind+": the same without the seek table", table.One((tail-keys-seek)/floor), "x",
		fmt.Sprintf("the table of the zstd seekable format takes %.1f B a block, uncompressed by its own rules", seek/blocks))
	return nil
}

// entropy is that of the lognormal distribution fitted to v, in bits a value, for values counted in
// whole bytes: what an ideal coder that knows the distribution needs. Fields of few values have
// their empirical one.
func entropy(v []uint64) float64 {
	count := map[uint64]int{}
	for _, x := range v {
		count[x]++
	}
	if len(count) <= 256 {
		h := 0.0
		for _, n := range count {
			p := float64(n) / float64(len(v))
			h -= p * math.Log2(p)
		}
		return h
	}
	sum, sq, n := 0.0, 0.0, 0.0
	for _, x := range v {
		l := math.Log(float64(max(x, 1)))
		sum, sq, n = sum+l, sq+l*l, n+1
	}
	mu := sum / n
	sigma := math.Sqrt(sq/n - mu*mu)
	return (mu + 0.5*math.Log(2*math.Pi*math.E*sigma*sigma)) / math.Ln2
}

// keysLen is how many bytes the keys take in an index: front-coded (SPEC 4.4), each byte plane
// compressed apart, as the index does it.
func keysLen(keys []string) int {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithSingleSegment(true), zstd.WithWindowSize(8<<20),
		zstd.WithEncoderCRC(false), zstd.WithAllLitEntropyCompression(true))
	if err != nil {
		panic("bench: encoder options: " + err.Error()) // constant options
	}
	defer enc.Close()
	stored := 0
	var piece []byte
	flush := func() { stored, piece = stored+len(enc.EncodeAll(piece, nil)), piece[:0] }
	shared, rest := make([]int, len(keys)), make([]int, len(keys))
	for i, k := range keys {
		for i > 0 && shared[i] < min(len(k), len(keys[i-1])) && k[shared[i]] == keys[i-1][shared[i]] {
			shared[i]++
		}
		rest[i] = len(k) - shared[i]
	}
	for _, column := range [][]int{shared, rest} {
		all := 0
		for _, v := range column {
			all |= v
		}
		mask := byte(0)
		for plane := range 2 { // a key has at most 4,096 bytes
			if all>>(8*plane)&0xff != 0 {
				mask |= 1 << plane
			}
		}
		piece = append(piece, mask)
		for plane := range 2 {
			if mask>>plane&1 != 0 {
				for _, v := range column {
					piece = append(piece, byte(v>>(8*plane)))
				}
				flush()
			}
		}
	}
	for i, k := range keys {
		piece = append(piece, k[shared[i]:]...)
	}
	flush()
	return stored
}
