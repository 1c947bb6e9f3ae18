package reader

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"

	"golang.org/x/sync/semaphore"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/sections"
	"github.com/shardtool/shardtool/internal/views"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/reader/internal/catalog"
	"github.com/shardtool/shardtool/reader/internal/fetch"
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

	layers     []openLayer
	parts      []part         // the data set itself, and the layers that are read
	attributes map[string]int // by name the number of the data set that has it: 0, or 1 and more for layers
}

// Close frees the data set. Iterations and reads that still run end with an error that wraps
// fs.ErrClosed. Close waits for its own goroutines, not for the caller's. A second Close does
// nothing.
func (d *Dataset) Close() error {
	err := errors.Join(d.catalog.Close(), closeLayers(d.layers))
	d.pool.Close()
	return err
}

// Store returns the store of the data set.
func (d *Dataset) Store() objstore.Store { return d.source.Store }

// NumSamples is the number of samples of the generation. Removed samples count: they keep their
// numbers, see Info.Removed.
func (d *Dataset) NumSamples() uint64 { return d.tables.Samples }

// NumShards is the number of shards; Shard takes numbers below it.
func (d *Dataset) NumShards() int { return int(d.tables.Shards) }

// Digest is the identity of the content: see sections.Digest.
func (d *Dataset) Digest() format.Hash { return d.tables.Digest }

// Info describes a generation as a whole, from its tables. Do not write to its slices and maps.
type Info struct {
	// Generation counts from 1. Tables is the object name of its tables. Parent is the object name of
	// the tables of the generation before; empty for the first.
	Generation     uint64
	Tables, Parent string
	// OrderDigest identifies the samples in checkpoints: it is the digest, and the ID of the view in
	// use.
	OrderDigest string
	// KeysTable is the object name of the keys table; empty when there is none.
	KeysTable string
	Blocks    uint64
	// Bytes is the length of all shards, including sidecars. DecodedBytes is the length of all decoded
	// blocks: payloads, tar headers and padding.
	Bytes, DecodedBytes uint64
	// Fields are the totals of all fields, and Attributes the attributes that samples may have; both
	// are in ascending order of names.
	Fields     []format.FieldTotal
	Attributes []format.Attribute
	// Removed are the numbers of the removed samples, and Purged the numbers of removed samples that
	// have lost their bytes and keys too. Both ascend.
	Removed, Purged []uint64
	// Format is the version of the format that a reader of the data set needs.
	Format string
	// Meta is the metadata that the packer wrote.
	Meta format.Metadata
}

// Info describes the generation as a whole. It reads nothing.
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

// Indexes yields the indexes of all shards in order, as Index returns them. Of a remote store it
// keeps several requests in flight. After an error it ends.
func (d *Dataset) Indexes(ctx context.Context) iter.Seq2[*sections.ShardIndex, error] {
	type result struct {
		index *sections.ShardIndex
		err   error
	}
	return func(yield func(*sections.ShardIndex, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		var wg sync.WaitGroup
		defer wg.Wait()
		defer cancel()
		queue := make(chan chan result, min(max(d.source.Requests(), 1), mostIndexes)-1)
		wg.Go(func() {
			defer close(queue)
			for i := range d.NumShards() {
				done := make(chan result, 1)
				select {
				case queue <- done:
				case <-ctx.Done():
					return
				}
				wg.Go(func() {
					ix, err := d.Index(ctx, i)
					done <- result{ix, err}
				})
			}
		})
		for done := range queue {
			r := <-done
			if !yield(r.index, r.err) || r.err != nil {
				return
			}
		}
		if ctx.Err() != nil {
			yield(nil, context.Cause(ctx))
		}
	}
}

// mostIndexes is how many indexes are read at once: each may have the keys of many samples.
const mostIndexes = 16
