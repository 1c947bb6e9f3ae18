package main

import (
	"fmt"
	"strings"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/format/codec"
	"github.com/shardtool/shardtool/objstore/storetest"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reshard"
	"github.com/shardtool/shardtool/writer"
)

// reshard packs data sets again, which costs decoding them beside what any pack costs.
func (b *bench) reshard() error {
	dir, err := b.dataset("text", false)
	if err != nil {
		return err
	}
	blocks, total, err := b.blocks(dir)
	if err != nil {
		return err
	}
	again := func(opt reshard.Options) func() error {
		return func() error {
			d, err := b.open(dir, reader.Options{})
			if err != nil {
				return err
			}
			defer d.Close()
			src, err := reshard.New(b.ctx, []*reader.Dataset{d}, opt)
			if err != nil {
				return err
			}
			defer src.Close()
			store := storetest.NewDiscard(func(name string) bool { return strings.HasSuffix(name, format.ZstdSuffix) })
			_, err = writer.Pack(b.ctx, store, src, writer.Options{ShardSize: 64 << 20})
			return err
		}
	}
	r, our, base, err := b.ratio(again(reshard.Options{}), b.encodeAll(blocks, codec.LevelDefault))
	if err != nil {
		return err
	}
	b.AtLeast("reshard", fmt.Sprintf("a data set of 3 KB texts to other shards / EncodeAll + SHA-256 on %d cores", b.cores), r, "x", 0.5,
		fmt.Sprintf("%s of decoded blocks against %s", mbs(total, our.Median()), mbs(total, base.Median())))
	share, err := reshard.ParseShare("0%..90%")
	if err != nil {
		return err
	}
	if r, our, base, err = b.ratio(again(reshard.Options{Share: share}), again(reshard.Options{})); err != nil {
		return err
	}
	b.Info("reshard", "90 % of it by the hash of the key / all of it", r, "x", fmt.Sprintf("%.2f s against %.2f s", our.Median(), base.Median()))
	return nil
}
