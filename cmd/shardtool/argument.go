package main

import (
	"context"
	"strings"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/open"
	"github.com/shardtool/shardtool/reader"
)

// opening are the options with which commands open data sets: through the cache of the context.
func opening(ctx context.Context, opts reader.Options) open.Options {
	o := open.Options{Reader: opts, Log: warnings}
	if c := cacheOf(ctx); c != nil {
		o.Wrap = c.Wrap
	}
	return o
}

// dataset splits DATASET[@generation] and opens the store.
func dataset(ctx context.Context, arg string) (objstore.Store, string, error) {
	return open.Store(ctx, arg, opening(ctx, reader.Options{}))
}

// wholeDataset opens the store of a data set for a command that changes it.
func wholeDataset(ctx context.Context, command, arg string) (objstore.Store, error) {
	return current(ctx, arg,
		command+" publishes a new generation after the current one: give the data set without @%[2]s")
}

// current opens the store of a data set, or of one to be made, and refuses a generation. refusal is
// the format of the error, with the address and the generation.
func current(ctx context.Context, arg, refusal string) (objstore.Store, error) {
	store, generation, err := dataset(ctx, arg)
	if err == nil && generation != "" {
		err = usagef(refusal, strings.TrimSuffix(arg, "@"+generation), generation)
	}
	return store, err
}

// openDataset opens the data set of an argument.
func openDataset(ctx context.Context, arg string) (*reader.Dataset, error) {
	return open.Dataset(ctx, arg, opening(ctx, reader.Options{}))
}
