package reader

import (
	"context"
	"fmt"

	"golang.org/x/sync/semaphore"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/format/sections"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/reader/internal/catalog"
	"github.com/shardtool/shardtool/reader/internal/fetch"
	"github.com/shardtool/shardtool/reader/views"
)

// Dataset is one generation of a data set, open for reading. Its methods may be called from several
// goroutines at once; Close frees what it holds.
type Dataset struct {
	opts      Options
	source    *fetch.Source
	catalog   *catalog.Catalog
	tables    *sections.Tables
	pool      fetch.ScratchPool
	random    *semaphore.Weighted // bytes of all random reads
	selection *views.Selection
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

// NumSamples is the number of samples of the generation. Removed samples count: they keep their
// numbers, see Info.Removed.
func (d *Dataset) NumSamples() uint64 { return d.tables.Samples }

// NumShards is the number of shards; Shard takes numbers below it.
func (d *Dataset) NumShards() int { return int(d.tables.Shards) }

// Digest is the identity of the content: see sections.Digest.
func (d *Dataset) Digest() format.Hash { return d.tables.Digest }

// Info is what the tables have about a generation as a whole. Do not write to its slices and maps.
type Info struct {
	// Generation counts from 1. Tables is the object name of its tables, Parent that of the tables of
	// the one before; empty for the first.
	Generation     uint64
	Tables, Parent string
	// OrderDigest is what checkpoints identify the samples by: the digest, and the ID of the view in
	// use.
	OrderDigest string
	// KeysTable is the object name of the keys table; empty when there is none.
	KeysTable string
	Blocks    uint64
	// Bytes is the length of all shards, sidecars included, DecodedBytes that of all blocks once
	// decoded: payloads, tar headers and padding.
	Bytes, DecodedBytes uint64
	// Fields are the totals of all fields, and Attributes the attributes that samples may have; both
	// are in ascending order of names.
	Fields     []format.FieldTotal
	Attributes []format.Attribute
	// Removed are the numbers of the removed samples, and Purged those of them that have lost their
	// bytes and keys too; both ascend.
	Removed, Purged []uint64
	// Format is the version of the format that a reader of the data set needs.
	Format string
	// Meta is what the packer noted.
	Meta format.Metadata
}

// Info returns what the tables have about the generation as a whole. It reads nothing.
func (d *Dataset) Info() Info {
	t := d.tables
	return Info{
		Generation: t.Generation, Tables: d.catalog.Name, Parent: t.Parent, OrderDigest: d.orderDigest(), KeysTable: d.keysTable(),
		Blocks: t.Blocks, Bytes: t.Bytes, DecodedBytes: t.Decoded, Fields: t.Fields, Attributes: t.Attributes,
		Removed: t.Removed, Purged: t.Purged, Format: fmt.Sprintf("%d.%d", format.Major, t.Minor()), Meta: t.Meta,
	}
}

// orderDigest is Info.OrderDigest.
func (d *Dataset) orderDigest() string {
	digest := format.DigestString(d.Digest())
	if id := d.selection.ID(); id != "" {
		digest += "#" + id
	}
	return digest
}

// keysTable is the object name of the keys table; empty when there is none.
func (d *Dataset) keysTable() string { return d.catalog.KeysTable() }

// Index returns the whole index of shard i: keys, sizes, attributes. It is one read, of the end of
// a .tar.zst or of the sidecar of a .tar. The rows in it have been compared with the tables'. The
// key of a removed sample is empty; its sizes and attributes are there until it is purged. Indexes
// are shared and kept, up to a limit: do not write to them.
func (d *Dataset) Index(ctx context.Context, i int) (*sections.ShardIndex, error) {
	return d.catalog.Index(ctx, i)
}
