package reader

import (
	"context"

	"golang.org/x/sync/semaphore"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/reader/internal/catalog"
	"github.com/shardtool/shardtool/reader/internal/fetch"
	"github.com/shardtool/shardtool/reader/views"
)

// Open opens the generation that manifest.json names, or that of Options.Generation. It reads
// manifest.json and the front of the tables: two objects and a handful of requests, whatever the
// size of the data set.
//
// An error wraps fs.ErrNotExist when there is no data set (or no such generation or view),
// format.ErrCorrupt or format.ErrMismatch when the data set is damaged or its parts do not belong
// together, and format.ErrVersion when a newer program wrote it.
func Open(ctx context.Context, store objstore.Store, opts Options) (*Dataset, error) {
	opts, err := opts.filled()
	if err != nil {
		return nil, err
	}
	tables := ""
	if opts.Generation != "" {
		tables = tablesName(opts.Generation)
	}
	d := &Dataset{opts: opts, source: fetch.NewSource(store), random: semaphore.NewWeighted(opts.Memory)}
	if d.catalog, err = catalog.Open(ctx, d.source, tables, opts.cacheLimit()); err != nil {
		return nil, err
	}
	d.tables = d.catalog.Tables
	d.selection = views.All(d.tables.Samples)
	if opts.View != "" {
		err = d.useView(ctx, opts.View)
	}
	if err == nil {
		err = d.alsoRemove(opts.Removed)
	}
	if err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}
