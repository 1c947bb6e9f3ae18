package main

import (
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"time"

	"github.com/shardtool/shardtool/bench/corpus"
	"github.com/shardtool/shardtool/bench/table"
	"github.com/shardtool/shardtool/format/codec"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/local"
	"github.com/shardtool/shardtool/reshard/remove"
	"github.com/shardtool/shardtool/writer"
)

// removalSamples and removedKeys are the size of the data set that samples are removed from, and
// how many are.
const removalSamples, removedKeys = 1_000_000, 1000

// removal measures how long removing samples takes, and what a purge rewrites.
func (b *bench) removal() error {
	dir := filepath.Join(b.dir, "removal")
	defer os.RemoveAll(dir)
	store, err := local.New(dir, local.Options{})
	if err != nil {
		return err
	}
	res, err := b.write(store, manySmall(removalSamples), writer.Options{ShardSize: 16 << 20, Level: codec.LevelFastest})
	if err != nil {
		return err
	}
	spread := make([]string, removedKeys)
	for i := range spread {
		spread[i] = smallKey(i * (removalSamples / removedKeys))
	}
	var took table.Sample
	for range b.times {
		begin := time.Now()
		if _, err := remove.Run(b.ctx, store, spread, remove.Options{}); err != nil {
			return err
		}
		took = append(took, time.Since(begin).Seconds())
		if _, err := remove.Run(b.ctx, store, spread, remove.Options{Restore: true}); err != nil {
			return err
		}
	}
	b.AtMost("removal", "removing 1,000 of 10^6 keys, spread over all shards", took, "s", 1,
		fmt.Sprintf("%d shards, %d blocks; as a library, on disk", res.Shards, res.Blocks))
	return b.purge(store, int(res.Shards))
}

// purge removes samples that lie together, and counts what a purge rewrites.
func (b *bench) purge(store objstore.Store, shards int) error {
	together := make([]string, removedKeys)
	for i := range together {
		together[i] = smallKey(removalSamples/2 + i)
	}
	r, err := remove.Run(b.ctx, store, together, remove.Options{})
	if err != nil {
		return err
	}
	begin := time.Now()
	p, err := writer.Purge(b.ctx, store, writer.PurgeOptions{})
	if err != nil {
		return err
	}
	took := time.Since(begin)
	var before, after uint64
	for _, s := range p.Shards {
		before, after = before+s.Before.Bytes, after+s.After.Bytes
	}
	b.AtMost("removal", "purge of 1,000 that lie together: shards rewritten / shards that hold them", table.One(float64(len(p.Shards))/float64(r.Shards)), "x", 1,
		fmt.Sprintf("%d of %d shards in %.2f s, %d bytes became %d", len(p.Shards), shards, took.Seconds(), before, after))
	return nil
}

func smallKey(i int) string { return fmt.Sprintf("part%02d/%07d", i%50, i) }

// manySmall are samples of a few bytes.
func manySmall(n int) iter.Seq[corpus.Sample] {
	return func(yield func(corpus.Sample) bool) {
		for i := range n {
			text := []byte(fmt.Sprintf("the text of sample %d, %x", i, uint64(i)*0x9e3779b97f4a7c15))
			if !yield(corpus.Sample{Key: smallKey(i), Fields: []corpus.Field{{Name: "txt", Data: text}}}) {
				return
			}
		}
	}
}
