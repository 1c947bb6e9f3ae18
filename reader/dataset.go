package reader

import (
	"context"
	"fmt"

	"golang.org/x/sync/semaphore"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/reader/internal/catalog"
	"github.com/shardtool/shardtool/reader/internal/fetch"
)

// Dataset is one generation of a data set, open for reading. Its methods may be called from several
// goroutines at once; Close frees what it holds.
type Dataset struct {
	opts    Options
	source  *fetch.Source
	catalog *catalog.Catalog
	tables  *format.Tables
	pool    fetch.ScratchPool
	random  *semaphore.Weighted // bytes of all random reads
	view    *chosenView
}

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
	d := &Dataset{opts: opts, source: fetch.NewSource(store), random: semaphore.NewWeighted(opts.Memory), view: &chosenView{}}
	if d.catalog, err = catalog.Open(ctx, d.source, tables, opts.cacheLimit()); err != nil {
		return nil, err
	}
	d.tables = d.catalog.Tables
	if opts.View != "" {
		v, err := d.LoadView(ctx, opts.View)
		if err == nil {
			err = d.UseView(v)
		}
		if err != nil {
			d.Close()
			return nil, err
		}
	}
	if err := d.alsoRemove(opts.Removed); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// Close frees the data set. Iterations and reads that still run end with an error that wraps
// fs.ErrClosed. Close waits for its own goroutines, not for the caller's. A second Close does
// nothing.
func (d *Dataset) Close() error {
	err := d.catalog.Close()
	d.pool.Close()
	return err
}

// Store is where the data set lies.
func (d *Dataset) Store() objstore.Store { return d.source.Store }

// NumSamples, NumShards and NumBlocks count what the generation has. Removed samples count: they
// keep their numbers, see NumRemoved.
func (d *Dataset) NumSamples() uint64 { return d.tables.Samples }

// FormatVersion returns the version of the format that a reader of the data set needs.
func (d *Dataset) FormatVersion() string { return fmt.Sprintf("%d.%d", format.Major, d.tables.Minor()) }

// NumShards is the number of shards; Shard takes numbers below it.
func (d *Dataset) NumShards() int { return int(d.tables.Shards) }

// NumBlocks is the number of blocks.
func (d *Dataset) NumBlocks() uint64 { return d.tables.Blocks }

// Digest is the identity of the content: see format.Digest.
func (d *Dataset) Digest() format.Hash { return d.tables.Digest }

// Generation counts from 1.
func (d *Dataset) Generation() uint64 { return d.tables.Generation }

// Tables is the object name of the generation's tables.
func (d *Dataset) Tables() string { return d.catalog.Name }

// Parent is the object name of the tables of the generation before; empty for the first.
func (d *Dataset) Parent() string { return d.tables.Parent }

// KeysTable is the object name of the keys table; empty when there is none.
func (d *Dataset) KeysTable() string {
	return d.catalog.KeysTable()
}

// Fields are the totals of all fields, in ascending order of names. Do not write to them.
func (d *Dataset) Fields() []format.FieldTotal { return d.tables.Fields }

// Attributes are the attributes that samples may have, in ascending order of names. Do not write to
// them.
func (d *Dataset) Attributes() []format.Attribute { return d.tables.Attributes }

// Meta is what the packer noted about the whole. Do not write to it.
func (d *Dataset) Meta() format.Metadata { return d.tables.Meta }

// Bytes is the length of all shards, sidecars included; DecodedBytes that of their blocks once
// decoded.
func (d *Dataset) Bytes() uint64 { return d.tables.Bytes }

// DecodedBytes is the length of all blocks once decoded: payloads, tar headers and padding.
func (d *Dataset) DecodedBytes() uint64 { return d.tables.Decoded }

// Summary is manifest.json as the tables say it must be.
func (d *Dataset) Summary() *format.Summary { return d.catalog.Summary() }

// Index returns the whole index of shard i: keys, sizes, attributes. It is one read, of the end of
// a .tar.zst or of the sidecar of a .tar. The rows in it have been compared with the tables'. The
// key of a removed sample is empty; its sizes and attributes are there until it is purged. Indexes
// are shared and kept, up to a limit: do not write to them.
func (d *Dataset) Index(ctx context.Context, i int) (*format.ShardIndex, error) {
	return d.catalog.Index(ctx, i)
}
