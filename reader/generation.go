package reader

import (
	"context"
	"sync"

	"golang.org/x/sync/semaphore"

	"github.com/shardtool/shardtool/internal/curate/viewfile"
	"github.com/shardtool/shardtool/internal/curate/viewstore"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/reader/internal/catalog"
	"github.com/shardtool/shardtool/reader/internal/fetch"
)

// Open opens the generation that manifest.json or Options.Generation names. It reads manifest.json
// and the front of the tables: two requests, one after the other, whatever the size of the data
// set. A view is read at the same time.
//
// An error wraps fs.ErrNotExist when there is no data set (or no such generation or view),
// format.ErrCorrupt or format.ErrMismatch when the data set is damaged or its parts do not belong
// together, and format.ErrVersion when a newer program wrote it.
func Open(ctx context.Context, store objstore.Store, opts Options) (*Dataset, error) {
	return openWith(ctx, store, opts, func() (*Dataset, error) { return openGeneration(ctx, store, opts) })
}

// openGeneration opens the whole data set.
func openGeneration(ctx context.Context, store objstore.Store, opts Options) (*Dataset, error) {
	opts, err := opts.filled()
	if err != nil {
		return nil, err
	}
	tables := ""
	if opts.Generation != "" {
		tables = tablesName(opts.Generation)
	}
	d := &Dataset{opts: opts, source: fetch.NewSource(store), random: semaphore.NewWeighted(opts.Memory)}
	d.source.Layer = opts.layer
	if d.catalog, err = catalog.Open(ctx, d.source, tables, opts.cacheLimit()); err != nil {
		return nil, err
	}
	d.tables = d.catalog.Tables
	d.selection = viewstore.All(d.tables.Samples)
	return d, d.join(nil, nil)
}

// openWith opens a data set that uses the view of opts and leaves out the samples that opts name.
// It reads the view and opens the layers while the data set is opened.
func openWith(ctx context.Context, store objstore.Store, opts Options,
	open func() (*Dataset, error)) (*Dataset, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var file *viewstore.File
	var layers []part
	var fileErr, layersErr error
	var reading sync.WaitGroup
	if opts.View != "" {
		reading.Go(func() { file, fileErr = viewstore.Read(ctx, store, opts.View) })
	}
	reading.Go(func() { layers, layersErr = openLayers(ctx, opts) })
	d, err := open()
	if err != nil {
		cancel()
		reading.Wait()
		_ = closeLayers(layers) // the first error says more
		return nil, err
	}
	reading.Wait()
	if err = layersErr; err == nil {
		err = d.join(layers, opts.Fields)
	}
	if err == nil {
		err = fileErr
	}
	if err == nil && file != nil {
		var view *viewfile.View
		if view, err = file.Decode(d.content()); err == nil {
			err = d.UseView(view)
		}
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
