package reader

import (
	"context"
	"errors"
	"io/fs"

	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/internal/format/names"
	"github.com/shardtool/shardtool/objstore"
)

// OpenResumed opens a data set for a job that continues from a checkpoint. tables is the name of
// the generation's tables in the checkpoint. OpenResumed opens the newest generation with the same
// samples, that is with the same digest. The job then leaves out samples that were removed since
// the checkpoint, and delivers samples that were restored since. Info tells which generation it is.
// Orders and checkpoints depend on the digest alone.
//
// If the data set has got more or other samples since, the newest generation with the same samples
// is an earlier one. If a later generation appended samples to it, samples that the later one has
// removed or restored count too. If the generation of the checkpoint does not exist any more,
// OpenResumed opens the current one, and opening a stream refuses the checkpoint if its samples
// differ.
//
// Options.Generation must be empty. OpenResumed returns the errors of Open.
func OpenResumed(ctx context.Context, store objstore.Store, opts Options, tables string) (*Dataset, error) {
	return openWith(ctx, store, opts, func() (*Dataset, error) { return openNewest(ctx, store, opts, tables) })
}

// openNewest is OpenResumed for the whole data set.
func openNewest(ctx context.Context, store objstore.Store, opts Options, tables string) (*Dataset, error) {
	now, nowErr := openGeneration(ctx, store, opts)
	if nowErr == nil && (tables == "" || now.catalog.Name == tables) {
		return now, nil
	}
	if nowErr != nil && (tables == "" || !errors.Is(nowErr, fs.ErrNotExist)) {
		return nil, nowErr // its list of removed samples is not known
	}
	opts.Generation = names.Generation(tables)
	then, err := openGeneration(ctx, store, opts)
	switch {
	case nowErr != nil:
		return then, err
	case errors.Is(err, fs.ErrNotExist): // pruned since, or a copy that was packed anew
		return now, nil
	case err != nil:
		now.Close()
		return nil, err
	}
	newest, err := then.newest(ctx, now, opts)
	if newest != then {
		then.Close()
	}
	return newest, err
}

// newest returns the newest generation with the samples of d, from at back to d. It closes at and
// the generations between, except for the one that it returns.
func (d *Dataset) newest(ctx context.Context, at *Dataset, opts Options) (*Dataset, error) {
	for at.tables.Generation >= d.tables.Generation {
		begins, err := at.beginsWith(ctx, d)
		if err == nil && begins && at.Digest() == d.Digest() {
			return at, nil
		}
		if err == nil && begins { // its list is newer; samples that d has purged stay removed in any case
			d.tables.Removed = metadata.Within(at.tables.Removed, 0, d.tables.Samples)
			err = d.alsoRemove(d.tables.Purged)
		}
		at.Close()
		if err != nil {
			return nil, err
		}
		if begins || at.tables.Parent == "" {
			return d, nil
		}
		opts.Generation = names.Generation(at.tables.Parent)
		if at, err = openGeneration(ctx, d.Store(), opts); errors.Is(err, fs.ErrNotExist) { // pruned
			return d, nil
		} else if err != nil {
			return nil, err
		}
	}
	at.Close()
	return d, nil
}

// beginsWith reports whether d begins with the shards of the other generation, so that sample
// numbers mean the same samples.
func (d *Dataset) beginsWith(ctx context.Context, then *Dataset) (bool, error) {
	if then.Digest() == d.Digest() {
		return true, nil
	}
	if then.NumShards() >= d.NumShards() {
		return false, nil
	}
	for i := range then.NumShards() {
		a, err := d.Shard(ctx, i)
		if err != nil {
			return false, err
		}
		b, err := then.Shard(ctx, i)
		if err != nil {
			return false, err
		}
		if a.Hash != b.Hash || a.Samples != b.Samples {
			return false, nil
		}
	}
	return true, nil
}
