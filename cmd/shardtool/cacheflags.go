package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/shardtool/shardtool/hint"
	"github.com/shardtool/shardtool/objstore/cache"
)

// defaultCacheSize is the default of --cache-size.
const defaultCacheSize = 100 << 30

// cacheFlags are the flags of commands that can read through a cache on local disk.
type cacheFlags struct {
	dir  string
	size int64
}

func (f *cacheFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.dir, "cache", "",
		"cache data in this folder, for later epochs and for other ranks of the host")
	sizeVar(cmd, &f.size, "cache-size", defaultCacheSize,
		"maximum size of the cache, over all processes that use the folder")
	titled(cmd, "Cache")
}

// open opens the cache if the user gave one. Data sets that are opened with the returned context
// read through it.
func (f *cacheFlags) open(ctx context.Context) (context.Context, *cache.Cache, error) {
	if f.dir == "" {
		return ctx, nil, nil
	}
	if f.size < 1 {
		return ctx, nil, usagef("--cache-size: give a size such as 100GiB")
	}
	c, err := cache.New(f.dir, cache.Options{Size: f.size, Log: warnings})
	if err != nil {
		return ctx, nil, optionError(hint.Optionf("cache", "%w", err))
	}
	return context.WithValue(ctx, cacheKey{}, c), c, nil
}
