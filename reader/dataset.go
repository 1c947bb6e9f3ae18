package reader

import (
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sync/semaphore"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/curate/viewstore"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/reader/internal/catalog"
	"github.com/shardtool/shardtool/reader/internal/fetch"
	"github.com/shardtool/shardtool/reader/internal/window"
)

// Dataset is one generation of a data set, open for reading. Its methods may be called from several
// goroutines at once; Close frees what it holds.
type Dataset struct {
	opts    Options
	source  *fetch.Source
	catalog *catalog.Catalog
	tables  *metadata.Tables
	pool    fetch.ScratchPool
	shared  struct {
		once sync.Once
		held *window.Held
	}
	random    *semaphore.Weighted // bytes of all random reads
	selection *viewstore.Selection

	parts      []part         // the data set itself, and the layers that are read
	all        []part         // the data set itself, and all layers
	attributes map[string]int // by name the place in all of the data set that has it
	// allAttributes are the attributes of all of them, in ascending order of names.
	allAttributes []format.Attribute
}

// Close frees the data set. Iterations and reads that still run end with an error that wraps
// fs.ErrClosed. Close waits for its own goroutines, not for the caller's. A second Close does
// nothing.
func (d *Dataset) Close() error {
	err := errors.Join(d.catalog.Close(), closeLayers(d.all[1:]))
	d.pool.Close()
	if d.shared.once.Do(func() {}); d.shared.held != nil {
		d.shared.held.Close()
	}
	return err
}

// held returns what keeps the blocks of the data set itself for streams that share them; nil after
// Close.
func (d *Dataset) held() *window.Held {
	d.shared.once.Do(func() {
		p := part{Dataset: d}
		kept, _ := p.keeps(!d.source.Remote())
		d.shared.held = window.NewHeld(int64(kept * 9 / 8))
	})
	return d.shared.held
}

// Store returns the store of the data set.
func (d *Dataset) Store() objstore.Store { return d.source.Store }

// NumSamples is the number of samples of the generation. Removed samples count: they keep their
// numbers, see Info.Removed.
func (d *Dataset) NumSamples() uint64 { return d.tables.Samples }

// NumShards is the number of shards; Shard takes numbers below it.
func (d *Dataset) NumShards() int { return int(d.tables.Shards) }

// Digest is the identity of the content: see metadata.Digest.
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
	// are in ascending order of names. The attributes of layers are among them, for which see
	// Dataset.Fields too.
	Fields     []format.FieldTotal
	Attributes []format.Attribute
	// Removed are the numbers of the removed samples, and Purged the numbers of removed samples that
	// have lost their bytes and keys too. Both ascend.
	Removed, Purged []uint64
	// Replaces names the fields and attributes of the data set, or of other layers, that give way to a
	// layer's; nil for a data set that is no layer.
	Replaces []string
	// Format is the version of the format that a reader of the data set needs.
	Format string
	// Meta is the metadata that the packer wrote.
	Meta format.Metadata
}

// Info describes the generation as a whole. It reads nothing.
func (d *Dataset) Info() Info {
	t := d.tables
	var replaces []string
	if t.Base != nil {
		replaces = t.Base.Replaces
	}
	return Info{
		Generation: t.Generation, Tables: d.catalog.Name, Parent: t.Parent, OrderDigest: d.orderDigest(),
		KeysTable: d.keysTable(),
		Blocks:    t.Blocks, Bytes: t.Bytes, DecodedBytes: t.Decoded, Fields: t.Fields, Attributes: d.allAttributes,
		Removed: t.Removed, Purged: t.Purged, Replaces: replaces, Format: fmt.Sprintf("%d.%d", format.Major, t.Minor()),
		Meta: t.Meta,
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
